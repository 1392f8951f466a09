"""Drivers bound as a run binds them, with the real access to models behind them."""

from typing import ClassVar

from agentapp import llm
from agentapp.drivers import get_driver
from agentapp.drivers.base import Driver, Runtime, StepRequest
from agentapp.messages import Reply, ToolCall


class Door:
    """The plain way to a model. It records what was asked."""

    def __init__(self) -> None:
        self.asked: list[llm.Request] = []
        self.seen = False

    def complete(self, request: llm.Request, *, seen: bool = False) -> Reply:
        self.asked.append(request)
        self.seen = seen
        return llm.complete(request)

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        return reply


def bound(name: str, door: Door | None = None) -> Driver:
    driver = get_driver(name)
    driver.bind(door or Door())
    return driver


class Endless:
    """A test's own driver that wants a thousand calls at once, and then answers."""

    def bind(self, runtime: Runtime) -> None:
        pass

    def next_step(self, state: StepRequest) -> Reply:
        if state.step == 1:
            return Reply(tool_calls=tuple(ToolCall(f"c{n}", "look_up", f'{{"what": "{n}"}}') for n in range(1000)))
        return Reply(text="Done.")


class Counting:
    """A test's own driver: it calls once, then answers, and records when it is bound and asked."""

    noted: ClassVar[list[str]] = []

    def bind(self, runtime: Runtime) -> None:
        self.noted.append("bound")

    def next_step(self, state: StepRequest) -> Reply:
        self.noted.append(f"step {state.step}")
        if state.step == 1:
            return Reply(tool_calls=(ToolCall("c1", "look_up", '{"what": "x"}'),))
        return Reply(text=f"Turn {state.step}.")
