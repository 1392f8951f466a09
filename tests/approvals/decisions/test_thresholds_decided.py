"""Requests with thresholds: decided, rejected, changed, and looked at again."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals import decisions, delegations, standing
from approvals.decisions import undo
from approvals.delegations import Scope
from approvals.escalation import Step
from approvals.ledger import transaction
from approvals.models import Approval
from approvals.policy import Ruling
from approvals.standing import Refusal
from tests.conftest import make_user
from tests.rows import a_decision, a_moment_ago, a_request, decide, read, take, within_transaction
from tests.rows import undo as take_back

pytestmark = pytest.mark.django_db


@pytest.fixture
def teams(roles) -> dict[str, Group]:
    return {name: Group.objects.create(name=name) for name in ("Payments", "Managers")}


@pytest.fixture
def people(teams) -> dict[str, User]:
    def person(name: str, *groups: str) -> User:
        user = make_user(name, "approver")
        user.groups.add(*(teams[group] for group in groups))
        return user

    return {
        "pia": person("pia", "Payments"),
        "paul": person("paul", "Payments"),
        "petra": person("petra", "Payments"),
        "max": person("max", "Managers"),
        "olga": person("olga"),
    }


def threshold(approve: int, group: Group | None = None, **fields: Any) -> dict[str, Any]:
    named = {"groups": [group.pk], "names": [group.name]} if group else {}
    return {"approve": approve, **named, **fields}


def asked(teams: dict[str, Group], deny: int = 1, **changes: Any) -> Approval:
    """Two of Payments, or one of Managers."""
    terms = ([threshold(2, teams["Payments"], deny=deny), threshold(1, teams["Managers"], deny=deny)],)
    return a_request(**{"terms": terms, "groups": tuple(group.pk for group in teams.values())} | changes)


def code(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.code


def test_two_of_one_group_approve(teams, people):
    approval = take(asked(teams), people["pia"])
    assert approval.state == "pending"
    assert take(approval, people["paul"]).state == "approved"


def test_one_of_the_other_group_approves_alone(teams, people):
    assert take(asked(teams), people["max"]).state == "approved"


def test_one_rejection_ends_it_where_nothing_else_is_said(teams, people):
    assert take(asked(teams), people["pia"], "reject").state == "rejected"


def test_a_rejection_that_is_not_enough_leaves_it_open_and_counts_once(teams, people):
    approval = take(asked(teams, deny=2), people["pia"], "reject")
    assert approval.state == "pending"
    assert standing.progress(approval).rejections_needed() == 2
    assert code(decide(approval, a_decision(read(approval), people["pia"], "reject"))) == "decided_by_you"
    # A rejection by Managers counts for Managers: neither threshold has two.
    assert take(approval, people["max"], "reject").state == "pending"
    assert take(approval, people["paul"], "reject").state == "rejected"


def test_approvals_can_be_enough_in_spite_of_a_rejection(teams, people):
    approval = take(asked(teams, deny=2), people["pia"], "reject")
    assert take(approval, people["max"]).state == "approved"
    assert standing.is_bound(read(approval))
    assert standing.deciders_still_allowed(read(approval))


def test_a_rejection_stands_when_the_call_is_changed_and_can_be_taken_back(teams, people):
    approval = take(asked(teams, deny=2), people["pia"], "reject")
    approval = take(approval, people["paul"], "edit", arguments={"order": "1001", "amount": 5})
    assert [one.pk for one in standing.progress(approval).rejecting] == [people["pia"].pk]
    with transaction():
        undo(approval.pk, people["pia"])
    assert standing.progress(read(approval)).rejecting == []
    assert take(read(approval), people["pia"]).state == "approved"


def test_whoever_counts_for_no_threshold_is_told_so(teams, people):
    approval = asked(teams, groups=())
    answer = decide(approval, a_decision(approval, people["olga"]))
    assert code(answer) == "forbidden"
    assert isinstance(answer, Refusal)
    assert "Two of Payments, or one of Managers" in answer.message


def test_a_condition_is_held_against_the_call_as_it_was_changed(teams, people):
    small = [threshold(1, teams["Payments"], condition="args.amount < 100.0"), threshold(2)]
    approval = a_request(terms=(small,))
    assert take(approval, people["pia"]).state == "pending"
    assert take(approval, people["paul"], "edit", arguments={"order": "1001", "amount": 50}).state == "approved"


def test_a_decider_who_lost_the_group_no_longer_counts(teams, people):
    approval = take(take(asked(teams), people["pia"]), people["paul"])
    people["pia"].groups.add(teams["Managers"])
    people["pia"].groups.remove(teams["Payments"])
    assert standing.is_enough(read(approval))  # as one of Managers
    people["pia"].groups.clear()
    assert not standing.is_enough(read(approval))


def test_who_changed_the_arguments_is_not_one_of_two_at_high_risk(teams, people):
    approval = asked(teams, risk="high")
    approval = take(approval, people["pia"], "edit", arguments={"order": "1001", "amount": 5})
    assert take(approval, people["paul"]).state == "pending"
    assert take(approval, people["petra"]).state == "approved"


def ruling(*terms: list[dict[str, Any]], **fields: Any) -> Ruling:
    given = {"verdict": "ask", "reason": "stricter", "allowed_decisions": ("approve", "edit", "reject")}
    return Ruling(**given | {"terms": terms} | fields)


def test_an_approval_is_stale_when_the_thresholds_became_stricter(teams, people):
    approval = take(asked(teams), people["max"])
    same = [threshold(2, teams["Payments"]), threshold(1, teams["Managers"])]
    assert standing.meets(approval, ruling(same))
    assert not standing.meets(approval, ruling([threshold(2, teams["Payments"])]))
    assert not standing.meets(approval, ruling(same, [threshold(2)]))
    assert not standing.meets(approval, ruling(same, risk="critical"))


def test_an_approval_of_the_simple_form_is_held_against_thresholds_and_the_other_way_round(teams, people):
    simple = take(a_request(), people["pia"])
    assert standing.meets(simple, ruling([threshold(1, teams["Payments"])]))
    assert not standing.meets(simple, ruling([threshold(1, teams["Managers"])]))
    by_manager = take(asked(teams), people["max"])
    assert standing.meets(by_manager, ruling(groups=(teams["Managers"].pk,)))
    assert not standing.meets(by_manager, ruling(groups=(teams["Payments"].pk,)))
    assert not standing.meets(by_manager, ruling(approvals_needed=2))


def test_an_approval_over_a_rejection_is_stale_when_one_rejection_ends_it_by_now(teams, people):
    approval = take(take(asked(teams, deny=2), people["pia"], "reject"), people["max"])
    lax = [threshold(2, teams["Payments"], deny=2), threshold(1, teams["Managers"], deny=2)]
    strict = [threshold(2, teams["Payments"], deny=1), threshold(1, teams["Managers"], deny=2)]
    assert standing.meets(approval, ruling(lax))
    assert not standing.meets(approval, ruling(strict))
    assert not standing.meets(approval, ruling())


def test_the_starter_is_not_counted_where_the_rules_exclude_them_by_now(teams, people):
    approval = take(asked(teams, starter_id=people["max"].pk, starter_excluded=False), people["max"])
    same = [threshold(1, teams["Managers"])]
    assert standing.meets(approval, ruling(same, starter_excluded=False))
    assert not standing.meets(approval, ruling(same, starter_excluded=True))


def test_at_critical_risk_every_threshold_wants_two(teams, people):
    terms = standing.terms_of(ruling([threshold(1), threshold(3)], risk="critical"))
    assert [[one.approve for one in rule] for rule in terms.rules] == [[2, 3]]


def test_a_change_that_makes_a_rejection_count_ends_the_request(teams, people):
    small = threshold(1, teams["Payments"], condition="args.amount < 100")
    large = threshold(2, teams["Payments"], deny=2)
    approval = take(asked(teams, terms=([small, large],)), people["pia"], "reject")
    assert approval.state == "pending"
    approval = take(approval, people["paul"], "edit", arguments={"order": "1001", "amount": 5})
    assert approval.state == "rejected"
    assert not standing.is_bound(approval)


def escalated(teams: dict[str, Group], terms: list[dict[str, Any]]) -> Approval:
    """A request for Payments, and by now also for Managers."""
    step = Step(60, "Managers")
    approval = a_request(terms=(terms,), groups=(teams["Payments"].pk,), escalation=(step,))
    within_transaction(decisions.escalate, a_moment_ago(approval, "escalates_at").pk)
    return read(approval)


def test_who_may_decide_by_a_step_counts_where_a_threshold_names_no_group_of_its_own(teams, people):
    approval = escalated(teams, [threshold(2, teams["Payments"], open=True)])
    approval = take(take(approval, people["max"]), people["pia"])
    assert approval.state == "approved"
    assert standing.is_bound(approval)
    steps = (Step(60, "Managers"),)
    assert standing.meets(approval, ruling([threshold(2, teams["Payments"], open=True)], escalation=steps))
    assert not standing.meets(approval, ruling([threshold(2, teams["Payments"], open=True)]))


def test_who_may_decide_by_a_step_counts_for_no_threshold_of_another_group(teams, people):
    approval = escalated(teams, [threshold(2, teams["Payments"])])
    assert code(decide(approval, a_decision(read(approval), people["max"]))) == "forbidden"


def test_a_right_that_was_lent_for_less_risk_does_not_count_for_the_rules_of_now(teams, people):
    now = timezone.now()
    scope = Scope(groups=[teams["Managers"].pk], highest_risk="medium")
    delegations.begin(people["max"], people["olga"], now - timedelta(minutes=1), now + timedelta(days=1), scope)
    approval = take(asked(teams, risk="medium"), people["olga"])
    assert (approval.state, approval.decisions.get().on_behalf_of) == ("approved", people["max"])
    same = [threshold(2, teams["Payments"]), threshold(1, teams["Managers"])]
    assert standing.meets(approval, ruling(same, risk="medium"))
    assert not standing.meets(approval, ruling(same, risk="high"))


def test_a_right_that_was_lent_counts_for_the_groups_of_its_lender_alone(teams, people):
    people["olga"].groups.add(Group.objects.create(name="Legal"))
    now = timezone.now()
    scope = Scope(groups=[teams["Payments"].pk], highest_risk="medium")
    delegations.begin(people["pia"], people["olga"], now - timedelta(minutes=1), now + timedelta(days=1), scope)
    approval = take(asked(teams, risk="medium"), people["olga"])
    assert approval.state == "pending"
    assert code(decide(approval, a_decision(read(approval), people["pia"]))) == "decided_for_you"
    assert take(approval, people["paul"]).state == "approved"


def test_a_change_by_which_rejections_come_to_count_ends_the_request(roles):
    payments, managers = (Group.objects.create(name=name) for name in ("Payments", "Managers"))

    def person(name, *groups):
        user = make_user(name, "approver")
        user.groups.add(*groups)
        return user

    both, pia = person("both", payments, managers), person("pia", payments)
    terms = (
        [
            {"approve": 2, "deny": 2, "groups": [payments.pk], "names": ["Payments"]},
            {
                "approve": 1,
                "deny": 1,
                "groups": [managers.pk],
                "names": ["Managers"],
                "condition": "args.amount > 500.0",
            },
        ],
    )
    approval = a_request(
        terms=terms,
        groups=(payments.pk, managers.pk),
        arguments={"order": "1", "amount": 240.5},
        approvals_needed=1,
        risk="medium",
    )
    approval = take(approval, both, "reject")
    assert approval.state == "pending"  # one of two rejections by Payments
    approval = take(approval, pia, "edit", arguments={"order": "1", "amount": 900.5})
    assert approval.state == "rejected"


def test_taking_back_a_change_by_which_rejections_came_to_count_opens_the_request_again(teams, people):
    payments = teams["Payments"]
    terms = ([threshold(1, payments, condition="args.amount < 100"), threshold(2, payments, deny=2)],)
    approval = take(a_request(terms=terms, groups=(payments.pk,), hold_seconds=30), people["pia"], "reject")
    approval = take(approval, people["paul"], "edit", arguments={"order": "1001", "amount": 5})
    assert approval.state == "rejected"

    take_back(approval, people["paul"])

    approval = read(approval)
    assert (approval.state, approval.is_edited) == ("pending", False)
    assert take(approval, people["petra"], "reject").state == "rejected"


def test_a_rejection_after_a_change_stays_when_the_change_is_taken_back(teams, people):
    approval = take(asked(teams, hold_seconds=30), people["paul"], "edit", arguments={"order": "1001", "amount": 5})
    approval = take(approval, people["pia"], "reject")

    take_back(approval, people["paul"])

    assert read(approval).state == "rejected"
