"""Strict JSON in, canonical JSON out, and the digest an approval is bound to.

Databases and parsers disagree about what some JSON means (duplicate keys, NaN, NUL, big numbers). So a text is refused
here, before it is stored, unless it means the same everywhere.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import rfc8785

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64
# Beyond this a number is not exact everywhere (RFC 7493, section 2.2).
MAX_EXACT = 2**53 - 1

# A string, or the rest of the text if it is never closed. Each character is looked at once.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class MalformedJSON(ValueError):
    """The text is not JSON that every part of the system would read the same way."""


def parse(text: str) -> Any:
    """Read one JSON text strictly. Raises MalformedJSON with a sentence a model can act on."""
    if _is_too_large(text):
        raise MalformedJSON(f"The JSON is larger than {MAX_BYTES // 1024} KiB.")
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_exact,
        )
    except MalformedJSON:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedJSON(f"The JSON is malformed or truncated: {error}.") from error
    _check_texts(value)
    # 1e15 becomes sixteen digits. Accepted text must be readable again in its canonical form.
    if len(text) > MAX_BYTES // 4 and _is_too_large(canonical(value)):
        raise MalformedJSON(f"The JSON is larger than {MAX_BYTES // 1024} KiB when its numbers are written out.")
    return value


def load(text: str) -> Any:
    """Read a text that this system has written or accepted before, however large it has become."""
    return json.loads(text)


def canonical(value: Any) -> str:
    """The RFC 8785 (JCS) text of a JSON value. Raises MalformedJSON for what JCS cannot express."""
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError) as error:
        raise MalformedJSON(f"The value has no canonical JSON form: {error}.") from error


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def action_digest(
    *, tool: str, tool_version: str, arguments: Any, run: str, subject: str, plan_text: str = "", salt: str = ""
) -> str:
    """What an approval is bound to: the tool, its exact contract, the arguments, the run and the subject.

    For a plan, also each of its calls as people are shown it. `salt` is the call's own: without it nobody can find the
    arguments by trying, however few the possibilities. Older rows have no salt.
    """
    action = {"tool": tool, "tool_version": tool_version, "arguments": arguments, "run": run, "subject": subject}
    beside = {**({"plan": sha256(plan_text)} if plan_text else {}), **({"salt": salt} if salt else {})}
    return sha256(canonical(action | beside))


def storable(text: str) -> str:
    """Text that both databases keep unchanged: NUL and lone surrogates become a visible mark."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def as_typed(text: str) -> str:
    """What a person typed, counted as the field counts it: browsers send a line break as two characters."""
    return storable(text).replace("\r\n", "\n").strip()


def storable_json(value: Any) -> Any:
    """A value as JSON that both databases keep: storable texts, no NaN, and the text of what JSON cannot express."""
    if isinstance(value, dict):
        return {storable(str(key)): storable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(item) for item in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return storable(str(value))


def storable_up_to(most_chars: int, value: Any) -> Any:
    """The same, but `{"unreadable": true}` for a value that would be longer or is nested too deeply."""
    try:
        return parse(json.dumps(storable_json(value), allow_nan=False, default=str)[:most_chars])
    except (ValueError, MalformedJSON, RecursionError):
        return {"unreadable": True}


def _is_too_large(text: str) -> bool:
    return len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES


def _check_depth(text: str) -> None:
    depth = 0
    for mark in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if mark in "[{" else -1
        if depth > MAX_DEPTH:
            raise MalformedJSON(f"The JSON is nested deeper than {MAX_DEPTH} levels.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise MalformedJSON(f"The key {_start(twice)!r} appears twice in one object.")
    return found


def _no_constant(name: str) -> None:
    raise MalformedJSON(f"{name} is not JSON.")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedJSON(f"The number {_start(text)} is too large.")
    # JCS writes these as whole numbers, which could not be read again.
    if MAX_EXACT < abs(value) < 1e21:
        raise MalformedJSON(f"The number {_start(text)} is too large to be exact; send it as a text.")
    return value


def _exact(text: str) -> int:
    # Check the length first: Python refuses to convert thousands of digits.
    if len(text) > 17 or abs(int(text)) > MAX_EXACT:
        raise MalformedJSON(f"The number {_start(text)} is too large to be exact; send it as a text.")
    return int(text)


def _start(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _check_texts(value: Any) -> None:
    for item in _scalars(value):
        found = _UNSTORABLE.search(item) if isinstance(item, str) else None
        if found:
            what = "a NUL character" if found[0] == "\x00" else "half of a surrogate pair"
            raise MalformedJSON(f"A text contains {what}.")


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
