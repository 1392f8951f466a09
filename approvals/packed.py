"""What texts hold that has to be unpacked: JSON, base64, hex, and codes for letters that need none. Pure."""

import base64
import binascii
import html
import json
import re
from typing import Any, Final
from urllib.parse import unquote

from approvals.digest import MAX_DEPTH, MalformedJSON, parse

JSON: Final = "json"
BASE64: Final = "base64"
HEX: Final = "hex"
CODES: Final = "codes"

# A shorter run of these characters is a word, or an id that unpacks to something by chance.
_RUN = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_LEAST = 16
_URL_SAFE = str.maketrans("-_", "+/")
# Digits alone are a number, though letters may have such codes.
_HEX = re.compile("(?:0[xX])?(?=[0-9]*[A-Fa-f])((?:[0-9A-Fa-f]{2})+)")
_READABLE = 0.9
# Codes of plain letters and digits, which need none.
_PLAIN = "(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])"
_PLAIN_DECIMAL = r"(?:4[89]|5[0-7]|6[5-9]|[78]\d|90|9[789]|1[01]\d|12[012])"
# After a digit, the sign says how many in a hundred, unless other codes stand next to it.
_PERCENT = re.compile(rf"(?<!\d)%{_PLAIN}|(?<=%[0-9A-Fa-f]{{2}})%{_PLAIN}")
_ADDRESS = re.compile("[/=?@]")
# In a path, `\x64` is a folder.
_BACKSLASH = re.compile(rf"\\(?:u00{_PLAIN}|x{_PLAIN}(?!\\(?![ux])))")
_ANY_BACKSLASH = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")
# Of a sensible length: a number of thousands of digits cannot be read.
_ANY_REFERENCE = re.compile(r"&(?:#(?:0*\d{1,7}|[xX]0*[0-9A-Fa-f]{1,6})(?![0-9A-Fa-f])|[A-Za-z]{2,32});?")
_REFERENCE = re.compile(rf"&#(?:0*{_PLAIN_DECIMAL}(?!\d)|[xX]0*{_PLAIN}(?![0-9A-Fa-f]))")


def as_json(text: str) -> Any:
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


def is_plain(inner: Any, text: str) -> bool:
    """Whether JSON says no more than it shows: a text in quotation marks without codes, or numbers in brackets."""
    if isinstance(inner, str):
        return "\\u" not in text
    return isinstance(inner, list) and all(isinstance(each, int | float) for each in inner)


def without_codes(text: str) -> str:
    """The text as a program reads it that knows such codes, if any of them stands for a plain letter or digit.

    `%61` as in addresses, `\\u0061` and `\\x61` as in programs, `&#97;` as in web pages. Otherwise the text as it is:
    `%20` and `&amp;` have to be written so.
    """
    said = "".join(map(_without_percent, re.split(r"(\s+)", text))) if "%" in text else text
    if _BACKSLASH.search(said):
        said = _ANY_BACKSLASH.sub(lambda code: chr(int(code[1] or code[2], 16)), said)
        said = said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two halves are one character
    return _ANY_REFERENCE.sub(lambda code: html.unescape(code[0]), said) if _REFERENCE.search(said) else said


def _without_percent(word: str) -> str:
    """In an address, or where there are several: `50%40` alone may be anything."""
    codes = _PERCENT.findall(word)
    return unquote(word) if len(codes) > 1 or (codes and _ADDRESS.search(word)) else word


def runs(text: str) -> list[tuple[str, str]]:
    """What the runs of base64 or hex in a text hold, if that is readable: HEX or BASE64, and what it says.

    In a path or after a prefix, what stands between the separators is looked at.
    """
    found: list[tuple[str, str]] = []
    for run in _RUN.findall(text):
        parts = [part for part in re.split("[/_-]", run) if len(part) >= _LEAST]
        found += _held(run) or [held for part in parts if part != run for held in _held(part)]
    return found


def _held(run: str) -> list[tuple[str, str]]:
    written = _HEX.fullmatch(run)
    if written and (said := _readable(bytes.fromhex(written[1]))):
        return [(HEX, said)]
    bare = run.rstrip("=").translate(_URL_SAFE)
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return []
    return [(BASE64, said)] if (said := _readable(raw)) else []


def _readable(raw: bytes) -> str:
    """The text in these bytes; empty if it is not readable.

    UTF-8, UTF-16 as in PowerShell's commands, or nearly all of it printable: one stray byte must not hide the rest.
    """
    is_utf_16 = len(raw) % 2 == 0 and raw[1::2].count(0) >= _READABLE * len(raw) / 2 and 0 not in raw[::2]
    said = raw.decode("utf-16-le" if is_utf_16 else "utf-8", errors="replace")
    if not said.strip():
        return ""
    whole = "\ufffd" not in said and all(char.isprintable() or char in "\n\r\t" for char in said)
    plain = sum(32 <= byte < 127 or byte in b"\n\r\t" for byte in raw)
    return said if whole or plain >= _READABLE * len(raw) else ""
