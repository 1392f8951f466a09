"""A JSON object as names and values that a person can read at a glance, in their original order."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentapp.console import formats, json_tree, typed_text

# A longer text takes a line of its own.
WIDE_CHARS = 32
# An object with more members is a document, and reads better as it was written.
MOST_FACTS = 24
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)")


@dataclass(frozen=True)
class Fact:
    """One member of the object. Both fields are text from outside."""

    name: str
    text: str

    @property
    def is_wide(self) -> bool:
        return len(self.text) > WIDE_CHARS or "\n" in self.text


def facts_of(text: str) -> list[Fact]:
    """The members of the object in `text`; empty if it is something else, or nested too deeply."""
    if not text.startswith("{"):
        return []
    value, is_json = json_tree.read(text)
    if not is_json or not isinstance(value, dict) or not 0 < len(value) <= MOST_FACTS:
        return []
    found = [Fact(_name(key), _text(item)) for key, item in value.items()]
    return found if all(fact.text for fact in found) else []


def _name(key: str) -> str:
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _text(value: Any) -> str:
    """A value in words; a list with objects in it takes one line per entry. Empty if it is nested more deeply."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        lines = [_line(item) for item in value]
        return "\n".join(lines) if all(lines) else ""
    return _line(value)


def _line(value: Any) -> str:
    """A plain value, or a list or object of plain values, in one line; empty for anything else."""
    if isinstance(value, dict) and value:
        parts = [(_name(key), _plain(item)) for key, item in value.items()]
        return ", ".join(f"{name} {text}" for name, text in parts) if all(text for _, text in parts) else ""
    if isinstance(value, list) and value:
        texts = [_plain(item) for item in value]
        return ", ".join(texts) if all(texts) else ""
    return _plain(value)


def _plain(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return _moment(value)
    return "" if isinstance(value, dict | list) else typed_text.shown(value)


def _moment(text: str) -> str:
    """A moment as the console writes it. One without a time zone is left as it was written."""
    try:
        return formats.moment(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return text
