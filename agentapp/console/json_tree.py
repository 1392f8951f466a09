"""JSON as a tree that opens and closes without script. Everything in it is text from outside."""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from agentapp.console.formats import visible
from approvals.digest import MAX_DEPTH
from approvals.masking import MASK

MAX_TEXT = 4096
MAX_NODES = 600
# JSON nested more deeply is not shown as a tree: drawing the tree is recursive.
_READ_DEPTH = 200
# Up to this depth and size an object or a list is shown open.
_OPEN_DEPTH, _OPEN_ITEMS = 2, 20
# A short list of plain values is shown on one line.
_INLINE_ITEMS, _INLINE_CHARS = 6, 24


def json_tree(value: Any, secrets: Collection[str] = ()) -> SafeString:
    """The tree of one JSON value. Values of keys in `secrets` are never written, at any depth."""
    budget = iter(range(MAX_NODES))
    if isinstance(value, dict | list) and value:
        return format_html('<div class="json"><ul>{}</ul></div>', _items(value, secrets, 1, budget))
    return format_html('<div class="json"><ul><li>{}</li></ul></div>', _scalar(value))


def read(text: str) -> tuple[Any, bool]:
    """A stored JSON text as a value, and whether it could be read. It may not be JSON, or be nested too deeply."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    level = [value]
    for _ in range(_READ_DEPTH):
        level = [item for each in level if isinstance(each, dict | list) for item in _children(each)]
    return (None, False) if level else (value, True)


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _items(
    value: dict[str, Any] | list[Any], secrets: Collection[str], depth: int, budget: Iterator[int]
) -> SafeString:
    pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    written = []
    for number, (key, item) in enumerate(pairs):
        if next(budget, None) is None:
            left = len(value) - number
            written.append(format_html('<li><span class="p">{} more, not shown</span></li>', left))
            break
        written.append(_item(key, item, secrets, depth, budget))
    return mark_safe("".join(written))  # noqa: S308 - each was made by format_html


def _item(key: str | None, item: Any, secrets: Collection[str], depth: int, budget: Iterator[int]) -> SafeString:
    name = mark_safe("") if key is None else format_html('<span class="k">{}</span>', visible(key))
    colon = mark_safe("") if key is None else mark_safe('<span class="p">: </span>')
    if key is not None and key in secrets:
        return format_html('<li>{}{}<span class="p">{} masked</span></li>', name, colon, MASK)
    if not isinstance(item, dict | list) or not item or _is_short(item):
        return format_html("<li>{}{}{}</li>", name, colon, _scalar(item))
    size = f"{{{len(item)}}}" if isinstance(item, dict) else f"[{len(item)}]"
    if depth >= MAX_DEPTH:
        return format_html('<li>{} <span class="p">{} nested too deep to show</span></li>', name, size)
    is_open = mark_safe(" open") if depth <= _OPEN_DEPTH and len(item) <= _OPEN_ITEMS else ""
    return format_html(
        '<li><details{}><summary>{} <span class="p">{}</span></summary><ul>{}</ul></details></li>',
        is_open, name, size, _items(item, secrets, depth + 1, budget),
    )  # fmt: skip


def _is_short(item: Any) -> bool:
    return (
        isinstance(item, list)
        and len(item) <= _INLINE_ITEMS
        and all(not isinstance(each, dict | list) and len(str(each)) <= _INLINE_CHARS for each in item)
    )


def _scalar(value: Any) -> SafeString:
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            return format_html(
                '<span class="s">"{}…"</span> <span class="p">{} characters in all</span>',
                visible(value[:MAX_TEXT]), f"{len(value):,}",
            )  # fmt: skip
        return format_html('<span class="s">"{}"</span>', visible(value))
    if isinstance(value, list):
        joined = format_html_join(", ", "{}", ((_scalar(item),) for item in value))
        return format_html('<span class="p">[</span>{}<span class="p">]</span>', joined)
    if isinstance(value, bool) or value is None:
        return format_html('<span class="b">{}</span>', json.dumps(value))
    if isinstance(value, dict):
        return mark_safe('<span class="p">{}</span>')
    return format_html('<span class="n">{}</span>', json.dumps(value))
