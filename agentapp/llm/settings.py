"""What an agent's `model_settings` may pass to a provider. They cannot set headers, bodies or addresses."""

from dataclasses import dataclass
from typing import Any

from agentapp.tools.schema import problems_of

MAX_TIMEOUT = 600
"""The longest time, in seconds, that an agent's settings may allow for one reply."""


@dataclass(frozen=True)
class Setting:
    """One setting, and what it must be: as a schema, and in words for people."""

    schema: dict[str, Any]
    words: str


def _number(least: int, most: int) -> Setting:
    return Setting({"type": "number", "minimum": least, "maximum": most}, f"a number from {least} to {most}")


_COUNT = Setting({"type": "integer", "minimum": 1}, "a whole number above 0")
_YES_OR_NO = Setting({"type": "boolean"}, "true or false")
_RETENTIONS = ["5m", "30m", "1h", "12h"]
_EFFORTS = ["minimal", "low", "medium", "high", "xhigh", "max"]

SENT: dict[str, Setting] = {
    "cache": Setting(
        {
            "anyOf": [
                {"enum": [True, False, *_RETENTIONS]},
                {
                    "type": "object",
                    "properties": {"retention": {"enum": _RETENTIONS}, "messages": {"type": "boolean"}},
                    "additionalProperties": False,
                },
            ]
        },
        f"true, false, one of {', '.join(_RETENTIONS)}, or an object of retention and messages",
    ),
    "frequency_penalty": _number(-2, 2),
    "max_tokens": _COUNT,
    "presence_penalty": _number(-2, 2),
    "seed": Setting({"type": "integer"}, "a whole number"),
    "stop_sequences": Setting({"type": "array", "items": {"type": "string", "minLength": 1}}, "a list of texts"),
    "temperature": _number(0, 2),
    "thinking": Setting({"enum": [True, False, *_EFFORTS]}, f"true, false or one of {', '.join(_EFFORTS)}"),
    "top_k": _COUNT,
    "top_p": _number(0, 1),
}
"""These go to the provider."""

OURS: dict[str, Setting] = {
    "strict": _YES_OR_NO,
    "timeout": Setting(
        {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT},
        f"a number of seconds above 0, up to {MAX_TIMEOUT}",
    ),
}
"""These are read here: how tools are described, and how long a reply may take."""


def problems(settings: object) -> list[str]:
    """What is wrong with an agent's model settings, as sentences."""
    if not isinstance(settings, dict):
        return ['Model settings are an object, such as {"temperature": 0}.']
    known, found = SENT | OURS, []
    for name, value in settings.items():
        if name not in known:
            found.append(f"{name!r} is not a model setting. Known settings: {', '.join(sorted(known))}.")
        elif problems_of(known[name].schema, value):
            found.append(f"{name} must be {known[name].words}.")
    return found
