"""Text from outside with hidden characters shown: on pages, and in messages that leave them. No HTML."""

import unicodedata

# Line breaks and tabs are layout. Every other character of these categories is hidden or reorders text.
_LAYOUT = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Letters that draw nothing, and marks that let a text pretend to be another.
_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Joins emoji and is needed by several scripts; invisible but harmless in both.
_ALLOWED = frozenset("\u200d\u200c")
# Which of a character's forms is meant. After a letter that has no forms they only make two equal texts differ.
_SELECTORS = frozenset(map(chr, (*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
# The flags of England, Scotland and Wales are a black flag and up to six of these.
_FLAG, _TAGS, _MOST_TAGS = "\U0001f3f4", frozenset(map(chr, range(0xE0020, 0xE0080))), 6
# Stacked endlessly, combining marks paint over neighbouring lines.
_MAX_MARKS = 4


def visible(text: object) -> str:
    """Text from outside with everything hidden in it shown as its code, as in ⟨U+202E⟩."""
    shown: list[str] = []
    previous, marks, tags = "", 0, 0
    for char in str(text).replace("\r\n", "\n"):
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        tags = _MOST_TAGS if char == _FLAG else tags - 1 if char in _TAGS else 0
        of_flag = char in _TAGS and tags >= 0
        if (_is_hidden(char, category, previous) or marks > _MAX_MARKS) and not of_flag:
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
        return not previous or unicodedata.category(previous)[0] not in "LSM" or _has_case(previous)
    if char in _SELECTORS:
        return not previous or _has_case(previous) or previous in _SELECTORS
    return char in _HIDDEN or category in _HIDDEN_CATEGORIES


def _has_case(char: str) -> bool:
    """Whether a letter is of an alphabet whose letters are never joined and have one form each, as Latin has."""
    return char.islower() or char.isupper()
