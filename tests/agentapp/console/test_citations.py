import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentapp.console.citations import claims_of

EVIDENCE = {
    1: "Ana Pereira writes about order 58213: “The kettle arrived with the glass cracked.”",
    2: '{"paid": 214.5, "delivered": "2026-11-17", "email": "ana@mail.example", "card": "VISA-4417"}',
    3: "Section 3.2: damaged within 30 days, refund in full.",
}


def cites(text: str) -> list[tuple[list[int], bool]]:
    return [([p.cites for p in claim.pieces if p.cites], claim.unsupported) for claim in claims_of(text, EVIDENCE)]


@pytest.mark.parametrize(
    ("sentence", "numbers", "unsupported"),
    [
        ("Ana is sad.", [], False),
        ("She paid $214.50.", [2], False),
        ("She paid 214.50 for order 58213.", [1, 2], False),
        ("She paid 1,214.50.", [], True),
        ("It was delivered on 2026-11-17 [2].", [2], False),
        ("It was delivered on 2026-11-18 [2].", [2], True),
        ("Section 3.2 allows it.", [3], False),
        ("Section 9.9 allows it.", [], True),
        ("It goes to visa-4417.", [2], False),
        ("It goes to visa-4418.", [], True),
        ("Mail ana@mail.example about it.", [2], False),
        ("Mail eve@mail.example about it.", [], True),
        ("She says “the  kettle arrived with the glass cracked”.", [1], False),
        ("She says “I want a new one”.", [], True),
        ("It took 2 of 3 days.", [], False),
        ("As known [7].", [], True),
        ("The customer asked for it [1][3].", [1, 3], False),
    ],
)
def test_a_sentence_is_held_against_the_evidence(sentence: str, numbers: list[int], unsupported: bool) -> None:
    assert cites(sentence) == [(numbers, unsupported)]


def test_each_sentence_is_looked_at_by_itself() -> None:
    text = "Ana paid $214.50. She was promised $300.00!\nSection 3.2 applies"
    assert cites(text) == [([2], False), ([], True), ([3], False)]


def test_a_number_behind_the_full_stop_belongs_to_the_sentence_before_it() -> None:
    assert cites("She paid $214.50. [1] She is sad. [2][3] Really.") == [([1, 2], False), ([2, 3], False), ([], False)]


@pytest.mark.parametrize("filler", ["!", "... ", '"', " ", "[1]", "1,", "a@"])
def test_what_a_long_sentence_takes_grows_as_its_length_does(filler: str) -> None:
    text = (filler * 10_000)[:10_000] + "x"
    began = time.thread_time()
    assert "".join(piece.text or f"[{piece.cites}]" for claim in claims_of(text, {}) for piece in claim.pieces) == text
    assert time.thread_time() - began < 0.5


def test_without_evidence_everything_concrete_is_without_support() -> None:
    [claim] = claims_of("Order 58213 is paid.", {})
    assert claim.unsupported


words = st.text(max_size=60) | st.sampled_from(
    ["[1]", "[2] ", "$214.50. ", "<b>x</b> ", "[999]", "\n", "58213 ", "“a b c”"]
)


@given(st.lists(words, max_size=12).map("".join))
def test_nothing_is_added_to_the_text_and_nothing_lost_but_the_marks_that_became_links(text: str) -> None:
    claims = claims_of(text, EVIDENCE)
    said = "".join(piece.text for claim in claims for piece in claim.pieces)
    assert said == re.sub(r"\[[123]\]", "", text)
    assert {piece.cites for claim in claims for piece in claim.pieces if piece.cites} <= set(EVIDENCE)


@given(st.text(max_size=200), st.dictionaries(st.integers(1, 9), st.text(max_size=200), max_size=3))
def test_what_the_evidence_says_word_for_word_has_support(text: str, evidence: dict[int, str]) -> None:
    said = text.replace("[", "(")
    assert not any(claim.unsupported for claim in claims_of(said, evidence | {10: said}))
