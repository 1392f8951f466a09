"""Undoing one's own decision: it undoes only that, and nothing that others have said."""

import pytest
from django.contrib.auth.models import User

from agentapp import actions
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, says


@pytest.fixture
def approved_by_dana(clerk: Clerk, dana: User) -> Approval:
    """A request that needs two approvers, of whom Dana is one."""
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=30)
    approval = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done")))[0]
    clerk.decide(approval, dana)
    return approval


@pytest.mark.parametrize(("type_", "state"), [("reject", "rejected"), ("respond", "responded")])
def test_an_approval_taken_back_leaves_what_another_has_said(
    clerk: Clerk, approved_by_dana: Approval, dana: User, marco: User, type_: str, state: str
) -> None:
    clerk.decide(approved_by_dana, marco, type_, message="I have looked into it.")
    approved_by_dana.refresh_from_db()
    runs_at = approved_by_dana.runs_at
    actions.undo_decision(approved_by_dana.pk, dana)
    approved_by_dana.refresh_from_db()
    assert (approved_by_dana.state, approved_by_dana.runs_at) == (state, runs_at)
    assert [each.user for each in approved_by_dana.decisions.filter(undone_at=None)] == [marco]


def test_what_another_has_rejected_is_not_approved_after_all(
    clerk: Clerk, approved_by_dana: Approval, dana: User, marco: User
) -> None:
    clerk.decide(approved_by_dana, marco, "reject", message="This is fraud.")
    actions.undo_decision(approved_by_dana.pk, dana)
    approved_by_dana.refresh_from_db()
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(approved_by_dana, dana)
    assert refused.value.code == "already_decided"
    assert effects_of("pay") == []


def test_an_edit_taken_back_after_an_answer_changes_nothing_of_it(clerk: Clerk, dana: User, marco: User) -> None:
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=30)
    approval = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done")))[0]
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 3, "memo": ""}')
    clerk.decide(approval, marco, "respond", message="I have paid it by hand.")
    actions.undo_decision(approval.pk, dana)
    approval.refresh_from_db()
    assert approval.state == "responded"
    assert [each.user for each in approval.decisions.filter(undone_at=None)] == [marco]


def test_who_rejected_it_can_take_that_back(clerk: Clerk, approved_by_dana: Approval, dana: User, marco: User) -> None:
    clerk.decide(approved_by_dana, marco, "reject", message="Wrong.")
    actions.undo_decision(approved_by_dana.pk, marco)
    approved_by_dana.refresh_from_db()
    assert approved_by_dana.state == "pending"
    clerk.decide(approved_by_dana, marco)
    approved_by_dana.refresh_from_db()
    assert approved_by_dana.state == "approved"


def test_only_a_rejection_stops_the_run(clerk: Clerk, approved_by_dana: Approval, marco: User) -> None:
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(approved_by_dana, marco, stop_run=True)
    assert refused.value.code == "not_allowed"
