"""Cells of a file for spreadsheets: text from outside stays text."""

# A spreadsheet takes what begins so for a formula, some also the wide forms, and behind the blanks they trim.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula: such a one begins with an apostrophe."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
