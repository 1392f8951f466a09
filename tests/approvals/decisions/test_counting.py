"""Who counts: two people, edits by one of them, and undone decisions."""

import pytest

from approvals import decisions, ledger, standing
from approvals.models import Approval
from approvals.standing import Refusal
from tests.conftest import make_user
from tests.rows import ARGUMENTS, a_decision, a_moment_ago, a_request, consume, decide, read, take, undo

pytestmark = pytest.mark.django_db

State = Approval.State
CHEAPER = {"order": "1001", "amount": 200}
CHEAPEST = {"order": "1001", "amount": 1}


@pytest.fixture
def nora(roles):
    """The third approver."""
    return make_user("Nora Third", "approver")


def code(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.code


# --- Two people --------------------------------------------------------------------------------


def test_two_approvals_of_two_people_approve(dana, marco):
    approval = take(a_request(approvals_needed=2), dana)
    assert (approval.state, approval.version, approval.runs_at) == (State.PENDING, 2, None)
    assert not consume(approval)
    approval = take(approval, marco)
    assert approval.state == State.APPROVED
    assert standing.is_bound(approval)
    types = [event.type for event in ledger.Event.objects.order_by("seq")]
    assert types == ["approval.requested", "approval.changed", "approval.approved"]


def test_one_person_cannot_be_both(dana):
    approval = take(a_request(approvals_needed=2), dana)
    assert code(decide(approval, a_decision(approval, dana))) == "decided_by_you"
    assert code(decide(approval, a_decision(approval, dana, "edit", arguments=CHEAPER))) == "decided_by_you"
    assert read(approval).state == State.PENDING


def test_whoever_looked_before_the_first_approval_looks_again(dana, marco):
    approval = a_request(approvals_needed=2)
    seen_by_marco = a_decision(approval, marco)
    take(approval, dana)
    assert code(decide(approval, seen_by_marco)) == "changed"


def test_one_rejection_is_enough_whoever_approved_before(dana, marco):
    approval = take(take(a_request(approvals_needed=2), dana), marco, "reject")
    assert approval.state == State.REJECTED


@pytest.mark.parametrize("needed", [2, 3])
def test_nobody_is_counted_twice_for_one_approval(dana, marco, nora, needed):
    approval = a_request(approvals_needed=needed)
    people = [dana, marco, nora][:needed]
    for person in people[:-1]:
        approval = take(approval, person)
        assert approval.state == State.PENDING
    assert take(approval, people[-1]).state == State.APPROVED


# --- Edits -------------------------------------------------------------------------------------


def test_an_edit_binds_the_request_to_the_new_arguments_and_keeps_the_proposal(dana):
    approval = take(a_request(), dana, "edit", arguments=CHEAPER)
    assert approval.final_arguments_text == '{"amount":200,"order":"1001"}'
    assert approval.arguments == ARGUMENTS
    assert approval.final_digest != approval.action_digest
    assert approval.is_edited
    assert approval.shown_title == "Refund less"
    assert approval.decisions.get().action_digest == approval.final_digest


def test_an_edit_without_a_change_is_an_approval(dana):
    approval = take(a_request(risk="critical"), dana, "edit", arguments={"amount": 240.0, "order": "1001"})
    assert (approval.state, approval.is_edited, approval.shown_title) == (State.APPROVED, False, "Refund order 1001")
    assert approval.decisions.get().type == "approve"
    assert approval.final_digest == approval.action_digest


def test_an_edit_voids_the_approvals_before_it(dana, marco, nora):
    approval = take(a_request(approvals_needed=2), dana)
    approval = take(approval, marco, "edit", arguments=CHEAPER)
    assert approval.state == State.PENDING
    assert approval.decisions.get(user=dana).undone_at is not None
    approval = take(approval, dana)  # now she has approved this one
    assert approval.state == State.APPROVED
    assert {d.user for d in approval.decisions.filter(undone_at=None)} == {dana, marco}


def test_an_edit_of_an_edit_counts_alone(dana, marco, nora):
    approval = take(a_request(approvals_needed=2), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco, "edit", arguments=CHEAPEST)
    assert (approval.state, approval.final_arguments_text) == (State.PENDING, '{"amount":1,"order":"1001"}')
    assert take(approval, nora).state == State.APPROVED


@pytest.mark.parametrize("risk", ["high", "critical"])
def test_at_high_risk_the_editor_is_not_the_only_approver(dana, marco, risk):
    approval = take(a_request(risk=risk), dana, "edit", arguments=CHEAPER)
    assert approval.state == State.PENDING
    assert code(decide(approval, a_decision(approval, dana))) == "decided_by_you"
    approval = take(approval, marco)
    assert (approval.state, approval.final_arguments_text) == (State.APPROVED, '{"amount":200,"order":"1001"}')


def test_nor_does_an_edit_of_theirs_that_changes_nothing(dana, marco, nora):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco, "edit", arguments=CHEAPEST)
    assert code(decide(approval, a_decision(approval, dana, "edit", arguments=CHEAPEST))) == "editor"


