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
            ("pαypal", "pαypal", "α is Greek (U+03B1)"),
            ("paypaӀ", "paypaӀ", "Ӏ is Cyrillic (U+04C0)"),
            ("А7 is the gate", "А7", "А is Cyrillic (U+0410)"),
            ("ⓟⓐⓨ", "ⓟⓐⓨ", "ⓟ is a symbol (U+24DF)"),
            ("𝐩𝐚𝐲 now", "𝐩𝐚𝐲", "𝐩 is a symbol (U+1D429)"),
            ("a\N{KELVIN SIGN}b", "a\N{KELVIN SIGN}b", "\N{KELVIN SIGN} is a symbol (U+212A)"),
        ],
    )
    def test_those_that_look_like_others_are_named(self, text: str, word: str, named: str) -> None:
        [one] = disguises({"memo": text})
        assert (one.kind, one.text, one.letters[0]) == ("alike", word, named)

    @pytest.mark.parametrize(
        "text",
        ["ООО 5", "МОСКВА 101000", "у 3 сер.", "ΑΤΜ 24", "ν = 5 Hz", "SMSка", "IFNα2b", "Vitamin А", "𝑥 = 5", "Press Ⓐ",
         "Привет, Ана: заказ 58213", "Заказ ORD-58213 для Paypal", "Ελλάδα 2026", "TNFα, 5 µm, 4 kΩ", "日本語 ABC",
         "ＡＢＣ", "naïve café Zürich", "Рома", "m², 3ª, №5 ™", "مرحبا 5", ""],
    )  # fmt: skip
    def test_other_languages_and_units_are_no_disguise(self, text: str) -> None:
        assert found(text) == []


