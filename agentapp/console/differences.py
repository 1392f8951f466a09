"""Two texts of arguments compared line by line, secrets masked."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from approvals.digest import parse
from approvals.masking import masked

# The real minus, as wide as a plus.
MINUS = "\u2212"


@dataclass(frozen=True)
class Line:
    """One line of a comparison. `sign` is a space, a minus or a plus."""

    sign: str
    text: str

    @property
    def kind(self) -> str:
        return {MINUS: "del", "+": "add"}.get(self.sign, "")


def pretty(text: str, secret: Sequence[str] = ()) -> str:
    """Arguments as people read them, one value a line."""
    return json.dumps(masked(parse(text), secret), ensure_ascii=False, indent=2)


def differences(before: str, after: str, secret: Sequence[str] = ()) -> list[Line]:
    """What one text of arguments has and another has not, with everything they share."""
    signs = {"-": MINUS, "+": "+", " ": " "}
    compared = difflib.ndiff(pretty(before, secret).splitlines(), pretty(after, secret).splitlines())
    return [Line(signs[line[0]], line[2:]) for line in compared if line[0] in signs]
