"""Known values taken out of free text, however they are spelled there: other capitals, escapes of JSON, HTML and
addresses, other white space.

One expression for all of them, made for one text: of the values only those whose letters stand in it take part. They
are told apart by their first letters, so that what it takes to look hardly grows with how many are known.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container
from urllib.parse import quote

from approvals.detectors import MASK

# A shorter value stands in many a word by chance, and blotting it out would only show where it stands.
MIN_BLOTTED_CHARS = 4
_HEAD = 4
_PLAIN = re.compile(r"[a-z0-9]+")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;|&#34;", "'": "&#x27;|&#39;"}
_QUOTED = "\"'<>&/"
# Nothing here can be read in two ways that differ in length alone: what was taken is not given back.
_SPACE = r"(?:(?:\s|\\{1,4}+[nrt]|%20|%0a|%09|<br>){1,8}+|\+)"
_BACKSLASHES = r"(?:(?:\\|%5c){1,64}+)"
_PARTS = re.compile(r"\s+|\\+|.", re.DOTALL)


def blotting(values: Collection[str], text: str) -> Callable[[str], str]:
    """What replaces every mention of these values in a text, and in parts of it."""
    low = lowered(text)
    grams = {low[at : at + _HEAD] for at in range(len(low) - _HEAD + 1)} if values else set()
    present = [value for value in {lowered(each.strip()) for each in values} if _may_stand_in(value, low, grams)]
    if not present:
        return lambda part: part
    wanted = re.compile(_any_of(present))

    def blot(part: str) -> str:
        kept, at = [], 0
        for found in wanted.finditer(lowered(part)):
            kept += [part[at : found.start()], MASK]
            at = found.end()
        return "".join([*kept, part[at:]]) if kept else part

    return blot


def lowered(text: str) -> str:
    """The text in small letters, each where it stood."""
    low = text.lower()
    if len(low) != len(text):
        low = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
    return low.replace("\u03c2", "\u03c3")


def _may_stand_in(value: str, low: str, grams: Container[str]) -> bool:
    """Whether the longest plain word of the value may be in a text of these letters."""
    if len(value) < MIN_BLOTTED_CHARS or not value.strip("•"):
        return False
    plain = max(_PLAIN.findall(value), key=len, default="")
    if len(plain) < _HEAD:
        return plain in low
    return all(plain[at : at + _HEAD] in grams for at in range(len(plain) - _HEAD + 1))


def _any_of(values: Collection[str]) -> str:
    """The longest first, so that of a longer value no part stays."""
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
    """One letter, or white space, in each way that it may be written."""
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
