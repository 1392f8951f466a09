"""What the agent of the fault tests can do: look, draft, wire. Each call is a line in the world, with its run and call.

A call takes a moment before and after its effect, as it does elsewhere: a worker may be killed in that moment.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentapp.tools.base import ToolContext, tool
from tests.faults.world import effects, happen

LATENCY_SECONDS = 0.03


def _do(what: str, item: str, context: ToolContext) -> str:
    time.sleep(LATENCY_SECONDS)
    happen(what, item, context.idempotency_key, run=context.run_id, call=context.call_id)
    time.sleep(LATENCY_SECONDS)
    return f"{what} {item}"


@tool(effect="read")
def read_order(item: str, context: ToolContext) -> str:
    """Read an order."""
    return _do("read_order", item, context)


@tool(effect="compensable")
def draft(item: str, context: ToolContext) -> str:
    """Draft a payment. A rule lets it happen."""
    return _do("draft", item, context)


@tool(effect="irreversible")
def wire(item: str, context: ToolContext) -> str:
    """Pay. The other side knows no key."""
    return _do("wire", item, context)


@tool(effect="irreversible", idempotency="key")
def wire_once(item: str, context: ToolContext) -> str:
    """Pay. The other side remembers the key and answers a repetition with the first result."""
    with _other_side():
        if all(effect["key"] != context.idempotency_key for effect in effects()):
            return _do("wire_once", item, context)
    return f"wire_once {item}"


@tool(effect="irreversible", timeout=50)
def wire_slowly(item: str, context: ToolContext) -> str:
    """Pay, and answer when the test opens the gate."""
    said = _do("wire_slowly", item, context)
    _wait(item)
    return said


@tool(effect="irreversible", idempotency="key", timeout=50)
def wire_once_slowly(item: str, context: ToolContext) -> str:
    """The same where the other side remembers the key. Only the first attempt is slow."""
    with _other_side():
        is_first = all(effect["key"] != context.idempotency_key for effect in effects())
        if is_first:
            _do("wire_once_slowly", item, context)
    if is_first:
        _wait(item)
    return f"wire_once_slowly {item}"


def gate(item: str) -> Path:
    """The file that lets a slow call answer, once it exists."""
    return Path(f"{os.environ['WORLD']}.{item}")


@contextmanager
def _other_side() -> Iterator[None]:
    """It looks for a key and takes effect in one."""
    with open(f"{os.environ['WORLD']}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_waiting(item: str) -> bool:
    """Whether a slow call has taken effect and waits at its gate, holding nothing that others need."""
    return Path(f"{gate(item)}.reached").exists()


def _wait(item: str) -> None:
    Path(f"{gate(item)}.reached").touch()
    while not gate(item).exists():
        time.sleep(0.02)
