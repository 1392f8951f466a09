"""Texts that say something else to a tool than to an eye are found, and harmless ones are left alone."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.disguises import MOST, MOST_PACKED, deceiving, disguises

ORDER = "rm -rf / --no-preserve-root"
JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def found(value: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in disguises({"memo": value})]


class TestLetters:
    @pytest.mark.parametrize(
        ("text", "word", "named"),
        [
            ("Pay pаypal", "pаypal", "а is Cyrillic (U+0430)"),
            ("dana@ехample.com", "ехample", "е is Cyrillic (U+0435)"),
            ("ВЕ71 0961 2345", "ВЕ71", "В is Cyrillic (U+0412)"),
            ("refund to Αna", "Αna", "Α is Greek (U+0391)"),
            ("to сосо today", "сосо", "с is Cyrillic (U+0441)"),
            ("gօօgle", "gօօgle", "օ is Armenian (U+0585)"),
            ("𝐩𝐚𝐲 now", "𝐩𝐚𝐲", "𝐩 is a symbol (U+1D429)"),
            ("a\N{KELVIN SIGN}b", "a\N{KELVIN SIGN}b", "\N{KELVIN SIGN} is a symbol (U+212A)"),
        ],
    )
    def test_those_that_look_like_others_are_named(self, text: str, word: str, named: str) -> None:
        [one] = disguises({"memo": text})
        assert (one.kind, one.text, one.letters[0]) == ("alike", word, named)

    @pytest.mark.parametrize(
        "text",
        ["Привет, Ана: заказ 58213", "Заказ ORD-58213 для Paypal", "Ελλάδα 2026", "TNFα, 5 µm, 4 kΩ", "日本語 ABC",
         "ＡＢＣ", "naïve café Zürich", "Рома", "m², 3ª, №5 ™", "مرحبا 5", ""],
    )  # fmt: skip
    def test_other_languages_and_units_are_no_disguise(self, text: str) -> None:
        assert found(text) == []


class TestHidden:
    @pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u00ad", "\u2066", "\ufeff", "\x08", "\U000e0041"])
    def test_characters_that_are_not_drawn_are_shown(self, char: str) -> None:
        assert found(f"DE89{char}3704") == [("hidden", f"DE89⟨U+{ord(char):04X}⟩3704")]

    def test_so_are_those_in_a_name(self) -> None:
        assert [each.kind for each in disguises({"mem\u200bo": "x"})] == ["hidden"]

    def test_line_breaks_and_joined_emoji_are_not_hidden(self) -> None:
        assert found("Hi Ana,\r\n\tsorry 👩\u200d🚀") == []


class TestPacked:
    def test_json_in_a_text_is_read(self) -> None:
        [one] = disguises({"payload": '{"tool": "wire", "amount": 9000}'})
        assert (one.kind, one.value) == ("json", {"tool": "wire", "amount": 9000})

    def test_json_in_json_in_json_is_read_to_the_innermost(self) -> None:
        inner = json.dumps({"cmd": ORDER})
        values = [each.value for each in disguises({"a": json.dumps({"b": json.dumps({"c": inner})})})]
        assert values[-1] == {"cmd": ORDER}
        assert disguises({"a": json.dumps({"b": inner})})[-1].path == ("a", "b")

    def test_equal_names_are_all_shown_since_nobody_knows_which_counts(self) -> None:
        [one] = disguises({"payload": '{"to": "ana", "to": "eve"}'})
        assert one.value == {"to": "ana", "to (2)": "eve"}

    def test_escapes_in_a_quoted_text_are_read(self) -> None:
        assert disguises({"memo": r'"\u0065\u0076\u0065"'})[0].value == "eve"
        assert found('"urgent"') == []

    @pytest.mark.parametrize("dress", [packed, lambda t: packed(t).rstrip("="), lambda t: f"echo {packed(t)} | sh"])
    def test_base64_is_read(self, dress: Any) -> None:
        assert found(dress(ORDER)) == [("base64", ORDER)]

    def test_what_is_in_base64_is_looked_at_as_well(self) -> None:
        assert [kind for kind, _ in found(packed(json.dumps({"to": "pаypal"})))] == ["base64", "json", "alike"]

    @pytest.mark.parametrize(
        "text",
        ["DE89370400440532013000", "4242424242424242", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
         "internationalization", "0196c2f4-7a7e-7c3f-9f2e-0a6b1d2c3e4f", "https://shop.example/orders/58213/refunds",
         "{not json}", "[draft] Hello", "{}", "[]"],
    )  # fmt: skip
    def test_ids_and_plain_texts_are_not_packed(self, text: str) -> None:
        assert found(text) == []

    def test_an_end_is_made_of_boxes_in_boxes(self) -> None:
        text = ORDER
        for _ in range(MOST_PACKED + 3):
            text = json.dumps([text])
        assert len(found(text)) == MOST_PACKED


def test_only_so_many_are_named() -> None:
    assert len(disguises({str(n): "\u202e" for n in range(100)})) == MOST


def test_what_is_only_packed_does_not_deceive_the_eye() -> None:
    assert deceiving({"payload": '{"a": 1}', "account": "pаypal", "memo": "x\u200b\u200b", "note": "hello"}) == [
        "account",
        "memo",
    ]


@given(JSON_TEXTS)
def test_any_value_can_be_looked_at_also_as_text(value: Any) -> None:
    disguises({"memo": value})
    disguises({"memo": json.dumps(value)})
    disguises({"memo": packed(json.dumps(value))})


@given(st.text("abcdefghij ABCDEF 0123456789 .,-", max_size=15))
def test_a_short_plain_text_is_never_a_disguise(text: str) -> None:
    assert found(text) == []
