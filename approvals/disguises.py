# ruff: noqa: RUF001, RUF003 - letters that look like others are what this is about
"""Texts in a call's arguments that are not what they look like, and what they say. Pure; no HTML.

What is approved is what the tool gets, and a text can say something else to a tool than to an eye: with characters that
are not drawn, with letters of another alphabet, or packed so that only the tool reads it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.digest import MAX_DEPTH
from approvals.packed import CODES, JSON, as_json, is_plain, runs, without_codes
from approvals.visible import visible

HIDDEN: Final = "hidden"
ALIKE: Final = "alike"

MOST: Final = 20
"""So many of what deceives the eye, and as many of what is packed, are named. The rest is still in the arguments."""
MOST_PACKED = 5
"""How often what was unpacked is unpacked again."""
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
    """JSON written as text, codes for plain letters, and base64 or hex that holds text; then what is in them."""
    inner = as_json(text)
    if inner is not None:
        if not is_plain(inner, text):
            yield Disguise(JSON, path, text, value=inner)
        yield from _of(inner, path, packed + 1)
        return
    if (plain := without_codes(text)) != text:
        yield from _said(CODES, plain, path, packed)
        return
    for kind, said in runs(text):
        yield from _said(kind, said, path, packed)


def _said(kind: str, said: str, path: tuple[str, ...], packed: int) -> Iterator[Disguise]:
    value = as_json(said)
    yield Disguise(kind, path, said, value=value)
    yield from _of(said if value is None else value, path, packed + 1)
