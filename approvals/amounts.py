"""Amounts that come as numbers or as texts. "1e30000000" is one too: ten characters, and thirty million digits."""

from decimal import Decimal, InvalidOperation
from typing import Any

# No amount has as many digits before its point, nor begins as far behind it.
MAX_DIGITS = 30


def amount_of(value: Any) -> Decimal | None:
    """The number that a value is, or is the text of. None: it is none, or none that could be written out."""
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() and -MAX_DIGITS < number.adjusted() < MAX_DIGITS else None
