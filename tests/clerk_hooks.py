"""The clerk's hooks: they note where they ran, and do what a test puts into DO."""

import dataclasses
from collections.abc import Callable
from typing import Any

from agentapp.hooks import POINTS, BeforeToolUse, hook

SEEN: list[tuple[str, Any]] = []
"""Every point a hook ran at, with what it was told, in order."""

DO: dict[str, Callable[[Any], Any]] = {}
"""What the spy returns or raises, by point."""

MADE: list["Counting"] = []


def forget() -> None:
    SEEN.clear()
    DO.clear()
    MADE.clear()


def points() -> list[str]:
    return [point for point, _ in SEEN]


def told(point: str) -> Any:
    """What the spy was last told at a point."""
    return next(context for at, context in reversed(SEEN) if at == point)


def _spy_at(point: str) -> Callable[[Any], Any]:
    def spy(self: Any, context: Any) -> Any:
        SEEN.append((point, context))
        return DO[point](context) if point in DO else None

    return spy


Spy = type("Spy", (), {point: _spy_at(point) for point in POINTS})


def _appends(word: str, context: BeforeToolUse) -> BeforeToolUse:
    arguments = {**(context.arguments or {}), "what": f"{(context.arguments or {})['what']} {word}"}
    return dataclasses.replace(context, arguments=arguments)


@hook("before_tool_use", priority=10)
def ten(context: BeforeToolUse) -> BeforeToolUse:
    return _appends("ten", context)


@hook("before_tool_use", priority=100)
def hundred(context: BeforeToolUse) -> BeforeToolUse:
    return _appends("hundred", context)


@hook("before_tool_use", priority=50)
def fifty(context: BeforeToolUse) -> BeforeToolUse:
    return _appends("fifty", context)


class Counting:
    """Made once for each drive."""

    def __init__(self) -> None:
        self.steps = 0
        MADE.append(self)

    def before_step(self, context: Any) -> None:
        self.steps += 1


class Breaks:
    def __init__(self) -> None:
        raise RuntimeError("no luck")

    def before_step(self, context: Any) -> None: ...


class Pointless:
    def after_lunch(self, context: Any) -> None: ...


def plain(context: Any) -> None:
    """Not a hook: it does not say where it runs."""
