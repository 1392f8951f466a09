"""Drivers bound as a run binds them, with the models' door itself behind them."""

from agentapp import llm
from agentapp.drivers import get_driver
from agentapp.drivers.base import Driver
from agentapp.messages import Reply


class Door:
    """The plain way to a model. It keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[llm.Request] = []

    def complete(self, request: llm.Request) -> Reply:
        self.asked.append(request)
        return llm.complete(request)


def bound(name: str, door: Door | None = None) -> Driver:
    driver = get_driver(name)
    driver.bind(door or Door())
    return driver
