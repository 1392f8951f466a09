"""What is recognised by its shape, what must stay, and that nothing takes long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.detectors import MASK, clean, is_card, is_iban, shortened, within, without_personal, without_secrets

KEY = "sk-proj-abcdEFGH1234567890abcdXYZ"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"use {KEY} now", f"use {MASK} now"),
        ("ghp_abcdefghijABCDEFGHIJ0123456789abcd", MASK),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("xoxb-123456789012-abcdefgh", MASK),
        ("Authorization: Bearer abcdefghij1234567890", f"Authorization: Bearer {MASK}"),
        ("https://bob:hunter2@db.example/x", f"https://bob:{MASK}@db.example/x"),
        ("/x?password=hunter22&page=2", f"/x?password={MASK}&page=2"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- b", f"a {MASK} b"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", MASK),
        (f"a\\n{KEY}", f"a\\n{MASK}"),
        ("-----BEGIN PRIVATE KEY-----" * 3 + "ab\n-----END PRIVATE KEY----- c", f"{MASK} c"),
        (f"-----BEGIN PRIVATE KEY-----{'ab/+' * 4000}-----END PRIVATE KEY-----", MASK),
        ("password: hunter2", f"password: {MASK}"),
        ('{"api_key": "abcd1234"}', f'{{"api_key": "{MASK}"}}'),
        ("API_KEY=abcd1234", f"API_KEY={MASK}"),
        ("Authorization: Basic Ym9iOmh1bnRlcjI=", f"Authorization: Basic {MASK}"),
        (f"password=abc.{KEY}.def1 and more", f"password={MASK} and more"),
        (f"&token=1&secret=a://b:c1@d.{KEY}&page=2", f"&token=1&secret={MASK}&page=2"),
        (f"{KEY}-password: hunter2", f"{MASK}: {MASK}"),
        ("Basic password=hunter22", f"Basic {MASK}{MASK}"),
        ("HTTPS://bob:hunter2@db.example", f"HTTPS://bob:{MASK}@db.example"),
        ("PA\u017fSWORD: hunter2", f"PA\u017fSWORD: {MASK}"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", MASK),
    ],
)
def test_a_secret_is_taken_out_and_what_stands_around_it_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("between", ["", "-", "_"])
def test_what_follows_any_name_of_a_secret_is_taken_out(between: str) -> None:
    of_two = ["api key", "secret key", "private key", "client secret", "access token", "refresh token", "auth token"]
    joined = [name.replace(" ", between) for name in of_two if between or name == "api key"]
    for name in ["password", "passwd", "passphrase", *joined]:
        for text in (f"{name}: hunter2", f'{{"{name.upper()}": "hunter2"}}'):
            assert without_secrets(text) == text.replace("hunter2", MASK)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("write to jane.doe+x@mail.example.", f"write to {MASK}."),
        ("?q=jane%40mail.example&x=1", f"?q={MASK}&x=1"),
        ("@dana: jane@mail.example, @ and jim%40mail.example@", f"@dana: {MASK}, @ and {MASK}@"),
        ("a@b@mail.example", f"a@{MASK}"),
        (f"{'x' * 70}@mail.example", f"{'x' * 70}@mail.example"),
        ("by _dana@example.com_ today", f"by {MASK}_ today"),
        ("?q=a%20dana@example.com", f"?q=a%20{MASK}"),
        ("info@m\u00fcller.de", MASK),
        ("call +49\u00a030\u202f1234\u00a05678", f"call {MASK}"),
        ("4111\u00a01111\u00a01111\u00a01111", MASK),
        ("4111.1111.1111.1111", MASK),
        ("a\\n4111111111111111", f"a\\n{MASK}"),
        ("de89 3704 0044 0532 0130 00 and more", f"{MASK} and more"),
        ("DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000", MASK),
        ("call +49 (0)30 1234 5678 today", f"call {MASK} today"),
        ("card 4111 1111 1111 1111", f"card {MASK}"),
        ("378282246310005", MASK),
        ("from DE89 3704 0044 0532 0130 00 AND MORE", f"from {MASK} AND MORE"),
        ("GB82WEST12345698765432", MASK),
    ],
)
def test_personal_data_is_taken_out(text: str, shown: str) -> None:
    assert without_personal(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "0190f3c2-1234-7abc-8def-123456789012",
        "2026-11-23T00:00:00.123456+00:00",
        "4111 1111 1111 1112",
        "GB82WEST12345698765433",
        "order 58213, 214.50 EUR, on 23/11/2026",
        "a task-management-board-for-2026-and-more",
        "@dana, look",
        "1 + 1 = 2",
        "https://shop.example/orders/58213?page=2",
        "a" * 64,
        "Password: at least eight characters",
        "Basic information, secret: none, api_key=required",
        "0" * 16,
        # All with the check digit of a card: an EAN, a device (IMEI), a company (SIRET), a shipment (SSCC), a moment.
        "4006381300063",
        "356938035643809",
        "55208131766522",
        "340614110000000062",
        "20261129114520",
    ],
)
def test_what_is_neither_stays(text: str) -> None:
    assert clean(text) == text


def test_of_two_keys_that_look_the_same_by_now_neither_value_is_lost() -> None:
    assert within({"a@mail.example": 1, "b@mail.example": 2}, clean) == {MASK: 1, f"{MASK} (2)": 2}


def test_a_card_is_found_where_it_is_a_number() -> None:
    assert within({"card": 4111111111111111, "cents": 4111111111111112}, clean) == {
        "card": MASK, "cents": 4111111111111112,
    }  # fmt: skip


def test_keys_and_texts_at_any_depth_are_changed_and_numbers_stay() -> None:
    value = {"a": [KEY, 5, None, {"jane@mail.example": True}]}
    assert within(value, clean) == {"a": [MASK, 5, None, {MASK: True}]}


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111111", "5555555555554444", "2223003122003222", "378282246310005", "6011111111111117",
        "3530111333300000", "30569309025904", "36227206271667", "6212345678900000003", "2200000000000004",
        "6759649826438453", "4000000000000000006",
    ],
)  # fmt: skip
def test_cards_of_each_scheme_are_found(number: str) -> None:
    assert clean(f"of {number} and") == f"of {MASK} and"


@given(st.integers(0, 10**14 - 1))
def test_one_check_digit_of_ten_makes_a_card(number: int) -> None:
    body = f"4{number:014d}"
    assert sum(is_card(f"{body}{digit}") for digit in range(10)) == 1


@given(st.integers(0, 10**18 - 1), st.integers(1, 96))
def test_other_check_digits_make_no_account(number: int, off: int) -> None:
    body = f"{number:018d}"
    right = 98 - int(body + "131400") % 97
    assert is_iban(f"DE{right:02d}{body}")
    wrong = (right - 2 + off) % 97 + 2
    assert not is_iban(f"DE{wrong:02d}{body}")


@given(st.text(alphabet="aA1@.+-_ /:?=&%4eyJskgh\n", max_size=400))
def test_any_text_can_be_looked_through_and_twice_finds_no_more(text: str) -> None:
    once = clean(text)
    assert clean(once) == once


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("short", 5, "short"),
        ("a word too many", 10, "a word to…"),
        ("to ana.somebody@mail.example now", 14, "to…"),
        ("to ana.somebody@mail.example now", 30, "to ana.somebody@mail.example…"),
        ("call +1 (212) 555-1101 at noon", 16, "call…"),
        (f"use {KEY} now", 24, "use…"),
        (KEY, 12, "…"),
    ],
)
def test_a_text_is_shortened_before_a_value_and_never_within_it(text: str, most: int, shown: str) -> None:
    assert shortened(text, most) == shown


@given(st.text(alphabet="aA1@.+-_ 4eyJskgh\n", max_size=200), st.integers(1, 60))
def test_whatever_is_masked_of_a_text_stays_masked_when_it_is_shortened(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    assert short == text or clean(text).startswith(clean(short.removesuffix("…")))
