"""The closed lists of reasons contain nothing unused."""

import re
from pathlib import Path

import pytest

import agentapp
from agentapp.console import words
from agentapp.reasons import Reason, StopReason

PRODUCT = Path(agentapp.__file__).parent
# These name every reason there is.
LISTS = {PRODUCT / "reasons.py", PRODUCT / "console" / "words.py"}
SOURCE = "\n".join(path.read_text() for path in PRODUCT.rglob("*.py") if path not in LISTS)


@pytest.mark.parametrize("reason", [*Reason, *StopReason], ids=lambda reason: f"{type(reason).__name__}.{reason.name}")
def test_every_reason_is_given_somewhere(reason: Reason | StopReason) -> None:
    assert re.search(rf"\b{type(reason).__name__}\.{reason.name}\b", SOURCE)


def test_every_reason_has_words() -> None:
    assert set(words._REASONS) == set(Reason)
    assert set(words._STOPPED) == set(StopReason)


def test_no_reason_has_words_twice_of_which_the_first_would_be_lost() -> None:
    named = re.findall(r"^ +((?:Stop)?Reason\.\w+):", (PRODUCT / "console" / "words.py").read_text(), re.MULTILINE)
    assert len(named) == len(Reason) + len(StopReason)