def test_at_high_risk_whoever_changed_it_before_does_not_approve_what_others_made_of_it(dana, marco, nora):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco, "edit", arguments=CHEAPEST)
    refused = decide(approval, a_decision(approval, dana))
    assert code(refused) == "editor"
    assert refused.message == "You changed these arguments, so somebody else must approve them."
    assert read(approval).state == State.PENDING
    assert take(read(approval), nora).state == State.APPROVED


def test_whoever_took_their_change_back_approves_what_others_made_of_the_call(dana, marco):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPEST)
    undo(approval, dana)
    approval = take(read(approval), marco, "edit", arguments=CHEAPER)
    assert take(approval, dana).state == State.APPROVED


@pytest.mark.parametrize("risk", ["low", "medium"])
def test_at_low_and_medium_risk_the_editor_may_be(dana, risk):
    assert take(a_request(risk=risk), dana, "edit", arguments=CHEAPER).state == State.APPROVED


def test_at_high_risk_an_editor_is_not_one_of_two(dana, marco, nora):
    approval = take(a_request(risk="high", approvals_needed=2), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco)
    assert approval.state == State.PENDING
    assert take(approval, nora).state == State.APPROVED


def test_rejecting_an_edited_call_rejects_the_call(dana, marco):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPER)
    assert take(approval, marco, "reject").state == State.REJECTED


# --- Undone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
def test_a_decision_is_undone_while_it_is_held_and_can_be_taken_anew(dana, type):
    changes = {"arguments": CHEAPER} if type == "edit" else {}
    before = a_request(hold_seconds=30)
    approval = undo(take(before, dana, type, **changes), dana)
    assert isinstance(approval, Approval)
    approval = read(approval)
    assert (approval.state, approval.version) == (State.PENDING, 3)
    assert (approval.decided_at, approval.runs_at, approval.use_by) == (None, None, None)
    assert not approval.is_edited
    assert approval.shown_title == "Refund order 1001"
    assert not consume(approval)
    assert take(approval, dana).state == State.APPROVED
    undone = ledger.Event.objects.get(type="approval.undone")
    assert (undone.actor, undone.data["approval"]) == (f"user:{dana.pk}:dana", str(approval.pk))


def test_only_ones_own_decision_is_undone(dana, marco, sam):
    approval = take(a_request(hold_seconds=30), dana)
    assert code(undo(approval, marco)) == "not_yours"
    assert code(undo(approval, sam)) == "not_yours"
    assert isinstance(undo(approval, dana), Approval)
    assert code(undo(approval, dana)) == "not_yours"


def test_what_was_used_or_has_reached_the_agent_is_not_undone(dana):
    used = a_moment_ago(take(a_request(), dana), "runs_at")
    assert consume(used)
    assert code(undo(used, dana)) == "too_late"
    settled = a_moment_ago(take(a_request(), dana, "reject"), "runs_at")
    with ledger.transaction():
        assert decisions.settle(settled)
    assert code(undo(settled, dana)) == "too_late"


@pytest.mark.parametrize("state", ["expired", "withdrawn", "superseded"])
def test_a_closed_request_is_not_opened_again(dana, state):
    approval = take(a_request(approvals_needed=2), dana)
    Approval.objects.filter(pk=approval.pk).update(state=state)
    assert code(undo(approval, dana)) == "too_late"


