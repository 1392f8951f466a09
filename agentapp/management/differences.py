"""How commands print what changed in the configuration."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import OutputWrapper

from approvals.configuration import Change

MAX_VALUE_CHARS = 100
_MARKS = {"configuration.created": "+", "configuration.changed": "~", "configuration.deleted": "-"}


def print_changes(changes: Iterable[Change], out: OutputWrapper) -> None:
    """One line per row; for a changed row, one more line per field with its value before and after."""
    for change in changes:
        out.write(f"{_MARKS[change.event_type]} {change.table} {change.name}")
        if change.before is not None and change.after is not None:
            for name, value in change.after.items():
                out.write(f"    {name}: {_shown(change.before[name])} → {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"
