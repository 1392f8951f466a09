"""A world outside the database: a file that records what really happened, and tools that act on it.

A worker can be killed at any line; what it did to the world stays. The tools die where CRASH_AT says.
"""

import json
import os
from pathlib import Path

from agentapp.tools.base import ToolContext, tool


def effects() -> list[dict[str, object]]:
    """Everything that happened, in order."""
    path = Path(os.environ["WORLD"])
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def die_at(point: str) -> None:
    """End the process as kill -9 does: nothing is cleaned up, nothing is flushed."""
    if os.environ.get("CRASH_AT") == point:
        os._exit(137)


def happen(what: str, item: str, key: str, **more: str) -> None:
    """Keep an effect, whatever becomes of this process."""
    line = json.dumps({"what": what, "item": item, "key": key, **more}) + "\n"
    with open(os.environ["WORLD"], "a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


@tool(effect="irreversible")
def charge(item: str, context: ToolContext) -> str:
    """Charge for an item. The other side knows no key."""
    die_at("P2")
    happen("charge", item, context.idempotency_key)
    die_at("P3")
    return f"charged {item}"


@tool(effect="irreversible", idempotency="key")
def charge_once(item: str, context: ToolContext) -> str:
    """Charge for an item. The other side remembers the key and answers a repetition with the first result."""
    die_at("P2")
    if all(effect["key"] != context.idempotency_key for effect in effects()):
        happen("charge_once", item, context.idempotency_key)
    die_at("P3")
    return f"charged {item}"
