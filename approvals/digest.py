"""Strict JSON in, canonical JSON out, and the digest an approval is bound to.

Databases and parsers disagree about what a JSON text means (duplicate keys, NaN, NUL, big
numbers), so a text is refused here, before it is stored, unless it means the same everywhere.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import rfc8785

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class MalformedJSON(ValueError):
    """The text is not JSON that every part of the system would read the same way."""


def parse(text: str) -> Any:
    """Read one JSON text strictly. Raises MalformedJSON with a sentence a model can act on."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise MalformedJSON(f"The JSON is larger than {MAX_BYTES // 1024} KiB.")
    _check_depth(text)
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite)
    except MalformedJSON:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedJSON(f"The JSON is malformed or truncated: {error}.") from error
    _check_values(value)
    return value


def canonical(value: Any) -> str:
    """RFC 8785 (JCS) text of a JSON value. Raises MalformedJSON for what JCS cannot say."""
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError) as error:
        raise MalformedJSON(f"The value has no canonical JSON form: {error}.") from error


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def action_digest(*, tool: str, tool_version: str, arguments: Any, run: str, subject: str) -> str:
    """What an approval is bound to: the tool, its exact contract, the arguments, the run and the subject."""
    action = {"tool": tool, "tool_version": tool_version, "arguments": arguments, "run": run, "subject": subject}
    return sha256(canonical(action))


def storable(text: str) -> str:
    """Text that both databases keep unchanged: NUL and lone surrogates become a visible mark."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def _check_depth(text: str) -> None:
    depth = 0
    for mark in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if mark in "[{" else -1
        if depth > MAX_DEPTH:
            raise MalformedJSON(f"The JSON is nested deeper than {MAX_DEPTH} levels.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise MalformedJSON(f"The key {twice!r} stands twice in one object.")
    return found


def _no_constant(name: str) -> None:
    raise MalformedJSON(f"{name} is not JSON.")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MalformedJSON(f"The number {text} is too large.")
    return value


def _check_values(value: Any) -> None:
    for item in _scalars(value):
        if isinstance(item, str):
            if "\x00" in item:
                raise MalformedJSON("A text contains a NUL character.")
            if any(0xD800 <= ord(char) <= 0xDFFF for char in item):
                raise MalformedJSON("A text contains half of a surrogate pair.")
        elif isinstance(item, int) and not isinstance(item, bool) and abs(item) > 2**53 - 1:
            raise MalformedJSON(f"The number {item} is too large to be exact; send it as a text.")


def _scalars(value: Any) -> Iterable[Any]:
    """Every key and leaf. Depth is bounded by `_check_depth`."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    else:
        yield value
