"""All the ways to write one value, and texts in normalised form, so that one is found in the other. Pure.

What hides a value from the eye does not hide it from a search: zero-width characters, look-alike letters of other
alphabets, reversed text, entities, and JSON inside JSON are read as a model reads them.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

MAX_NESTED = 3
MIN_TEXT = 4
MIN_COMPACT = 8
SHORT_WORD = 8
LONG_TEXT = 200

_NO_WIDTH = dict.fromkeys(
    code
    for first, last in (
        (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
        (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0), (0xE0000, 0xE007F),
    )
    for code in range(first, last + 1)
)  # fmt: skip
# Lower-case Cyrillic and Greek letters, each with the Latin letter that it or its capital looks like.
_LOOKS_LIKE = str.maketrans("авекмнорстухіјѕԁԛԝαβεζηικμνορτυχ", "abekmhopctyxijsdqwabezhikmnoptyx")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TURNED = re.compile("[\u202e\u2067]([^\u202c\u2069\n]*)")
_SEPARATORS = str.maketrans("", "", " \t-./'_()")
_CURRENCY = ("$", "€", "£", "¥", "usd", "eur", "gbp", "chf")
_NUMBER = re.compile(r"[-+]?\d[\d.,' ]*")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[t ].*)?")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip


def lines_of(value: Any) -> list[str]:
    """Every text and number in a JSON value, including names, each on its own line, and how a reader decodes it."""
    found: list[str] = []
    _gather(value, found, 0)
    return found


def _gather(value: Any, found: list[str], depth: int) -> None:
    if isinstance(value, str):
        found.append(value)
        if "&" in value or "%" in value or value[:1] in '{["' or value[:1].isspace() or not value.isascii():
            for other in _read_otherwise(value, depth):
                found.append(other)
    elif isinstance(value, dict):
        found.extend(value)
        for item in value.values():
            _gather(item, found, depth)
    elif isinstance(value, list):
        for item in value:
            _gather(item, found, depth)
    elif value is not True and value is not False and value is not None:
        found.append(str(value) if isinstance(value, int) else _digits(Decimal(str(value))))


def _read_otherwise(text: str, depth: int) -> Iterator[str]:
    if "&" in text and (plain := html.unescape(text)) != text:
        yield plain
    if "%" in text and (plain := unquote(text)) != text:
        yield plain
    if not text.isascii():
        yield from (turned[::-1] for turned in _TURNED.findall(text) if turned)
    if depth < MAX_NESTED and text.lstrip()[:1] in ("{", "[", '"'):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            return
        lines: list[str] = []
        _gather(inner, lines, depth + 1)
        yield from lines


def folded(text: str) -> str:
    """A text without superficial differences: case, spaces, zero-width characters, look-alike letters."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_NO_WIDTH)).casefold().translate(_LOOKS_LIKE)
    return " ".join(text.casefold().split())


