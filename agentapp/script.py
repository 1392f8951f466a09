"""Scripts: lists of model replies that a run replays instead of asking a model."""

from typing import Any

from agentapp.messages import MAX_COST, MAX_TOKENS
from agentapp.tools.schema import Words, problems_of

_CALL = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 200},
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        # A string stands for what a model sent, well-formed or not.
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
# Instead of a reply: the error of a failing provider.
_ERROR = {"type": "string", "minLength": 1}
REPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "error": _ERROR,
        "tool_calls": {"type": "array", "items": _CALL, "maxItems": 32},
        "usage": _USAGE,
        # The answer to people who ask about these calls before they decide.
        "answer": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "error": _ERROR,
                "usage": _USAGE,
                # The call proposed instead, if the answer changes it.
                "tool_calls": {"type": "array", "items": _CALL, "maxItems": 1},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
# What a model would answer in one step of an agent that follows guidelines.
_NAMES = {"type": "array", "items": {"type": "string"}}
_CALLS = {"type": "array", "items": {"type": "object"}, "maxItems": 32}
GUIDED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        # For each matched guideline why it holds, or a list of names only.
        "matched": {"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, _NAMES]},
        # For each tool what becomes of it, or only the arguments of the calls that are needed.
        "evaluations": {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    _CALLS,
                    {
                        "type": "object",
                        "properties": {
                            "state": {
                                "enum": ["needs_to_run", "data_already_in_context", "cannot_run", "not_applicable"]
                            },
                            "calls": _CALLS,
                            "why": {"type": "string"},
                        },
                        "required": ["state"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
        # The reply, or a list: the first draft and the one after each correction.
        "says": {"anyOf": [{"type": "string"}, {**_NAMES, "minItems": 1}]},
        # The tools whose acts the reply claims, or a list of these for each draft.
        "claims": {"type": "array", "items": {"anyOf": [{"type": "string"}, _NAMES]}},
        "error": _ERROR,
        "usage": _USAGE,
        "answer": REPLY_SCHEMA["properties"]["answer"],
    },
    "additionalProperties": False,
}
SCRIPT_SCHEMA: dict[str, Any] = {"type": "array", "items": REPLY_SCHEMA, "minItems": 1, "maxItems": 1000}


GUIDED_SCRIPT_SCHEMA: dict[str, Any] = {**SCRIPT_SCHEMA, "items": GUIDED_SCHEMA}


_WORDS = Words("", "is not part of a script")


class ScriptError(ValueError):
    """A script is not a list of replies. The message and `field` name the first problem, such as script/0/text."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field}: {sentence}")
        self.field = field


def check_script(script: object, *, is_guided: bool = False) -> None:
    """Raises ScriptError unless `script` is a list of replies, or of a model's answers if guidelines decide."""
    problems = problems_of(GUIDED_SCRIPT_SCHEMA if is_guided else SCRIPT_SCHEMA, script, _WORDS)
    if problems:
        first = min(problems, key=lambda problem: problem.kind != "missing")
        place = f"script/{first.field}".rstrip("/")
        raise ScriptError(place, first.sentence.removeprefix(f"{first.field}: "))
