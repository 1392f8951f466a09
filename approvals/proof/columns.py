"""The columns that events are found by, next to the hashed text. They say nothing that the text does not."""

import functools
import re
import uuid
from typing import Any

# 'user:5' of 'user:5:dana (token CI)'; for everybody else, all but the way they came.
_ACTOR_KEY = re.compile(r"user:\d+(?=:)|.*?(?= \(|$)", re.DOTALL)


def about(actor: str, data: Any) -> dict[str, Any]:
    """The values of the columns that events are found by, taken only from the hashed text."""
    _, actor_key, approval, execution, tool, risk, took = found_by("", actor, data)
    keys = {"approval_id": approval and uuid.UUID(approval), "execution_id": execution and uuid.UUID(execution)}
    return {"actor_key": actor_key, **keys, "tool": tool, "risk": risk, "took_ms": took}


def found_by(chain: str, actor: str, data: Any) -> list[Any]:
    """The same for an event in a chain, in the order of the columns, with keys as hexadecimal digits."""
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


# Consecutive events are about the same things.
@functools.lru_cache(1024)
def _digits_of(text: str) -> str | None:
    try:
        return uuid.UUID(text).hex
    except ValueError:
        return None


@functools.lru_cache(1024)
def _actor_key(actor: str) -> str:
    return _ACTOR_KEY.match(actor)[0]  # type: ignore[index]  # it matches every text