def folded_lines(lines: Iterable[str]) -> str:
    """Lines folded all at once, each still on its own line."""
    text = "\n".join([line.replace("\n", " ") if "\n" in line else line for line in lines])
    if not text.isascii() or "\x1b" in text:
        return "\n".join(folded(line) for line in text.split("\n"))
    for space in "\t\r\f\v":
        if space in text:
            text = text.replace(space, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.casefold()


def compact(text: str) -> str:
    """A folded text without the separators in a number or an identifier. Lines stay lines."""
    return text.translate(_SEPARATORS)


def is_identifier(text: str) -> bool:
    """Whether a folded text is an identifier such as an account number: it has digits, and is not a sentence."""
    bare = compact(text)
    return len(bare) >= MIN_COMPACT and any(c.isdigit() for c in bare) and bare.isalnum() and len(text) <= 64


def is_marked(value: Any) -> bool:
    """Whether a value is so distinctive that it would rarely occur in a text by chance."""
    if isinstance(value, bool) or value is None or value in ("", [], {}):
        return False
    if isinstance(value, int | float):
        return sum(c.isdigit() for c in _digits(Decimal(str(value)))) >= 2
    text = folded(str(value))
    if text.isdigit():
        return len(text) >= 2
    short = text.isalpha() and value == value.lower() and len(text) < SHORT_WORD
    return len(text) >= MIN_TEXT and not short


def number_in(value: Any) -> Decimal | None:
    """The number that a value is, or that its text represents, in any notation: 1,250.00 or 1.250,00."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    text = folded(str(value)).strip("$€£¥ ")
    if not isinstance(value, str) or not _NUMBER.fullmatch(text) or len(text) > 24:
        return None
    bare = text.replace(" ", "").replace("'", "")
    marks = {mark for mark in ".," if mark in bare}
    point = max(bare.rfind("."), bare.rfind(","))
    # In 1,250 the mark separates thousands; the last mark of 1,25 and 1.250,00 is a decimal mark.
    grouped = len(marks) == 1 and (len(bare) - point - 1 == 3 or bare.count(bare[point]) > 1)
    if marks and not grouped:
        bare = re.sub(r"[.,]", "", bare[:point]) + "." + bare[point + 1 :]
    else:
        bare = re.sub(r"[.,]", "", bare)
    try:
        return Decimal(bare)
    except InvalidOperation:
        return None


def spellings_of_number(number: Decimal) -> list[str]:
    """The ways in which people write a number, the plainest first."""
    whole, _, part = _digits(abs(number)).partition(".")
    groups = f"{int(whole):,}" if len(whole) > 3 else whole
    wholes = list(dict.fromkeys([whole, groups, *(groups.replace(",", mark) for mark in (".", " ", "'"))]))
    parts = list(dict.fromkeys([part, part.ljust(2, "0")])) if part else ["", "0", "00"]
    found = []
    for written in wholes:
        for decimals in parts:
            if not decimals:
                found.append(written)
                continue
            found += [written + mark + decimals for mark in ".," if mark not in written]
    return found


def spellings_of_date(text: str) -> list[str]:
    """The ways in which people write a date; none if the folded text is not a date."""
    found = _DATE.fullmatch(text)
    if found is None:
        return []
    try:
        day = date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return []
    month = _MONTHS[day.month - 1]
    y, m, d = day.year, day.month, day.day
    return [
        day.isoformat(), f"{d:02}.{m:02}.{y}", f"{d}.{m}.{y}", f"{d:02}/{m:02}/{y}", f"{m:02}/{d:02}/{y}",
        f"{m}/{d}/{y}", f"{d}/{m}/{y}", f"{d} {month} {y}", f"{month} {d}, {y}", f"{d} {month[:3]} {y}",
        f"{month[:3]} {d}, {y}", f"{y}/{m:02}/{d:02}",
    ]  # fmt: skip


def occurrences(text: str, wanted: str, begin: int = 0) -> Iterator[int]:
    """Where a folded text contains another as whole words. A long one is never part of a word by chance."""
    at = text.find(wanted, begin)
    while at >= 0:
        end = at + len(wanted)
        joined = at and text[at - 1].isalnum() and wanted[0].isalnum()
        joined = joined or (end < len(text) and text[end].isalnum() and wanted[-1].isalnum())
        if not joined or len(wanted) > LONG_TEXT:
            yield at
        at = text.find(wanted, at + 1)


def occurrences_of_number(text: str, wanted: str, begin: int = 0) -> Iterator[int]:
    """Where a text contains this number, not as part of a longer one. A small one: only as an amount, or alone."""
    small = len(wanted) < 3
    at = text.find(wanted, begin)
    while at >= 0:
        end = at + len(wanted)
        before, after = text[max(0, at - 4) : at], text[end : end + 4]
        money = before.rstrip().endswith(_CURRENCY) or after.lstrip().startswith(_CURRENCY)
        alone = before[-1:] in ("", "\n") and after[:1] in ("", "\n")
        longer = before[-1:].isdigit() or (before[-1:] in (*".,'",) and before[-2:-1].isdigit())
        longer = longer or after[:1].isdigit() or (after[:1] in (*".,'",) and after[1:2].isdigit())
        within_word = (before[-1:].isalpha() or after[:1].isalpha()) and not money
        if not longer and not within_word and (money or alone or not small):
            yield at
        at = text.find(wanted, at + 1)


def _digits(number: Decimal) -> str:
    """A number in plain digits, without zeros at the end of its fraction."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
