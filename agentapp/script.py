"""Scripts: lists of model replies that a run replays instead of asking a model."""

from typing import Any

from agentapp.messages import MAX_COST, MAX_TOKENS
from agentapp.tools.schema import check_arguments

_CALL = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 200},
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        # A text stands for what a model sent, well-formed or not.
        "arguments": {"type": ["object", "string"]},
    },
    "required": ["id", "name", "arguments"],
    "additionalProperties": False,
}
_USAGE = {
    "type": "object",
    "properties": {
        "input_tokens": {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS},
        "output_tokens": {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS},
        "cached_tokens": {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS},
        "cost": {"type": "number", "minimum": 0, "maximum": MAX_COST},
    },
    "additionalProperties": False,
}
# Instead of a reply: what a provider that fails says.
_ERROR = {"type": "string", "minLength": 1}
REPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "error": _ERROR,
        "tool_calls": {"type": "array", "items": _CALL, "maxItems": 32},
        "usage": _USAGE,
        # What is said to people who ask about these calls before they decide.
        "answer": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "error": _ERROR, "usage": _USAGE},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
SCRIPT_SCHEMA: dict[str, Any] = {"type": "array", "items": REPLY_SCHEMA, "minItems": 1, "maxItems": 1000}


class ScriptError(ValueError):
    """A script is not a list of replies; the message names the first place."""


def check_script(script: object) -> None:
    """Raises ScriptError unless `script` is a list of replies."""
    problems = check_arguments(SCRIPT_SCHEMA, script)
    if problems:
        raise ScriptError(f"script/{problems[0].field}: {problems[0].sentence}")
