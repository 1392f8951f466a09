"""What a rule's condition looked at in one call, and what it found. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from approvals.digest import canonical
from approvals.masking import MASK, masked

MAX_CHARS = 300
MAX_NAMES = 12
# args["amount"] is args.amount.
_INDEX = re.compile(r"""\[\s*(["'])([A-Za-z_]\w*)\1\s*\]""")
_TEXT = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\])*\1""")
# A name and the path from it. What is called, as in .exists(…), is not part of it.
_PATH = re.compile(r"(?<![\w.])([A-Za-z_]\w*+)((?:\.[A-Za-z_]\w*+(?!\s*\())*)")


def looked_at(condition: str, names: Mapping[str, Any], secret: Collection[str] = ()) -> tuple[dict[str, Any], ...]:
    """Each thing the condition names, once, as {name, value}. Without a value if the call does not have it."""
    plain = _TEXT.sub('""', _INDEX.sub(r".\2", condition))
    found: dict[str, dict[str, Any]] = {}
    for name, path in _PATH.findall(plain):
        if name in names and name + path not in found and len(found) < MAX_NAMES:
            found[name + path] = {"name": name + path, **_value(names[name], path.split(".")[1:], secret)}
    return tuple(found.values())


def _value(value: Any, path: list[str], secret: Collection[str]) -> dict[str, Any]:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return {}
        if key in secret:
            return {"value": MASK}
        value = value[key]
    shown = masked(value, secret)
    return {"value": shown if isinstance(shown, bool | int | float | None) else _short(shown)}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