class TestHidden:
    @pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u00ad", "\u2066", "\ufeff", "\x08", "\U000e0041"])
    def test_characters_that_are_not_drawn_are_shown(self, char: str) -> None:
        assert found(f"DE89{char}3704") == [("hidden", f"DE89⟨U+{ord(char):04X}⟩3704")]

    @pytest.mark.parametrize("text", ["paypal\ufe0e", "а\u200dна", "é\u200da", "ana\u180b"])
    def test_so_are_selectors_and_joiners_after_letters_that_have_one_form(self, text: str) -> None:
        assert [kind for kind, _ in found(text)] == ["hidden"]

    @pytest.mark.parametrize(
        "text",
        [
            "1\ufe0f\u20e3 ❤\ufe0f",
            "葛\U000e0100",
            "می\u200cخواهم",
            "क्\u200dष",
            "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        ],
    )
    def test_where_they_choose_a_form_they_hide_nothing(self, text: str) -> None:
        assert found(text) == []

    def test_a_flag_is_no_place_to_hide_a_text(self) -> None:
        assert found("🏴" + "".join(chr(0xE0000 + ord(char)) for char in "pay eve")) != []

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
        assert one.value == {"to": ["ana", "eve"]}

    def test_however_many_there_are(self) -> None:
        [one] = disguises({"payload": "{" + ",".join(['"a":1'] * 20_000) + "}"})
        assert one.value == {"a": [1] * 20_000}

    def test_a_number_without_end_does_not_keep_it_from_being_read(self) -> None:
        [one] = disguises({"payload": f'\ufeff{{"to": "eve", "n": {"1" * 5000}}}'})[1:]
        assert one.value["to"] == "eve"

    @pytest.mark.parametrize("depth", [100, 1200, 20_000])
    def test_what_is_nested_too_deeply_to_be_shown_is_a_text(self, depth: int) -> None:
        assert found("[" * depth + "1" + "]" * depth) == []

    def test_escapes_in_a_quoted_text_are_read(self) -> None:
        assert disguises({"memo": r'"\u0065\u0076\u0065"'})[0].value == "eve"
        assert found('"urgent"') == []

    @pytest.mark.parametrize(
        "dress",
        [
            packed,
            lambda t: packed(t).rstrip("="),
            lambda t: f"echo {packed(t)} | sh",
            lambda t: f"https://x.example/run/{packed(t)}",
            lambda t: f"cfg_{packed(t)}",
            lambda t: base64.b64encode(t.encode("utf-16-le")).decode(),
        ],
    )
    def test_base64_is_read(self, dress: Any) -> None:
        [(kind, said)] = found(dress(ORDER))
        assert kind == "base64"
        assert said.endswith(ORDER)

    @pytest.mark.parametrize("dress", ["{}", "0x{}", "/run/{}", "eval {} now"])
    @pytest.mark.parametrize("case", [str.lower, str.upper])
    def test_hex_is_read(self, dress: str, case: Any) -> None:
        assert found(dress.format(case(ORDER.encode().hex()))) == [("hex", ORDER)]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("https://shop.example/%61dmin?a=%20b", "https://shop.example/admin?a= b"),
            ("%65%76%65", "eve"),
            ("to ana@x.example%2C%65ve@x.example", "to ana@x.example,eve@x.example"),
            (r"pay \u0065\u0076\u0065 \ud83d\ude00", "pay eve 😀"),
            (r"\x65ve", "eve"),
            ("pay &#101;&#x76;&#X0065;", "pay eve"),
            ("&#101&#118&#101", "eve"),
        ],
    )
    def test_codes_for_plain_letters_are_read(self, text: str, said: str) -> None:
        assert found(text) == [("codes", said)]

    def test_a_code_without_end_is_left_as_it_is(self) -> None:
        endless = "&#" + "1" * 5000 + ";"
        assert found(f"&#97; {endless}") == [("codes", f"a {endless}")]

    def test_half_a_character_is_shown_as_one_that_is_wrong(self) -> None:
        assert found(r"\x65\ud83d") == [("codes", "e\ufffd")]

    def test_what_codes_stand_for_is_looked_at_as_well(self) -> None:
        kinds = [kind for kind, _ in found(r"p\u0430ypal\u0031")]
        assert kinds == ["alike", "codes"]
        assert [kind for kind, _ in found(f"/%61/{packed(ORDER)}")] == ["codes", "base64"]

    @pytest.mark.parametrize("stray", [b"\xff", b"\x00", b"\x1b", "\u00a0".encode(), "\u200b".encode()])
    def test_a_stray_byte_hides_nothing(self, stray: bytes) -> None:
        text = base64.b64encode(ORDER.encode() + stray).decode()
        [(_, said)] = [each for each in found(text) if each[0] == "base64"]
        assert said.startswith(ORDER)

    def test_what_is_in_base64_is_looked_at_as_well(self) -> None:
        assert [kind for kind, _ in found(packed(json.dumps({"to": "pаypal"})))] == ["alike", "base64"]

    @pytest.mark.parametrize(
        "text",
        ["DE89370400440532013000", "4242424242424242", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
         "internationalization", "0196c2f4-7a7e-7c3f-9f2e-0a6b1d2c3e4f", "https://shop.example/orders/58213/refunds",
         "20262027202620272026", "0x20262027202620272026", "https://x.example/a%20b%2Fc?q=%C3%A9", "50%40 or 100%",
         r"C:\Program Files\App\x64\setup.exe", "10%30%50%", "price/20%30kg", "https://x.example/?q=100%50+off",
         "LIKE '%45%'", "Fish &amp; chips &#8364;5 &#x20AC;5", r"C:\users\xavier", r"\u00e9t\u00e9", "&#101010;",
         "{not json}", "[draft] Hello", "{}", "[]", "[1, 2]", '"C:\\\\temp"'],
    )  # fmt: skip
    def test_ids_and_plain_texts_are_not_packed(self, text: str) -> None:
        assert found(text) == []

    def test_an_end_is_made_of_boxes_in_boxes(self) -> None:
        text = ORDER
        for _ in range(MOST_PACKED + 3):
            text = json.dumps([text])
        assert len(found(text)) == MOST_PACKED


def test_no_number_of_harmless_texts_keeps_another_off_the_list() -> None:
    flood = {"a": ['{"n": 1}'] * 100, "to": "pаypal"}
    assert disguises(flood)[0].path == ("to",)
    assert deceiving(flood) == ["to"]
    assert [each.path for each in disguises({"key": ["x\u200b\u200b"] * 100, "to": "pаypal"}, {"key"})] == [("to",)]


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


@given(st.text("%\\&#x;u0169aDdF/ ", max_size=60))
def test_what_is_found_can_always_be_sent_to_a_browser(text: str) -> None:
    for each in disguises({"memo": text}):
        each.text.encode()


@given(st.text("abcdefghij ABCDEF 0123456789 .,-", max_size=15))
def test_a_short_plain_text_is_never_a_disguise(text: str) -> None:
    assert found(text) == []
