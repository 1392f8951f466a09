# ruff: noqa: RUF001, RUF003 - letters that look like others are what this is about
"""Texts in a call's arguments that are not what they look like, and what they say. Pure; no HTML.

What is approved is what the tool gets, and a text can say something else to a tool than to an eye: with characters that
are not drawn, with letters of another alphabet, or as JSON or base64 that only the tool unpacks.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from approvals.digest import MAX_DEPTH, MalformedJSON, parse
from approvals.visible import visible

HIDDEN: Final = "hidden"
ALIKE: Final = "alike"
JSON: Final = "json"
BASE64: Final = "base64"

MOST: Final = 20
"""So many are named. The rest is still in the arguments."""
MOST_PACKED = 5
"""How often what was unpacked is unpacked again."""
# A shorter run of these characters is a word, or an id that unpacks to something by chance.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_URL_SAFE = str.maketrans("-_", "+/")
_WORD = re.compile(r"[^\W_]+")
_LATIN = re.compile(r"[A-Za-z]")
_ALPHABETS = ((0x0370, 0x0400, "Greek"), (0x0400, 0x0530, "Cyrillic"), (0x0530, 0x0590, "Armenian"))
# Letters that most fonts draw like a Latin one, in this case of the letter. Greek α, β, κ, μ and Ω are not among them:
# they look different enough, and stand next to Latin letters in units and in the names of substances.
_CYRILLIC = "аеорсухіјѕԁԛԝһӏАВЕКМНОРСТУХІЈЅԌԚԜ"
_GREEK = "ονριυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
_ALIKE = frozenset(f"{_CYRILLIC}{_GREEK}օսհոց")
# Plain letters and digits in another dress, as in 𝐩𝐚𝐲. Full width is not among them: that is how East Asia writes.
_DRESSED = ((0x1D400, 0x1D800), (0x212A, 0x212B), (0x24B6, 0x24EA), (0x1F130, 0x1F18A))


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


def disguises(arguments: Any) -> list[Disguise]:
    """The texts in a JSON value that are not what they look like, also within what has to be unpacked first."""
    return list(islice(_of(arguments, (), 0), MOST))


def deceiving(arguments: Mapping[str, Any]) -> list[str]:
    """The names of the arguments with a text that deceives the eye. What is only packed, a tool may well need so."""
    return list(dict.fromkeys(each.path[0] for each in disguises(arguments) if each.kind in (HIDDEN, ALIKE)))


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
    """Words with letters of another alphabet than they seem to have.

    A word in which Latin letters stand next to such letters; and, in a text without any other letter of their alphabet,
    a word of such letters only, as long as there are Latin letters or digits that it pretends to belong to.
    """
    has_plain = bool(_LATIN.search(text)) or any(map(str.isdigit, text))
    pretends = has_plain and all(char in _ALIKE for char in text if char.isalpha() and _alphabet(char))
    for word in dict.fromkeys(_WORD.findall(text)):
        dressed = [char for char in dict.fromkeys(word) if _is_dressed(char)]
        strange = [char for char in dict.fromkeys(word) if char in _ALIKE]
        if dressed or (strange and (pretends or _LATIN.search(word))):
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
        if not isinstance(inner, str) or "\\" in text:  # a text in quotation marks is no disguise
            yield Disguise(JSON, path, text, value=inner)
        yield from _of(inner, path, packed + 1)
        return
    for found in _BASE64.findall(text):
        if said := _as_text(found):
            yield Disguise(BASE64, path, said, value=_as_json(said))
            yield from _of(said, path, packed + 1)


def _as_json(text: str) -> Any:
    """The object, list or text that a text writes as JSON; None if it is none, or empty."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        return parse(text) or None
    except MalformedJSON:
        pass
    try:  # A tool may be less strict, and then nobody knows which of two equal names it takes: both are shown.
        return json.loads(text, object_pairs_hook=_each_of) or None
    except (ValueError, RecursionError):
        return None


def _each_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with every member that was written, equal names numbered."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name if name not in found else f"{name} ({len(found) + 1})"] = value
    return found


def _as_text(packed: str) -> str:
    """What base64 holds, in either alphabet and with its padding or without, if that is readable text."""
    bare = packed.rstrip("=").translate(_URL_SAFE)
    try:
        said = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return said if said.strip() and all(char.isprintable() or char in "\n\r\t" for char in said) else ""
