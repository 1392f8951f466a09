"""Amounts given as numbers or as text. "1e30000000" is one too: ten characters, and thirty million digits."""

from decimal import Decimal, InvalidOperation
from typing import Any

# No real amount has this many digits before the point, or begins this far behind it.
MAX_DIGITS = 30


def amount_of(value: Any) -> Decimal | None:
    """The number that a value is, or that its text names. None: it is not a number, or one that could not be written
    out.
    """
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() and -MAX_DIGITS < number.adjusted() < MAX_DIGITS else None
