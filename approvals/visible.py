"""Text from outside with hidden characters shown: on pages, and in messages that leave them. No HTML."""

import unicodedata

# Line breaks and tabs are layout. Every other character of these categories is hidden or reorders text.
_LAYOUT = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Letters that draw nothing, and marks that let a text pretend to be another.
_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Joins emoji and is needed by several scripts; invisible but harmless in both.
_ALLOWED = frozenset("\u200d\u200c")
# Stacked endlessly, combining marks paint over neighbouring lines.
_MAX_MARKS = 4


def visible(text: object) -> str:
    """Text from outside with everything hidden in it shown as its code, as in ⟨U+202E⟩."""
    shown: list[str] = []
    previous, marks = "", 0
    for char in str(text).replace("\r\n", "\n"):
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if _is_hidden(char, category, previous) or marks > _MAX_MARKS:
            shown.append(f"⟨U+{ord(char):04X}⟩")
        else:
            shown.append(char)
        previous = char
    return "".join(shown)


def _is_hidden(char: str, category: str, previous: str) -> bool:
    if char in _LAYOUT:
        return False
    if char in _ALLOWED:
        # Only between letters or symbols that it joins. Alone, it hides a difference.
        return not previous or unicodedata.category(previous)[0] not in "LSM" or previous.isascii()
    return char in _HIDDEN or category in _HIDDEN_CATEGORIES
