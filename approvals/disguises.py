# ruff: noqa: RUF001, RUF003 - letters that look like others are what this is about
"""Texts in a call's arguments that are not what they look like, and what they say. Pure; no HTML.

What is approved is what the tool gets, and a text can say something else to a tool than to an eye: with characters that
are not drawn, with letters of another alphabet, or as JSON or base64 that only the tool unpacks.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.digest import MAX_DEPTH, MalformedJSON, parse
from approvals.visible import visible

HIDDEN: Final = "hidden"
ALIKE: Final = "alike"
JSON: Final = "json"
BASE64: Final = "base64"

MOST: Final = 20
"""So many of what deceives the eye, and as many of what is packed, are named. The rest is still in the arguments."""
MOST_PACKED = 5
"""How often what was unpacked is unpacked again."""
# A shorter run of these characters is a word, or an id that unpacks to something by chance.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_LEAST_BASE64 = 16
_URL_SAFE = str.maketrans("-_", "+/")
_READABLE = 0.9
_WORD = re.compile(r"(?:[^\W_]|[Ⓐ-ⓩ🄰-🅩])+")
_LATIN = re.compile(r"[A-Za-z]")
_ALPHABETS = ((0x0370, 0x0400, "Greek"), (0x0400, 0x0530, "Cyrillic"), (0x0530, 0x0590, "Armenian"))
# Letters that most fonts draw like a Latin one, in this case of the letter. Greek α, β, κ, μ and Ω are not among them:
# they look different enough, and stand next to Latin letters in units and in the names of substances.
_CYRILLIC = "аеорсухіјѕԁԛԝһӏүѵАВЕКМНОРСТУХІЈЅԌԚԜӀ"
_GREEK = "ονριυϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹ"
_ALIKE = frozenset(f"{_CYRILLIC}{_GREEK}օսհոցՕՏՍ")
_ALPHA = re.compile("(?<=[a-z])α(?=[a-z])")
# Plain letters and digits in another dress, as in 𝐩𝐚𝐲. Full width is not among them: that is how East Asia writes.
_DRESSED = ((0x1D400, 0x1D800), (0x212A, 0x212B), (0x24B6, 0x24EA), (0x1F130, 0x1F16A))


@dataclass(frozen=True)
class Disguise:
    """One text that is not what it looks like."""

    kind: str
    path: tuple[str, ...]
    """Where it is: names of arguments, and positions in lists from 1."""
    text: str
    """What it says: with codes for what is hidden, the word with strange letters, or what was unpacked."""
    letters: tuple[str, ...] = ()
    """For look-alike letters: each with its alphabet and code."""
    value: Any = None
    """For what was unpacked and is JSON: the value."""


def disguises(arguments: Any, hidden: Collection[str] = ()) -> list[Disguise]:
    """The texts in a JSON value that are not what they look like, also within what has to be unpacked first.

    What deceives the eye comes first: no number of harmless texts keeps it off the list. Values of the keys in `hidden`
    are left out.
    """
    eye: list[Disguise] = []
    packed: list[Disguise] = []
    for each in _of(arguments, (), 0):
        kind = eye if each.kind in (HIDDEN, ALIKE) else packed
        if len(kind) < MOST and not (hidden and set(each.path) & set(hidden)):
            kind.append(each)
    return eye + packed


def deceiving(arguments: Mapping[str, Any]) -> list[str]:
    """The names of the arguments with a text that deceives the eye. What is only packed, a tool may well need so."""
    return list(dict.fromkeys(each.path[0] for each in _of(arguments, (), 0) if each.kind in (HIDDEN, ALIKE)))


def _of(value: Any, path: tuple[str, ...], packed: int) -> Iterator[Disguise]:
    if len(path) > 2 * MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            inner = (*path, visible(name))
            yield from _in_text(name, inner)
            yield from _of(item, inner, packed)
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _of(item, (*path, str(number)), packed)
    elif isinstance(value, str):
        yield from _in_text(value, path)
        if packed < MOST_PACKED:
            yield from _unpacked(value, path, packed)


def _in_text(text: str, path: tuple[str, ...]) -> Iterator[Disguise]:
    """Hidden characters and look-alike letters."""
    if text.isascii() and text.isprintable():
        return
    if (shown := visible(text)) != text.replace("\r\n", "\n"):
        yield Disguise(HIDDEN, path, shown)
    if not text.isascii():
        yield from _alike(text, path)


def _alike(text: str, path: tuple[str, ...]) -> Iterator[Disguise]:
    """Words with letters of another alphabet than they seem to have, and no letter that shows it.

    They stand next to Latin letters or digits in the word; or, in a text without any other letter of their alphabet,
    they make up a word among Latin ones.
    """
    found = _ALPHA.search(text) is not None or any(char in _ALIKE or _is_dressed(char) for char in set(text))
    if not found:
        return
    pretends = _LATIN.search(text) and all(char in _ALIKE for char in set(text) if char.isalpha() and _alphabet(char))
    for word in dict.fromkeys(_WORD.findall(text)):
        dressed = [char for char in dict.fromkeys(word) if _is_dressed(char)]
        strange = [char for char in dict.fromkeys(word) if char in _ALIKE or (char == "α" and _ALPHA.search(word))]
        shows = any(_alphabet(char) and char not in strange for char in word)
        beside = _LATIN.search(word) or any(map(str.isdigit, word)) or (pretends and len(word) > 1)
        is_dressed = len(dressed) > 1 or (dressed and _LATIN.search(word))  # 𝑥 alone is mathematics
        if is_dressed or (strange and beside and not shows):
            yield Disguise(ALIKE, path, word, tuple(map(_named, [*strange, *dressed])))


def _alphabet(char: str) -> str:
    return next((name for first, end, name in _ALPHABETS if first <= ord(char) < end), "")


def _is_dressed(char: str) -> bool:
    return any(first <= ord(char) < end for first, end in _DRESSED)


def _named(char: str) -> str:
    return f"{char} is {_alphabet(char) or 'a symbol'} (U+{ord(char):04X})"


def _unpacked(text: str, path: tuple[str, ...], packed: int) -> Iterator[Disguise]:
    """JSON written as text, and base64 that holds text; then what is in them."""
    inner = _as_json(text)
    if inner is not None:
        if not _is_plain(inner, text):
            yield Disguise(JSON, path, text, value=inner)
        yield from _of(inner, path, packed + 1)
        return
    for found in _BASE64.findall(text):
        for said in _as_texts(found):
            value = _as_json(said)
            yield Disguise(BASE64, path, said, value=value)
            yield from _of(said if value is None else value, path, packed + 1)


def _is_plain(inner: Any, text: str) -> bool:
    """Whether JSON says no more than it shows: a text in quotation marks without codes, or numbers in brackets."""
    if isinstance(inner, str):
        return "\\u" not in text
    return isinstance(inner, list) and all(isinstance(each, int | float) for each in inner)


def _as_json(text: str) -> Any:
    """The object, list or text that a text writes as JSON; None if it is none, empty, or nested too deeply."""
    bare = text.strip("\ufeff").strip()
    if bare[:1] not in ("{", "[", '"') or bare[-1:] not in ("}", "]", '"'):
        return None
    try:
        return parse(bare) or None
    except MalformedJSON:
        pass
    try:  # A tool may be less strict, and then nobody knows which of two equal names it takes: both are shown.
        value = json.loads(bare, object_pairs_hook=_each_of, parse_int=_number)
    except (ValueError, RecursionError):
        return None
    return value if value and _is_shallow(value) else None


def _number(digits: str) -> int | str:
    """A number too long to be read is shown as it is."""
    return int(digits) if len(digits) < 400 else digits


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        items = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [inner for each in items for inner in each]
    return not level


def _each_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with every value that was written; those of equal names as a list."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _as_texts(packed: str) -> list[str]:
    """What base64 holds, if that is readable. In a path or after a prefix, what stands between the separators is."""
    if said := _as_text(packed):
        return [said]
    parts = re.split("[/_-]", packed)
    return [said for part in parts if len(part) >= _LEAST_BASE64 and (said := _as_text(part))] if len(parts) > 1 else []


def _as_text(packed: str) -> str:
    """The text in base64 of either alphabet, with its padding or without. Empty if that is not readable.

    UTF-8, UTF-16 as in PowerShell's commands, or nearly all of it printable: one stray byte must not hide the rest.
    """
    bare = packed.rstrip("=").translate(_URL_SAFE)
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return ""
    is_utf_16 = len(raw) % 2 == 0 and raw[1::2].count(0) >= _READABLE * len(raw) / 2 and 0 not in raw[::2]
    said = raw.decode("utf-16-le" if is_utf_16 else "utf-8", errors="replace")
    if not said.strip():
        return ""
    whole = "\ufffd" not in said and all(char.isprintable() or char in "\n\r\t" for char in said)
    plain = sum(32 <= byte < 127 or byte in b"\n\r\t" for byte in raw)
    return said if whole or plain >= _READABLE * len(raw) else ""
