"""Which calls a grant fits, whatever they are."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.digest import canonical
from approvals.granted import fits, has_room, in_words, may_be_granted, number_of
from approvals.models import GrantLimit
from approvals.policy import Ruling

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["to", "amount", "memo", "more"]), VALUES, max_size=4)
CONSTRAINTS = [
    {"name": "to", "rule": "is", "value": "ann"},
    {"name": "amount", "rule": "at_most", "value": "50"},
    {"name": "memo", "rule": "any"},
]


@given(ARGUMENTS)
def test_a_call_with_any_argument_outside_its_constraints_does_not_fit(arguments: dict[str, Any]) -> None:
    amount = arguments.get("amount")
    is_number = isinstance(amount, int | float | str) and not isinstance(amount, bool)
    if isinstance(amount, str):
        is_number = amount.isascii() and amount.replace(".", "", 1).isdigit()
    inside = (
        arguments.get("to") == "ann"
        and set(arguments) <= {"to", "amount", "memo"}
        and is_number
        and 0 <= Decimal(str(amount)) <= 50
    )
    assert not fits(CONSTRAINTS, arguments) or inside


@given(VALUES, VALUES)
def test_exactly_means_the_same_to_the_letter(value: Any, other: Any) -> None:
    said = [{"name": "x", "rule": "is", "value": value}]
    assert fits(said, {"x": value})
    assert fits(said, {"x": other}) == (canonical(value) == canonical(other))


@pytest.mark.parametrize("amount", [0, 49.5, 50, "50", "0.5"])
def test_a_call_within_them_fits(amount: Any) -> None:
    assert fits(CONSTRAINTS, {"to": "ann", "amount": amount, "memo": {"a": [1]}})
    assert fits(CONSTRAINTS, {"to": "ann", "amount": amount})


@pytest.mark.parametrize("amount", [-1, 50.01, "50.01", "-1", "1e1", " 5", "٥", True, None, [1], "", "NaN", "5."])
def test_what_is_no_plain_number_up_to_the_most_does_not_fit(amount: Any) -> None:
    assert not fits(CONSTRAINTS, {"to": "ann", "amount": amount})


def test_an_argument_that_nothing_is_said_of_fits_nothing() -> None:
    assert not fits(CONSTRAINTS, {"to": "ann", "amount": 1, "cc": "bob"})
    assert not fits(CONSTRAINTS, {"amount": 1})
    assert fits([], {})
    assert not fits([], {"to": "ann"})


def test_a_rule_nobody_knows_fits_nothing() -> None:
    assert not fits([{"name": "to", "rule": "like", "value": "ann"}], {"to": "ann"})


def limit(kind: str, name: str, most: str, used: str) -> GrantLimit:
    return GrantLimit(kind=kind, name=name, most=Decimal(most), used=Decimal(used))


@pytest.mark.parametrize(
    ("used", "amount", "room"),
    [
        ("0", 100, True), ("99.99", "0.01", True), ("99.99", "0.02", False), ("100", 0, False), ("0", 100.00001, False),
        ("0", "much", False), ("0", None, False), ("0", -5, False), ("0", 1e14, False), ("0", 1e25, False),
        ("0", 1e308, False),
    ],
)  # fmt: skip
def test_a_sum_has_room_for_what_is_left_of_it(used: str, amount: Any, room: bool) -> None:
    assert has_room([limit("sum", "amount", "100", used)], {"amount": amount}) is room


def test_a_count_has_room_while_any_is_left() -> None:
    assert has_room([limit("count", "recipients", "3", "2")], {})
    assert not has_room([limit("count", "recipients", "3", "3")], {})


@pytest.mark.parametrize("effect_class", ["read", "irreversible"])
def test_what_cannot_be_put_right_is_never_granted(effect_class: str) -> None:
    asks = Ruling("ask", "A person decides.", grants_allowed=True)
    assert may_be_granted(asks, "compensable")
    assert not may_be_granted(asks, effect_class)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "deny"}, {"verdict": "allow"}, {"grants_allowed": False}, {"approvals_needed": 2},
        {"risk": "critical"}, {"customer": True},
    ],
)  # fmt: skip
def test_a_grant_answers_only_where_one_person_is_asked_and_rules_leave_it(changes: dict[str, Any]) -> None:
    asks: dict[str, Any] = {"verdict": "ask", "reason": "A person decides.", "grants_allowed": True}
    assert not may_be_granted(Ruling(**asks | changes), "reversible")


def test_it_is_read_as_words() -> None:
    assert in_words(CONSTRAINTS) == [("to", "is exactly ann"), ("amount", "is at most 50"), ("memo", "may be anything")]
    assert in_words([{"name": "x", "rule": "is", "value": [1, 2.5]}]) == [("x", "is exactly [1,2.5]")]


def test_an_amount_is_a_plain_number() -> None:
    assert number_of("12.50") == Decimal("12.50")
    assert number_of(float("inf")) is None
