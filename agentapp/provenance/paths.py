"""The path to a value within a call's arguments, such as items[0].iban."""

import json
import re
from collections.abc import Iterator
from typing import Any

type Part = str | int

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_PART = re.compile(r'\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def path_of(parts: tuple[Part, ...]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return text


def parts_of(path: str) -> tuple[Part, ...]:
    """The inverse of `path_of`."""
    found: list[Part] = []
    for name, index, quoted in _PART.findall(path):
        found.append(name or (int(index) if index else json.loads(quoted)))
    return tuple(found)


def leaves(value: Any, parts: tuple[Part, ...] = ()) -> Iterator[tuple[tuple[Part, ...], Any]]:
    """Every value that contains no other, with its path. An empty object or list is one."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, (*parts, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*parts, index))
    else:
        yield parts, value
