"""Removes known values from free text, however they are spelled there: other capitals, escapes of JSON, HTML and URLs,
other white space. Where a text was cut off, what is left of a value is removed too.

One regular expression for all values, made for one text: only values whose letters occur in it take part. They are
grouped by their first letters, so the time it takes hardly grows with the number of values.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator
from html import escape
from urllib.parse import quote

from approvals.detectors import MASK

# Shorter values occur in many words by chance, and blotting them out would only show where they are.
MIN_BLOTTED_CHARS = 4
_HEAD = 4
_PLAIN = re.compile(r"[a-z0-9]+")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;|&#34;", "'": "&#x27;|&#39;"}
_QUOTED = "\"'<>&/"
# Nothing here can match in two ways that differ only in length, and what was matched is not given back.
_SPACE = r"(?:(?:\s|\\{1,4}+[nrt]|%20|%0a|%09|<br>){1,8}+|\+)"
_BACKSLASHES = r"(?:(?:\\|%5c){1,64}+)"
# The mark of a cut in text, in JSON and in HTML.
_CUT = re.compile(r"…|\\u2026|&hellip;")
# Keys, digests, moments and names of files, as they are made here. In one of two thousand keys, and in every moment of
# a year, a short value occurs by chance; a link with a mask in it leads nowhere. Numbers filled up with zeros are none.
_MADE_HERE = re.compile(
    r"""
    (?:(?<![0-9a-z])|(?<=%[0-9a-f]{2})|(?<=\\[nrt]))(?:
        (?![0-9a-f-]{0,58}000000)(?:
            [0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}
          | (?=\d{0,31}[a-f])[0-9a-f]{32}(?:[0-9a-f]{32})?
          | [0-9a-f]{12}(?=\.(?:css|js|svg|png|ico|woff2)\b)
        )
      | \d{4}-\d\d-\d\dt\d\d(?::|%3a)\d\d(?:(?::|%3a)\d\d(?:\.\d{1,6})?)?(?:z|(?:[+-]|%2b)\d\d(?::|%3a)?\d\d)?
    )(?![0-9a-z])
    """,
    re.VERBOSE,
)
_BY_CHANCE = 8
_PARTS = re.compile(r"\s+|\\+|.", re.DOTALL)


def blotting(values: Collection[str], text: str, *, spares_made_here: bool = False) -> Callable[[str], str]:
    """A function that replaces every mention of these values in a text, and in parts of it.

    `spares_made_here`: but for short ones inside of keys, digests and moments. Not for secrets: somebody may have put
    one there.
    """
    low = lowered(text)
    grams = {low[at : at + _HEAD] for at in range(len(low) - _HEAD + 1)} if values else set()
    stripped = {lowered(each.strip()) for each in values}
    present = [value for value in stripped if _may_stand_in(value, low, grams)]
    begun = _begun(stripped, low, grams)
    if not present and begun is None:
        return lambda part: part
    wanted = re.compile(_any_of(present)) if present else None

    def blot(part: str) -> str:
        small = lowered(part)
        spans = list(_mentions(wanted, small, spares_made_here)) if wanted is not None else []
        if begun is not None:
            spans = sorted([*spans, *begun.left_by_cuts(small)])
        kept, at = [], 0
        for start, end in spans:
            if start >= at:
                kept += [part[at:start], MASK]
            at = max(at, end)
        return "".join([*kept, part[at:]]) if kept else part

    return blot


def _mentions(wanted: re.Pattern[str], low: str, spares: bool) -> Iterator[tuple[int, int]]:
    """Where values stand in a text; where it spares what is made here, but for short ones inside of that."""
    made_here = (made.span() for made in (_MADE_HERE.finditer(low) if spares else ()))
    beginning = ending = at = 0
    while found := wanted.search(low, at):
        start, at = found.span()
        while ending < at and at - start < _BY_CHANCE:
            beginning, ending = next(made_here, (len(low), len(low)))
        if beginning <= start and at - start < _BY_CHANCE:
            at = start + 1
        else:
            yield start, at


class _Begun:
    """The beginnings of values that may be left where a text was cut: for each its letters, and where the longest
    beginning that also ends there continues (Aho and Corasick). Each letter of a text is thus read once.
    """

    def __init__(self, beginnings: Collection[str]) -> None:
        self._after: dict[tuple[int, str], int] = {}
        self._shorter, self._length = [0], [0]
        under_way = [(each, 0) for each in beginnings]
        read = 0
        # Add all of them letter by letter, so that shorter ones are known first.
        while under_way:
            under_way = [(each, self._added(place, each[read])) for each, place in under_way if len(each) > read]
            read += 1

    def _added(self, place: int, letter: str) -> int:
        there = self._after.get((place, letter))
        if there is None:
            there = len(self._length)
            self._shorter.append(self._next(self._shorter[place], letter) if place else 0)
            self._length.append(self._length[place] + 1)
            self._after[place, letter] = there
        return there

    def _next(self, place: int, letter: str) -> int:
        while (there := self._after.get((place, letter))) is None and place:
            place = self._shorter[place]
        return there or 0

    def left_by_cuts(self, low: str) -> Iterator[tuple[int, int]]:
        """Where a cut has left the beginning of a value; the longest one at each cut."""
        place = read = 0
        for cut in _CUT.finditer(low):
            for letter in low[read : cut.start()]:
                place = self._next(place, letter)
            read = cut.start()
            if (length := self._length[place]) >= _HEAD:
                yield read - length, read


def _begun(values: Collection[str], low: str, grams: Container[str]) -> _Begun | None:
    """What may begin before the cuts of a text with these letters. For each value, no more than could be there."""
    cuts = [cut.start() for cut in _CUT.finditer(low) if cut.start() >= _HEAD]
    before = {low[cut - _HEAD : cut] for cut in cuts}
    found = set()
    for value in values if cuts else ():
        if len(value) < MIN_BLOTTED_CHARS or not value.strip("•"):
            continue
        as_json = json.dumps(value, ensure_ascii=False)[1:-1]
        spellings = {value, as_json, json.dumps(value)[1:-1], escape(value), escape(as_json)}
        if all(each[:_HEAD] not in grams for each in spellings):
            continue
        for spelled in spellings:
            ends = range(min(len(spelled) - 1, cuts[-1]), _HEAD - 1, -1)
            found.add(spelled[: next((end for end in ends if spelled[end - _HEAD : end] in before), 0)])
    found.discard("")
    return _Begun(found) if found else None


def lowered(text: str) -> str:
    """The text in lower case, each letter in its place."""
    low = text.lower()
    if len(low) != len(text):
        low = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
    return low.replace("\u03c2", "\u03c3")


def _may_stand_in(value: str, low: str, grams: Container[str]) -> bool:
    """Whether the longest plain word of the value may occur in a text with these letters."""
    if len(value) < MIN_BLOTTED_CHARS or not value.strip("•"):
        return False
    plain = max(_PLAIN.findall(value), key=len, default="")
    if len(plain) < _HEAD:
        return plain in low
    return all(plain[at : at + _HEAD] in grams for at in range(len(plain) - _HEAD + 1))


def _any_of(values: Collection[str]) -> str:
    """Longest first, so that no part of a longer value is left."""
    heads: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for value in sorted(values, key=lambda each: (-len(each), each)):
        found = _PLAIN.match(value)
        head = found[0][:_HEAD] if found else ""
        heads[head[:1]][head[1:]].append("".join(_spelled(part) for part in _PARTS.findall(value[len(head) :])))
    # A shorter head may begin a longer one, so the long ones come first.
    firsts = (
        f"{first}(?:{'|'.join(f'{rest}(?:{"|".join(tails)})' for rest, tails in sorted(rests.items(), reverse=True))})"
        for first, rests in sorted(heads.items(), reverse=True)
    )
    return "|".join(firsts)


def _spelled(part: str) -> str:
    """One letter, or white space, in every way it may be written."""
    if part.isspace():
        return _SPACE
    if part.isascii() and part.isalnum():
        return part
    if part.startswith("\\"):
        return _BACKSLASHES
    ways = [*_HTML.get(part, "").split("|"), re.escape(part)]
    if part in _QUOTED:
        ways = [rf"\\{{0,7}}+{way}" for way in ways if way]
    for letter in (part, part.upper()):
        ways.append(quote(letter, safe="", errors="replace").lower())
        if part in _QUOTED or not part.isascii():
            units = letter.encode("utf-16-be", "surrogatepass")
            ways.append("".join(rf"\\{{0,4}}+u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)))
    return f"(?:{'|'.join(dict.fromkeys(filter(None, ways)))})"
