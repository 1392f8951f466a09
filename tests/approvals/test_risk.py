"""The risk of a call, from facts that can be counted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.models import EffectClass, Risk
from approvals.policy import RISK_ORDER
from approvals.risk import Facts, assess, higher

AMOUNTS = st.floats(0, 10_000, allow_nan=False)
FACTS = st.builds(
    Facts,
    effect_class=st.sampled_from(EffectClass.values),
    outside=st.lists(st.sampled_from(["Account", "Amount"]), max_size=2),
    disguised=st.lists(st.sampled_from(["Account", "Memo"]), max_size=2),
    amount=st.none() | AMOUNTS,
    amounts=st.lists(AMOUNTS, max_size=30),
    recipients=st.lists(st.sampled_from(["a", "b"]), max_size=2),
    known=st.sets(st.sampled_from(["a", "b"])),
    calls=st.integers(0, 30),
    decided=st.integers(0, 20),
    rejected=st.integers(0, 20),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
)
PAYMENT = Facts("irreversible")


def points(**facts: Any) -> dict[str, int]:
    return {factor.name: factor.points for factor in assess(replace(PAYMENT, **facts)).factors}


@given(FACTS)
def test_the_same_facts_give_the_same_score_and_never_a_critical_one(facts: Facts) -> None:
    first, second = assess(facts), assess(replace(facts, amounts=list(reversed(facts.amounts))))
    assert (first, first.score, first.risk) == (second, second.score, second.risk)
    assert first.risk in (Risk.LOW, Risk.MEDIUM, Risk.HIGH)
    assert first.score == sum(factor.points for factor in first.factors)


@given(FACTS, st.sampled_from(Risk.values))
def test_what_a_rule_says_is_never_lowered(facts: Facts, said: str) -> None:
    given_risk = higher(said, assess(facts).risk)
    assert RISK_ORDER.index(given_risk) >= RISK_ORDER.index(said)
    assert given_risk != Risk.CRITICAL or said == Risk.CRITICAL


@given(FACTS)
def test_what_comes_from_outside_makes_it_more(facts: Facts) -> None:
    trusted, planted = assess(replace(facts, outside=())), assess(replace(facts, outside=("Account",)))
    assert planted.score > trusted.score


@pytest.mark.parametrize(
    ("effect_class", "alone", "planted"),
    [
        ("read", "low", "medium"),
        ("reversible", "low", "medium"),
        ("compensable", "low", "medium"),
        ("irreversible", "low", "high"),
    ],
)
def test_what_comes_from_outside_weighs_by_what_the_call_can_do(effect_class: str, alone: str, planted: str) -> None:
    assert assess(Facts(effect_class)).risk == alone
    assert assess(Facts(effect_class, outside=("Account",))).risk == planted


def test_a_text_that_deceives_the_eye_counts_like_one_from_outside() -> None:
    [factor] = assess(Facts("read", disguised=("Account", "Memo"))).factors
    assert factor.points == 35
    assert factor.words == "hidden characters or look-alike letters: Account, Memo"
    assert assess(Facts("irreversible", disguised=("Account",))).risk == "high"


def test_an_amount_is_compared_with_those_before_it_once_there_are_enough() -> None:
    before = [float(amount) for amount in range(1, 101)]
    assert points(amount=101.0, amounts=before)["amount"] == 30
    assert points(amount=97.0, amounts=before)["amount"] == 20
    assert "amount" not in points(amount=95.0, amounts=before)
    assert "amount" not in points(amount=500.0, amounts=before[:9])
    assert "amount" not in points(amounts=before)


def test_a_recipient_is_new_when_no_call_went_there_and_there_were_some() -> None:
    assert points(recipients=["b"], known={"a"}, calls=5)["new_recipient"] == 20
    assert "new_recipient" not in points(recipients=["a"], known={"a"}, calls=5)
    assert "new_recipient" not in points(recipients=["b"], calls=4)
    assert "new_recipient" not in points(calls=5)


def test_rejections_count_once_there_are_enough_decisions() -> None:
    assert points(decided=8, rejected=2)["rejections"] == 10
    assert points(decided=8, rejected=4)["rejections"] == 15
    assert "rejections" not in points(decided=8, rejected=1)
    assert "rejections" not in points(decided=4, rejected=4)


@pytest.mark.parametrize(
    ("hour", "weekday", "is_off"), [(7, 0, False), (18, 4, False), (19, 0, True), (6, 0, True), (12, 5, True)]
)
def test_the_hour_counts_a_little(hour: int, weekday: int, is_off: bool) -> None:
    assert ("off_hours" in points(hour=hour, weekday=weekday)) == is_off
    assert assess(replace(PAYMENT, hour=hour, weekday=weekday)).risk == "low"
