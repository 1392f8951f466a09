"""How certain the approver's identity must be: the levels, the setting, and what the rules make of both."""

import itertools
from typing import Any

import pytest

from approvals import step_up
from approvals.models import Assurance, EffectClass, Risk, Rule
from approvals.policy import Call, evaluate
from approvals.rule_words import in_words


def test_the_levels_are_those_that_rows_can_have():
    assert ("", *Assurance.values) == step_up.LEVELS
    assert set(step_up.NEEDS) == set(step_up.SHOWN) == set(Assurance.values)


@pytest.mark.parametrize(("shown", "needed"), list(itertools.product(step_up.LEVELS, repeat=2)))
def test_what_is_stronger_is_enough_for_what_is_weaker_and_never_the_other_way_round(shown, needed):
    is_enough = step_up.LEVELS.index(shown) >= step_up.LEVELS.index(needed)
    assert step_up.is_enough(shown, needed) is is_enough
    assert (shown in step_up.enough_for(needed)) is is_enough


def test_what_is_unknown_shows_nothing():
    assert step_up.is_enough("fingerprint", "")
    assert not step_up.is_enough("fingerprint", "password")


@pytest.mark.parametrize(
    ("minima", "risk", "effect_class", "asked", "needed"),
    [
        ({}, "high", "irreversible", "", ""),
        ({}, "critical", "read", "", "password"),
        ({"critical": "signed"}, "critical", "read", "passkey", "signed"),
        ({"high": "totp"}, "medium", "irreversible", "", ""),
        ({"high": "totp"}, "critical", "irreversible", "", "totp"),
        ({"low": "password"}, "high", "irreversible", "", "password"),
        ({"irreversible": "signed", "high": "totp"}, "low", "irreversible", "", "signed"),
        ({"irreversible": "signed"}, "critical", "compensable", "", "password"),
        ({"high": "password"}, "high", "read", "passkey", "passkey"),
    ],
)
def test_the_strictest_of_rule_risk_and_effect_class_counts(settings, minima, risk, effect_class, asked, needed):
    settings.STEP_UP = minima
    assert step_up.needed(asked, risk, effect_class) == needed


def test_the_setting_names_every_risk_and_every_effect_class():
    names = [*Risk.values, *EffectClass.values]
    text = ", ".join(f"{name} = signed" for name in names)
    assert step_up.parse(text) == dict.fromkeys(map(str, names), "signed")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("higher=password", "'higher' is neither a risk nor an effect class"),
        ("high", "high must be one of password, totp, passkey, signed"),
        ("high=", "high must be one of"),
        ("high=finger", "high must be one of"),
        ("high=totp,high=passkey", "high appears twice"),
    ],
)
def test_a_setting_that_cannot_be_read_says_why(text, problem):
    with pytest.raises(ValueError, match=problem):
        step_up.parse(text)


def rules(*levels: str, **terms: Any) -> list[Rule]:
    made = [Rule(name=f"r{n}", verdict="ask", assurance=level, **terms) for n, level in enumerate(levels)]
    for rule in made:
        rule._prefetched_objects_cache = {"groups": []}  # type: ignore[attr-defined]
    return made


def ruling_of(*levels: str, **terms: Any) -> Any:
    return evaluate(rules(*levels, **terms), Call("pay", "compensable", {}))


def test_of_several_rules_that_ask_the_strictest_level_counts():
    assert ruling_of("totp", "signed", "").assurance == "signed"
    assert ruling_of("").assurance == ""


def test_a_customer_alone_is_not_enough_where_somebody_must_show_who_they_are():
    assert not ruling_of("", answered_by="customer").people
    ruling = ruling_of("passkey", answered_by="customer")
    assert (ruling.customer, ruling.people) == (True, True)


def test_a_frozen_ruling_keeps_its_level_and_an_older_one_had_none():
    ruling = ruling_of("totp")
    assert type(ruling).from_json(ruling.as_json()) == ruling
    kept = ruling_of("").as_json()
    assert "assurance" not in kept
    assert type(ruling).from_json(kept).assurance == ""


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("password", "The approver must show a sign-in within the last five minutes."),
        ("passkey", "The approver must show a passkey, used within the last five minutes."),
        ("signed", "The approver must sign the decision with a passkey."),
    ],
)
def test_a_rule_says_it_in_words(level, said):
    [rule] = rules(level, risk="medium")
    assert said in in_words(rule)
    [customers] = rules(level, risk="medium", answered_by="customer")
    assert said in in_words(customers)
    assert "then for a person" in in_words(customers)
