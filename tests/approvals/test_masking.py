"""Secrets are masked wherever they are, and restored where they were."""

import pytest

from approvals.masking import (
    CHANGED_MASK,
    MASK,
    blotted,
    changed_secrets,
    masked,
    masked_beside,
    secret_texts,
    unmasked,
)

CARD = {"card": "4242", "payer": {"card": "5555", "name": "Ana"}, "lines": [{"card": "1"}, {"card": "2"}]}


def test_secrets_are_masked_at_any_depth_in_a_copy():
    shown = masked(CARD, {"card"})
    assert shown == {
        "card": MASK, "payer": {"card": MASK, "name": "Ana"}, "lines": [{"card": MASK}, {"card": MASK}],
    }  # fmt: skip
    assert CARD["card"] == "4242"
    assert masked(["x"], {"x"}) == ["x"]
    assert masked(CARD, ()) == CARD


def test_what_comes_back_masked_is_what_it_was():
    assert unmasked(masked(CARD, {"card"}), CARD, {"card"}) == CARD


@pytest.mark.parametrize(
    ("edited", "kept"),
    [
        ({"card": "new"}, {"card": "new"}),
        ({"card": MASK, "note": MASK}, {"card": "4242", "note": MASK}),
        ({"payer": {"card": MASK, "name": "Bob"}}, {"payer": {"card": "5555", "name": "Bob"}}),
        ({"lines": [{"card": MASK}]}, {"lines": [{"card": MASK}]}),
        ({"other": {"card": MASK}}, {"other": {"card": MASK}}),
    ],
)
def test_only_a_secret_in_its_own_place_is_put_back(edited, kept):
    assert unmasked(edited, CARD, {"card"}) == kept


def test_secrets_are_found_at_any_depth_and_blotted_out_of_free_text():
    lines = [{"card": ["9999", {"pin": 81234}]}, {"card": True}, {"card": None}]
    found = secret_texts({**CARD, "lines": lines}, {"card"})
    assert found == {"4242", "5555", "9999", "81234"}
    assert blotted("4242 pays 81234 and 424200 to Ana", found) == f"{MASK} pays {MASK} and {MASK}00 to Ana"


def test_the_longer_of_two_secrets_leaves_no_part_of_it():
    assert blotted("The word is swordfish.", {"sword", "swordfish"}) == f"The word is {MASK}."


def test_a_value_too_short_to_be_a_secret_leaves_the_words_alone():
    assert blotted("I am in.", {"a", "", "in"}) == "I am in."


def test_a_secret_that_is_not_what_it_was_is_marked_and_named_wherever_it_stands() -> None:
    was = {"pin": 1, "to": {"iban": "DE1", "name": "Ana"}, "all": [{"pin": 1}], "old": {"pin": 2}}
    now = {"pin": 2, "to": {"iban": "DE2", "name": "Ana"}, "all": [{"pin": 3}], "old": {}}
    secret = ("pin", "iban")
    assert changed_secrets(now, was, secret) == [("pin",), ("to", "iban"), ("all",), ("old", "pin")]
    assert changed_secrets(was, was, secret) == []
    assert masked_beside(now, was, secret) == {
        "pin": CHANGED_MASK,
        "to": {"iban": CHANGED_MASK, "name": "Ana"},
        "all": [{"pin": CHANGED_MASK}],
        "old": {},
    }
    assert masked_beside(was, was, secret) == masked(was, secret)
    assert masked_beside(now, {**now, "pin": 9}, secret, same=None) == {**now, "pin": CHANGED_MASK}
