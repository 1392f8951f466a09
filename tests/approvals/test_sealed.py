"""Text as the ledger stores it."""

from hypothesis import given
from hypothesis import strategies as st

from approvals import sealed


@given(st.text(min_size=1), st.text(min_size=1))
def test_words_and_their_salt_open_what_was_said_and_nothing_else_does(text: str, other: str) -> None:
    salt = sealed.new_salt()
    said = sealed.sealed(text, salt)
    assert sealed.opens(text, salt, said)
    assert sealed.opens(other, salt, said) == (other == text)
    assert not sealed.opens(text, sealed.new_salt(), said)


def test_nothing_is_said_of_no_words_and_what_lost_its_salt_cannot_be_found_by_trying() -> None:
    assert sealed.sealed("", sealed.new_salt()) == {}
    assert sealed.sealed("yes", "") != sealed.sealed("yes", "")
