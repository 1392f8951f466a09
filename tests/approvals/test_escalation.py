"""What a rule may say about a request nobody decides, and what several rules say together."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from approvals import policy
from approvals.escalation import MAX_STEPS, Step, steps_of, validate_steps
from approvals.models import Approval, Rule
from approvals.policy import Ruling
from approvals.rule_words import in_words

REMIND = {"after": 600, "remind": True}
MANAGERS = {"after": 1800, "group": "managers"}


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ({}, "Give a list of at most 5 steps."),
        ([{"after": n, "remind": True} for n in range(1, MAX_STEPS + 2)], "Give a list of at most 5 steps."),
        (["soon"], "Step 1: a step has `after`, `group` and `remind`."),
        ([{**REMIND, "approve": True}], "Step 1: a step has `after`, `group` and `remind`."),
        ([{"after": 0, "remind": True}], "Step 1: `after` is a number of seconds"),
        ([{"after": True, "remind": True}], "Step 1: `after` is a number of seconds"),
        ([{"after": 60.5, "remind": True}], "Step 1: `after` is a number of seconds"),
        ([{"after": 60}], "Step 1: name a group that may decide from then on, or set `remind`."),
        ([{"after": 60, "group": 7}], "Step 1: `group` is the name of a group"),
        ([MANAGERS, REMIND], "Step 2: each step must come later than the one before it."),
        ([REMIND, REMIND], "Step 2: each step must come later than the one before it."),
    ],
)
def test_what_is_no_list_of_steps_in_their_order_is_refused(steps: Any, sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        validate_steps(steps)
    assert refused.value.messages[0].startswith(sentence)
    assert steps_of(steps) == ()


def rule(name: str, groups: tuple[str, ...] = (), *steps: dict[str, Any], **fields: Any) -> Rule:
    made = Rule.objects.create(name=name, verdict="ask", escalation=list(steps), **fields)
    made.groups.set(Group.objects.get_or_create(name=group)[0] for group in groups)
    return made


def ruling() -> Ruling:
    call = policy.Call(tool="pay", effect_class="irreversible", arguments={})
    return policy.evaluate(Rule.objects.prefetch_related("groups"), call)


@pytest.mark.django_db
def test_a_ruling_carries_the_terms_of_its_rule_and_survives_being_frozen() -> None:
    rule("one", ("approver",), REMIND, MANAGERS, target_seconds=300, business_hours=True)
    found = ruling()
    assert found.escalation == (Step(600, remind=True), Step(1800, "managers"))
    assert (found.target_seconds, found.business_hours) == (300, True)
    assert Ruling.from_json(found.as_json()) == found


@pytest.mark.django_db
def test_a_ruling_that_was_frozen_before_there_were_steps_has_none() -> None:
    old = {"verdict": "ask", "reason": "r"}
    assert Ruling.from_json(old).escalation == ()


@pytest.mark.django_db
def test_no_rule_is_widened_by_the_steps_of_another() -> None:
    rule("a", ("approver",), REMIND, MANAGERS)
    rule("b", ("approver",))
    assert ruling().escalation == (Step(600, remind=True),)


@pytest.mark.django_db
def test_a_group_is_added_when_the_last_of_the_rules_lets_it() -> None:
    rule("a", ("approver",), MANAGERS)
    rule("b", ("approver",), {"after": 3600, "group": "managers"})
    rule("c", ("approver", "managers"))
    assert ruling().escalation == (Step(3600, "managers"),)


@pytest.mark.django_db
def test_the_strictest_of_several_times_counts() -> None:
    rule("a", target_seconds=600, business_hours=True)
    rule("b", target_seconds=300)
    assert (ruling().target_seconds, ruling().business_hours) == (300, False)


def test_steps_are_said_in_words() -> None:
    said = Rule(name="r", verdict="ask", escalation=[REMIND, MANAGERS], target_seconds=300, expires_seconds=7200)
    words = in_words(said, ["approver"])
    assert "Somebody should decide within 5 minutes." in words
    assert "If nobody decides within 10 minutes, those who may decide are reminded." in words
    assert "If nobody decides within 30 minutes, managers may decide too." in words
    assert "If nobody decides within 30 minutes, managers is told too." in in_words(said)


def test_business_hours_are_said_with_every_time() -> None:
    said = Rule(
        name="r", verdict="ask", escalation=[MANAGERS], target_seconds=300, expires_seconds=7200, business_hours=True
    )
    assert in_words(said, ["approver"]).count("of business hours") == 3


# --- Absence never approves -----------------------------------------------------------------------


@pytest.mark.parametrize("model", [Rule, Approval])
def test_no_column_can_say_that_what_nobody_decided_is_approved(model: Any) -> None:
    column = model._meta.get_field("on_expiry")
    assert {value for value, _ in column.choices} == {"reject", "stop"}
    with pytest.raises(ValidationError):
        column.clean("approve", None)


@pytest.mark.django_db
def test_the_database_refuses_a_rule_that_approves_what_nobody_decided() -> None:
    made = rule("a")
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.filter(pk=made.pk).update(on_expiry="approve")
