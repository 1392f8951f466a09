"""Values as the text a field shows, and text as the value a schema wants. No locale, no guessing."""

import json
import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

from approvals.digest import MAX_EXACT

CURRENCY = {"USD": "$", "EUR": "€", "GBP": "£"}
_BLANKS = re.compile(r"[\s\u00a0\u202f'\u2019_]")
_GROUPED = re.compile(r"[+-]?\d{1,3}([.,])\d{3}(?:\1\d{3})*(?:(?!\1)[.,]\d+)?")
_AMOUNT = re.compile(r"(-?)(0|[1-9]\d{0,29})((?:\.\d+)?)", re.ASCII)
_READERS = {"date": date.fromisoformat, "time": time.fromisoformat, "date-time": datetime.fromisoformat}
_INLINE = 80
_MOST_ZEROS = 400
_COUNTS = ("", "one decimal", "two decimals", "three decimals", "four decimals")


class Unreadable(ValueError):
    """What was typed is not a value of the wanted type. The message says what to type instead."""


def shown(value: Any) -> str:
    """A scalar as an input shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def cents(text: str) -> str:
    """An amount with two decimals, unless it has more or is not an amount."""
    whole, point, rest = text.partition(".")
    return f"{whole}.{rest:0<2}" if (point or whole) and whole.lstrip("-").isdigit() and len(rest) <= 2 else text


def grouped(text: str) -> str:
    """An amount with its thousands separated, for reading only. Anything else stays as it is."""
    found = _AMOUNT.fullmatch(text)
    return f"{found[1]}{int(found[2]):,}{found[3]}" if found else text


def inline(value: Any) -> str:
    """Any value in one short line, for reading only."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    text = value if isinstance(value, str) else shown(value)
    return text if len(text) <= _INLINE else text[: _INLINE - 1] + "…"


def lines(text: str) -> str:
    """The same line breaks everywhere: browsers post CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def to_minute(text: str) -> str:
    """A time without its seconds if they are zero, as browsers write it: 14:30 for 14:30:00."""
    return text.removesuffix(":00") if text.count(":") == 2 else text


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1."""
    return type(one) is type(other) and bool(one == other)


def suits(input_type: str, value: str) -> bool:
    """Whether a browser's own picker can show this value."""
    if input_type in ("date", "time"):
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d" if input_type == "date" else r"\d\d:\d\d(:\d\d)?", value))
    return "\n" not in value


def read(text: str, described: dict[str, Any]) -> Any:
    """A text as the scalar that a schema wants. Raises Unreadable."""
    match described.get("type"):
        case "integer":
            number = decimal(text)
            if number != number.to_integral_value():
                raise Unreadable("Enter a whole number.")
            return int(number)
        case "number":
            number = _in_steps(decimal(text), described)
            return int(number) if number == number.to_integral_value() else float(number)
    form = str(described.get("format", ""))
    if form == "money":
        return format(_in_steps(decimal(text), described), "f")
    if form in _READERS:
        return _moment(text.strip(), form)
    return text


def decimal(text: str) -> Decimal:
    """A number however people write it, unless it could be two. Raises Unreadable.

    184.50, 184,50, 1,234.50, 1.234,50, 1 234,50 and 1'234.50 are read; 1,234 could be either.
    """
    typed = _BLANKS.sub("", text)
    marks = [char for char in typed if char in ".,"]
    if len(marks) == 1 and marks[0] == "," and _GROUPED.fullmatch(typed):
        whole, point = typed.replace(",", ""), typed.replace(",", ".")
        raise Unreadable(f"{typed} can be read as {whole} and as {point}. Enter the one you mean.")
    if len(set(marks)) == 2 or len(marks) > 1:
        if not _GROUPED.fullmatch(typed):
            raise Unreadable("Enter a number, like 184.50.")
        group = marks[0]
        typed = typed.replace(group, "")
    typed = typed.replace(",", ".")
    try:
        number = Decimal(typed)
    except InvalidOperation as error:
        raise Unreadable("Enter a number, like 184.50.") from error
    # No schema needs a number so small, and written out it could be too long.
    if not number.is_finite() or len(number.as_tuple().digits) > 30 or number.adjusted() < -_MOST_ZEROS:
        raise Unreadable("Enter a number, like 184.50.")
    if abs(number) > MAX_EXACT:
        raise Unreadable("This number is too large to be exact.")
    return number


def _in_steps(number: Decimal, described: dict[str, Any]) -> Decimal:
    """The number, if it is a multiple of the schema's step. Raises Unreadable."""
    given = described.get("multipleOf")
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        return number
    step = Decimal(repr(given)).normalize()
    with localcontext(prec=60):
        if number % step == 0:
            return number
    decimals = -int(step.as_tuple().exponent)
    if step == 1:
        raise Unreadable("Enter a whole number.")
    if 0 < decimals < len(_COUNTS) and step == Decimal(1).scaleb(-decimals):
        raise Unreadable(f"At most {_COUNTS[decimals]}.")
    raise Unreadable(f"Enter a multiple of {shown(given)}.")


def _moment(text: str, form: str) -> str:
    examples = {"date": "2026-11-20", "time": "14:30", "date-time": "2026-11-20T14:30:00Z"}
    try:
        _READERS[form](text)
    except ValueError as error:
        raise Unreadable(f"Enter it like {examples[form]}.") from error
    return text
