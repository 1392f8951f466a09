"""Tools for tests of what stops a run: they fail when told to, and stop when told to."""

import threading
from typing import Any

from agentapp.tools.base import OutcomeUnknown, ToolContext, ToolError, tool

BROKEN: dict[str, Exception] = {}
"""What a tool raises while it is broken."""

DONE: list[tuple[str, str]] = []
"""Every effect: tool and what it was about."""

STARTED = threading.Event()
"""Set when `dig` or `wire` has begun."""

LEARNT = threading.Event()
"""Set when a tool has learnt that nobody waits for it any more."""


def forget() -> None:
    BROKEN.clear()
    DONE.clear()
    STARTED.clear()
    LEARNT.clear()


def _work(name: str, about: str) -> str:
    if name in BROKEN:
        raise BROKEN[name]
    DONE.append((name, about))
    return f"{name} {about}"


@tool(effect="read", max_attempts=1)
def ask(about: str) -> str:
    """Ask the other system."""
    return _work("ask", about)


@tool(effect="read", max_attempts=1)
def ask_too(about: str) -> str:
    """Ask the same system something else."""
    return _work("ask_too", about)


@tool(effect="reversible")
def write(about: str) -> str:
    """Write to the other system."""
    return _work("write", about)


@tool(effect="irreversible", business_key="refund {order.id}")
def refund(order: dict[str, Any], memo: str = "") -> str:
    """Refund an order, once.

    Args:
        order: The order, with its id.
        memo: Words for the file.
    """
    return _work("refund", f"{order.get('id')} {memo}".strip())


@tool(effect="read", timeout=20, max_attempts=1)
def dig(about: str, context: ToolContext) -> str:
    """A read that takes long and stops when it is told to."""
    STARTED.set()
    context.cancelled.wait(20)
    LEARNT.set()
    context.check()
    return about


@tool(effect="irreversible", timeout=20)
def wire(about: str, how: str, context: ToolContext) -> str:
    """A write that takes long, and does as it is told when told to stop."""
    STARTED.set()
    context.cancelled.wait(20)
    LEARNT.set()
    if how == "stops":
        context.check()
    if how == "unknown":
        raise OutcomeUnknown("the line was cut")
    return _work("wire", about)


def failing(times: str = "not now", *, retryable: bool = False) -> ToolError:
    return ToolError(times, retryable=retryable, retry_after=0)
