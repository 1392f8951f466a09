"""Cells of a file for spreadsheets: text from outside stays text."""

# Spreadsheets read text that begins like this as a formula; some also full-width forms, and after blanks they trim.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def inert(text: str) -> str:
    """Text that no spreadsheet reads as a formula: an apostrophe is put before text that looks like one."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
