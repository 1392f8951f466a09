"""By what events are found: columns beside the text that is hashed, which say what it says and nothing besides."""

import functools
import re
import uuid
from typing import Any

# 'user:5' of 'user:5:dana (token CI)'; of everybody else, all but the way they came.
_ACTOR_KEY = re.compile(r"user:\d+(?=:)|.*?(?= \(|$)", re.DOTALL)


def about(actor: str, data: Any) -> dict[str, Any]:
    """What the columns say by which events are found: taken from the text that is hashed, and nothing besides."""
    _, actor_key, approval, execution, tool, risk, took = found_by("", actor, data)
    keys = {"approval_id": approval and uuid.UUID(approval), "execution_id": execution and uuid.UUID(execution)}
    return {"actor_key": actor_key, **keys, "tool": tool, "risk": risk, "took_ms": took}


def found_by(chain: str, actor: str, data: Any) -> list[Any]:
    """The same of an event in a chain, in the order of the columns and with keys as hexadecimal digits."""
    data = data if isinstance(data, dict) else {}
    tool, risk, took = data.get("tool"), data.get("risk"), data.get("took_ms")
    return [
        chain[4:].replace("-", "") if chain.startswith("run:") else None,
        _actor_key(actor),
        _digits(data.get("approval")),
        _digits(data.get("execution")),
        tool[:200] if isinstance(tool, str) else "",
        risk if isinstance(risk, str) and len(risk) <= 10 else "",
        took if isinstance(took, int) and not isinstance(took, bool) else None,
    ]


def run_chain(run_id: uuid.UUID) -> str:
    return f"run:{run_id}"


def _digits(value: Any) -> str | None:
    return _digits_of(value) if isinstance(value, str) and len(value) == 36 else None


# Events that follow each other are about the same things.
@functools.lru_cache(1024)
def _digits_of(text: str) -> str | None:
    try:
        return uuid.UUID(text).hex
    except ValueError:
        return None


@functools.lru_cache(1024)
def _actor_key(actor: str) -> str:
    return _ACTOR_KEY.match(actor)[0]  # type: ignore[index]  # it matches every text
