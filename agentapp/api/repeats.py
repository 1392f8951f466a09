"""How an answer says that the same request was sent before."""

from typing import Any

REPLAY_HEADER = "Idempotent-Replay"


def of_a_repeat(said: str) -> dict[str, Any]:
    """The OpenAPI description of the 200 that answers a repeated request."""
    header = {"schema": {"type": "string", "const": "true"}, "required": True}
    return {"description": said, "headers": {REPLAY_HEADER: header}}
