"""What is handed out signed comes back as it was, and only for its use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals import signed_texts
from approvals.detectors import clean

VALUES = st.one_of(st.text(max_size=50), st.dictionaries(st.text(max_size=8), st.text(max_size=64), max_size=3))


@given(VALUES)
def test_a_value_comes_back_and_no_mask_covers_its_signature(value: object) -> None:
    signed = signed_texts.sign(value, "here")
    assert signed_texts.read(signed, "here") == value
    assert clean(signed.rpartition(":")[2]) == signed.rpartition(":")[2]
    assert set(signed.rpartition(":")[2]) <= set("0123456789abcdef")


def test_it_is_read_for_its_own_use_alone_and_only_unchanged() -> None:
    signed = signed_texts.sign("0199", "here")
    for text, salt in ((signed, "there"), (f"{signed}0", "here"), (f"x{signed}", "here"), ("", "here"), (":", "here")):
        with pytest.raises(signed_texts.BadSignature):
            signed_texts.read(text, salt)


def test_what_was_signed_with_the_key_before_is_read_while_that_key_counts(settings) -> None:
    signed = signed_texts.sign("0199", "here")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another-key-of-some-length", [settings.SECRET_KEY]
    assert signed_texts.read(signed, "here") == "0199"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(signed_texts.BadSignature):
        signed_texts.read(signed, "here")