def test_undoing_a_request_that_is_not_there_says_so(dana):
    approval = a_request()
    approval.pk = approval.run_id
    assert code(undo(approval, dana)) == "not_found"


def test_the_first_of_two_can_take_an_approval_back_before_the_second_gives_theirs(dana, marco):
    approval = take(a_request(approvals_needed=2), dana)
    assert isinstance(undo(approval, dana), Approval)
    approval = take(approval, marco)
    assert approval.state == State.PENDING
    assert take(approval, dana).state == State.APPROVED


def test_either_of_two_can_take_an_approval_back_and_the_other_stands(dana, marco):
    approval = take(take(a_request(approvals_needed=2, hold_seconds=30), dana), marco)
    assert isinstance(undo(approval, dana), Approval)
    assert code(decide(approval, a_decision(read(approval), marco))) == "decided_by_you"
    assert take(approval, dana).state == State.APPROVED


def test_undoing_an_edit_voids_the_approvals_of_the_edited_call(dana, marco):
    """Otherwise the person who approved the edit could neither decide again nor undo that."""
    approval = take(a_request(risk="high", hold_seconds=30), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco)
    assert approval.state == State.APPROVED
    assert isinstance(undo(approval, dana), Approval)
    approval = read(approval)
    assert (approval.state, approval.final_digest, approval.final_arguments_text) == (State.PENDING, "", "")
    assert not approval.decisions.filter(undone_at=None).exists()
    approval = take(approval, marco)
    assert (approval.state, approval.final_digest) == (State.APPROVED, approval.action_digest)


def test_undoing_an_approval_of_an_edit_leaves_the_edit(dana, marco, nora):
    approval = take(a_request(risk="high", hold_seconds=30), dana, "edit", arguments=CHEAPER)
    approval = take(approval, marco)
    assert isinstance(undo(approval, marco), Approval)
    approval = read(approval)
    assert approval.is_edited
    assert take(approval, nora).final_arguments_text == '{"amount":200,"order":"1001"}'


def test_a_rejection_undone_leaves_the_approval_before_it(dana, marco, nora):
    approval = take(a_request(approvals_needed=2, hold_seconds=30), dana)
    approval = take(approval, marco, "reject")
    assert isinstance(undo(approval, marco), Approval)
    assert take(approval, nora).state == State.APPROVED


# --- Looked at again before the call -----------------------------------------------------------


def test_somebody_who_may_no_longer_decide_makes_an_approval_worthless(dana, marco, roles):
    approval = take(take(a_request(approvals_needed=2, groups=(roles["approver"].pk,)), dana), marco)
    assert standing.deciders_still_allowed(approval)
    marco.groups.clear()
    assert not standing.deciders_still_allowed(approval)
    marco.groups.add(roles["approver"])
    assert standing.deciders_still_allowed(approval)
    dana.is_active = False
    dana.save()
    assert not standing.deciders_still_allowed(approval)


def test_somebody_whose_decision_was_undone_does_not_matter_any_more(dana, marco):
    approval = take(a_request(hold_seconds=30), dana)
    undo(approval, dana)
    approval = take(approval, marco)
    dana.is_active = False
    dana.save()
    assert standing.deciders_still_allowed(approval)


def test_a_request_approved_by_hand_is_not_bound(dana):
    approval = take(a_request(approvals_needed=2), dana)
    moment = approval.created_at
    Approval.objects.filter(pk=approval.pk).update(
        state="approved", decided_at=moment, runs_at=moment, use_by=approval.expires_at
    )
    assert not standing.is_bound(read(approval))


def test_an_edit_approved_by_hand_at_high_risk_is_not_bound(dana):
    approval = take(a_request(risk="high"), dana, "edit", arguments=CHEAPER)
    moment = approval.created_at
    Approval.objects.filter(pk=approval.pk).update(
        state="approved", decided_at=moment, runs_at=moment, use_by=approval.expires_at
    )
    assert not standing.is_bound(read(approval))
