"""Drivers by name. A row names a driver; this module maps the name to code."""

from collections.abc import Callable

from django.utils.module_loading import import_string

from agentapp.considered import GUIDED
from agentapp.drivers.base import Driver

DRIVERS: dict[str, str] = {
    "tool_calling": "agentapp.drivers.tool_calling.ToolCallingDriver",
    "react": "agentapp.drivers.react.ReactDriver",
    GUIDED: "agentapp.drivers.guided.GuidedDriver",
    "scripted": "agentapp.drivers.scripted.ScriptedDriver",
}


def get_driver(name: str) -> Driver:
    """The driver of that name. Raises LookupError, which names the known drivers."""
    try:
        path = DRIVERS[name]
    except KeyError:
        raise LookupError(f"There is no driver {name!r}. Known drivers: {', '.join(sorted(DRIVERS))}.") from None
    driver: Driver = import_string(path)()
    return driver


def settings_problems(name: str, settings: object) -> list[str]:
    """What is wrong with an agent's driver settings, by the driver's own `check_settings` if it has one."""
    if not isinstance(settings, dict):
        return ['Driver settings are an object, such as {"max_retries": 2}.']
    check: Callable[[object], list[str]] | None = getattr(get_driver(name), "check_settings", None)
    return check(settings) if check else []
