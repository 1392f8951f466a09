"""How an answer says that what was sent had been sent before."""

from typing import Any

REPLAY_HEADER = "Idempotent-Replay"


def of_a_repeat(said: str) -> dict[str, Any]:
    """What the document says of 200, which is the answer to what was sent before."""
    header = {"schema": {"type": "string", "const": "true"}, "required": True}
    return {"description": said, "headers": {REPLAY_HEADER: header}}
