"""What a condition may ask about other calls, as in history.sum('refund_payment.amount', '24h').

Only the question is read here. The keeper of the calls answers it, and only when it is asked.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

NAME = "history"
SCOPES = ("customer", "agent", "run")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
MAX_SECONDS = 366 * 86400
_SPAN = re.compile(r"(\d{1,5})([mhdw])")
_TEXT = r"""(?:'([^'\\]*)'|"([^"\\]*)")"""
_CALL = re.compile(rf"(?<![\w.])history\s*\.\s*(\w+)\s*\(\s*{_TEXT}(?:\s*,\s*{_TEXT})?(?:\s*,\s*{_TEXT})?\s*\)")
_TEXTS = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\])*\1""")
_MENTIONED = re.compile(r"(?<![\w.])history\b")
_FORMS = (
    "history.sum('tool.argument', '24h'), history.count('tool', '24h') or history.first_time('tool.argument'), "
    "each with 'customer', 'agent' or 'run' at the end if only those calls count"
)


@dataclass(frozen=True)
class Look:
    """One question about other calls."""

    function: str
    subject: str
    """A tool, or a tool and the path to one of its arguments."""
    seconds: int = 0
    scope: str = ""

    def __str__(self) -> str:
        span = [_span(self.seconds)] if self.seconds else []
        given = [self.subject, *span, *([self.scope] if self.scope else [])]
        return f"{NAME}.{self.function}({', '.join(f"'{text}'" for text in given)})"


class History(Protocol):
    """Something that can answer. Raises whatever stops it: then nothing is known, and a person decides."""

    def answer(self, look: Look) -> float | int | bool: ...


class NothingBefore:
    """The history of an installation in which no call was ever made."""

    def answer(self, look: Look) -> float | int | bool:
        return {"sum": 0.0, "count": 0, "first_time": True}[look.function]


def read(function: str, *given: str) -> Look:
    """The question that a condition asks with these words. Raises ValueError."""
    subject, *rest = given or ("",)
    scope = rest.pop() if rest and rest[-1] in SCOPES else ""
    if function == "first_time" and not rest and "." in subject:
        return Look(function, subject, scope=scope)
    if function == "count" and len(rest) == 1 and subject:
        return Look(function, subject, _seconds(rest[0]), scope)
    if function == "sum" and len(rest) == 1 and "." in subject:
        return Look(function, subject, _seconds(rest[0]), scope)
    raise ValueError(f"A condition can only ask history in these ways: {_FORMS}.")


def asked_in(condition: str) -> list[Look]:
    """Every question a condition asks, once. Raises ValueError if it asks in another way."""
    looks = [
        read(call[1], *(text for text in call.groups()[1:] if text is not None)) for call in _CALL.finditer(condition)
    ]
    if _MENTIONED.search(_TEXTS.sub("", _CALL.sub("", condition))):
        raise ValueError(f"A condition can only ask history in these ways: {_FORMS}.")
    return list(dict.fromkeys(looks))


def is_asked(condition: str) -> bool:
    """Whether a condition looks at other calls at all."""
    return _MENTIONED.search(condition) is not None


def functions(history: History | None) -> dict[str, Callable[..., Any]]:
    """The functions that a condition calls. If nobody can answer, each of them fails."""

    def named(function: str) -> Callable[..., Any]:
        def ask(receiver: Any, *given: Any) -> float | int | bool:
            if receiver != {} or not all(isinstance(text, str) for text in given):
                raise ValueError(f"A condition can only ask history in these ways: {_FORMS}.")
            if history is None:
                raise LookupError("other calls are not known here")
            return history.answer(read(function, *given))

        return ask

    return {name: named(name) for name in ("sum", "count", "first_time")}


def with_decimals(value: Any) -> Any:
    """Arguments for a condition about totals: CEL cannot add an integer to a decimal, and 20.0 is kept as 20."""
    if isinstance(value, dict):
        return {name: with_decimals(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_decimals(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return float(value) if whole else value


def _seconds(span: str) -> int:
    found = _SPAN.fullmatch(span)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"{span!r} is not a span of time: use '30m', '24h', '7d' or '4w', a year at most.")
    return seconds


def _span(seconds: int) -> str:
    size, unit = next((size, unit) for unit, size in reversed(_UNITS.items()) if seconds % size == 0)
    return f"{seconds // size}{unit}"
