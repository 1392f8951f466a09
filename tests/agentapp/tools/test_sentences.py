"""What people read about a call, whatever its arguments."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentapp.tools import sentences

WIRE: Any = SimpleNamespace(
    name="wire",
    input_schema={},
    title_template="Wire {amount:money}",
    sentence_template="{amount:money} leaves, of {snapshot.open:money} open.",
    effects_template=[{"icon": "money", "title": "{amount:money} leaves", "detail": "Of {snapshot.open:money}."}],
    button_template="{amount:money}",
    confirm_template="{amount:money}",
)


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        ("214.5", "USD", "$214.50"),
        (-1200, "EUR", "€-1,200.00"),
        ("1e3", "CHF", "1,000.00 CHF"),
        ("9" * 30, "USD", f"${','.join(['999'] * 10)}.00"),
        ("0.001", "USD", "$0.00"),
        ("a few", "USD", "a few"),
        ("NaN", "USD", "NaN"),
        ("1e30", "USD", "1e30"),
        ("1e-30", "USD", "1e-30"),
    ],
)
def test_an_amount_is_written_out_where_it_is_one(amount: object, currency: str, shown: str) -> None:
    assert sentences.money(amount, currency) == shown


@pytest.mark.parametrize("amount", ["1e9999999", "-1e9999999", "1e-9999999", "0e9999999", "9" * 9999, "x" * 9999])
def test_no_amount_is_longer_than_a_value_of_a_sentence(amount: str) -> None:
    given, state = {"amount": amount, "currency": "x" * 9999}, {"open": amount}
    told = [sentences.title(WIRE, given, state), sentences.button(WIRE, given, state)]
    told += [piece["text"] for piece in sentences.sentence(WIRE, given, state)]
    told += [line[part] for line in sentences.effects(WIRE, given, state) for part in ("title", "detail")]
    told += [sentences.money(1, "x" * 9999)]
    assert max(map(len, told)) < 2 * sentences.MAX_VALUE_CHARS
    assert sentences.target(WIRE, given, state) in ("", amount)


@pytest.mark.parametrize(
    ("schema", "beside", "shown"),
    [
        ({"properties": {"amount": {"type": "number", "x-currency": "EUR"}}}, {}, "€12.50"),
        # A field of the call does not change what the argument is.
        ({"properties": {"amount": {"type": "number", "x-currency": "EUR"}}}, {"currency": "USD"}, "€12.50"),
        ({"properties": {"amount": {"type": "number"}}}, {"currency": "GBP"}, "£12.50"),
        ({}, {}, "$12.50"),
    ],
)
def test_an_amount_is_in_the_currency_that_its_schema_says(
    schema: dict[str, Any], beside: dict[str, Any], shown: str
) -> None:
    wire = SimpleNamespace(**{**vars(WIRE), "input_schema": schema})
    assert sentences.title(wire, {"amount": 12.5, **beside}, {}) == f"Wire {shown}"


@pytest.mark.parametrize(
    ("title", "arguments", "leaves_out"),
    [
        ("Pay {amount} to {to}", {"amount": 5, "to": "ana"}, False),
        ("Pay {amount} to {to}", {"amount": 5, "to": "ana", "memo": ""}, False),
        ("Pay {amount} to {to}", {"amount": 5, "to": "ana", "memo": "x"}, True),
        ("Pay {amount} to {to}", {"amount": 5, "to": "ana", "fast": False}, False),
        ("Pay {amount} to {to}", {"amount": 5, "to": "ana", "fast": 0}, True),
        ("Pay {amount} to {to}", {"amount": 5, "to": "a" * 160}, False),
        ("Pay {amount} to {to}", {"amount": 5, "to": "a" * 161}, True),
        ("Pay {amount} to {to}", {"amount": 5, "to": ["a" * 80, "b" * 81]}, True),
        ("Pay {amount} to {to}", {"amount": "1" * 150, "to": "a" * 150}, True),  # the title is cut
        ("Pay {amount} to {to} of {snapshot.a}{snapshot.b}", {"amount": 5, "to": "ana"}, True),  # and may be here
        ("Pay {to.name}", {"to": {"name": "ana"}}, False),
        ("Pay {to.name}", {"to": {"name": "ana", "iban": "DE"}}, True),
        ("Pay {to.name}", {"to": {"name": {"first": "ana"}}}, False),
        ("", {"amount": 5}, True),
        ("", {}, False),
    ],
)
def test_what_they_leave_out_of_a_call_is_known(title: str, arguments: dict[str, Any], leaves_out: bool) -> None:
    schema = {"properties": {"memo": {"default": ""}, "fast": {"default": False}, "amount": {}, "to": True}}
    row: Any = SimpleNamespace(title_template=title, sentence_template="", effects_template=[], input_schema=schema)
    assert sentences.leaves_out(row, arguments) is leaves_out
