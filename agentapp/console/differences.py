"""Two argument texts compared line by line, with secrets masked."""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from approvals.digest import parse
from approvals.masking import masked, masked_beside

# The real minus sign, as wide as a plus.
MINUS = "\u2212"
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
# Longer texts are compared by line only.
MAX_WORDS = 2000


@dataclass(frozen=True)
class Line:
    """One line of a comparison. `sign` is a space, a minus or a plus."""

    sign: str
    text: str

    @property
    def kind(self) -> str:
        return {MINUS: "del", "+": "add"}.get(self.sign, "")


def pretty(text: str, secret: Sequence[str] = ()) -> str:
    """Arguments for people to read, one value per line."""
    return _pretty(masked(parse(text), secret))


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def differences(before: str, after: str, secret: Sequence[str] = ()) -> list[Line]:
    """Two argument texts compared, including what they share. For a secret, only the fact that it changed."""
    was, now = parse(before), parse(after)
    return of_texts(_pretty(masked(was, secret)), _pretty(masked_beside(now, was, secret)))


def of_texts(before: str, after: str) -> list[Line]:
    """Two plain texts compared line by line, including what they share."""
    signs = {"-": MINUS, "+": "+", " ": " "}
    compared = difflib.ndiff(before.splitlines(), after.splitlines())
    return [Line(signs[line[0]], line[2:]) for line in compared if line[0] in signs]


def changed_words(before: str, after: str) -> list[tuple[str, str]]:
    """Two texts word by word, as (kind, words). Kind: del for removed, ins for inserted, empty for kept."""
    one, two = _WORDS.findall(before), _WORDS.findall(after)
    if len(one) + len(two) > MAX_WORDS:
        return []
    changed: list[tuple[str, str]] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if tag == "equal":
            changed.append(("", "".join(one[a:b])))
        else:
            changed += [("del", "".join(one[a:b])), ("ins", "".join(two[c:d]))]
    return [(kind, words) for kind, words in changed if words]
