"""Several rulings combined into one: the one that asks for the most decides."""

import pytest

from approvals.escalation import Step
from approvals.policy import Ruling
from approvals.strictest import APART, strictest

ALL = ("approve", "edit", "reject", "respond")


def asks(**terms) -> Ruling:
    return Ruling(**{"verdict": "ask", "reason": "A person looks.", "allowed_decisions": ALL, **terms})


OWN = asks()


def test_what_one_ruling_forbids_the_whole_is():
    ruling = strictest(OWN, [asks(), asks(verdict="deny", reason="Never.")])
    assert (ruling.verdict, ruling.reason) == ("deny", "Never.")


def test_what_the_rules_say_of_planning_itself_counts_too():
    assert strictest(asks(verdict="deny"), [asks(), asks()]).verdict == "deny"
    assert strictest(asks(approvals_needed=3), [asks(), asks()]).approvals_needed == 3


def test_a_plan_asks_even_where_everything_in_it_is_allowed():
    assert strictest(asks(verdict="allow"), [asks(verdict="allow")]).verdict == "ask"


@pytest.mark.parametrize(
    ("name", "values", "strict"),
    [
        ("risk", ["low", "high", "medium"], "high"),
        ("approvals_needed", [1, 3, 2], 3),
        ("expires_seconds", [None, 60, 600], 60),
        ("hold_seconds", [None, 3, 9], 9),
        ("target_seconds", [30, None, 10], 10),
        ("starter_excluded", [False, True, False], True),
        ("on_expiry", ["reject", "stop", "reject"], "stop"),
        ("business_hours", [True, False, True], False),
        ("customer", [False, True, False], True),
    ],
)
def test_of_each_term_the_strictest_counts(name, values, strict):
    own = asks(**{name: values[0]})
    assert getattr(strictest(own, [asks(**{name: value}) for value in values]), name) == strict


def test_a_call_that_names_no_times_goes_by_those_of_the_installation(settings):
    settings.APPROVAL_EXPIRES_SECONDS, settings.APPROVAL_TARGET_SECONDS, settings.UNDO_HOLD_SECONDS = 3600, 60, 5
    long = {"expires_seconds": 86400, "target_seconds": 900, "hold_seconds": 0}
    ruling = strictest(OWN, [asks(**long), asks()])
    assert (ruling.expires_seconds, ruling.target_seconds, ruling.hold_seconds) == (3600, 60, 5)
    ruling = strictest(asks(rule="plans"), [asks(**long)])
    assert (ruling.expires_seconds, ruling.target_seconds, ruling.hold_seconds) == (3600, 60, 5)


def test_the_times_of_a_plan_are_those_of_its_calls_where_no_rule_is_about_planning():
    ruling = strictest(OWN, [asks(expires_seconds=604800, hold_seconds=0), asks(verdict="allow", allowed_decisions=())])
    assert (ruling.expires_seconds, ruling.hold_seconds) == (604800, 0)


def test_only_the_groups_decide_that_every_ruling_names():
    assert strictest(OWN, [asks(groups=(1, 2)), asks(groups=(2, 3)), asks()]).groups == (2,)


def test_nobody_decides_what_no_group_may_decide_as_a_whole():
    ruling = strictest(OWN, [asks(groups=(1,)), asks(groups=(2,))])
    assert (ruling.verdict, ruling.reason) == ("deny", APART)


def test_it_is_approved_or_rejected_and_nothing_else():
    assert strictest(OWN, [asks(), asks()]).allowed_decisions == ("approve", "reject")
    assert strictest(OWN, [asks(), asks(allowed_decisions=("reject",))]).allowed_decisions == ("reject",)


def test_more_people_come_to_decide_only_where_they_would_for_every_call():
    step = Step(after=60, group="Managers")
    assert strictest(OWN, [asks(escalation=(step,)), asks(escalation=(step,))]).escalation == (step,)
    assert strictest(OWN, [asks(escalation=(step,)), asks()]).escalation == ()


def test_no_grant_answers_for_it():
    assert not strictest(OWN, [asks(grants_allowed=True), asks(grants_allowed=True)]).grants_allowed


def test_a_rule_about_planning_that_names_groups_is_widened_by_no_step_of_the_calls():
    step = Step(after=60, group="Managers")
    calls = [asks(groups=(1,), escalation=(step,))] * 2
    assert strictest(asks(groups=(1,)), calls).escalation == ()
    assert strictest(asks(groups=(1,), escalation=(step,)), calls).escalation == (step,)
