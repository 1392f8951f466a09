"""Requests and decisions as time passes: expiring, settling, withdrawing, superseding."""

import uuid

import pytest

from approvals import decisions, ledger
from approvals.models import Approval
from tests.rows import (
    a_moment_ago,
    a_request,
    consume,
    events,
    in_state,
    read,
    take,
    undo,
    within_transaction,
)

pytestmark = pytest.mark.django_db

State = Approval.State
CLOSED = [State.APPROVED, State.REJECTED, State.RESPONDED, State.EXPIRED, State.WITHDRAWN, State.SUPERSEDED, State.USED]


def told(approval: Approval) -> list[str]:
    return events(ledger.run_chain(approval.run_id))


def test_what_nobody_decided_expires_when_its_time_is_up():
    approval = a_request()
    assert not within_transaction(decisions.expire, approval.pk)
    a_moment_ago(approval, "expires_at")
    assert within_transaction(decisions.expire, approval.pk)
    assert not within_transaction(decisions.expire, approval.pk)
    assert read(approval).state == State.EXPIRED
    assert told(approval) == ["approval.requested", "approval.expired"]


def test_what_nobody_used_in_time_expires_too(dana):
    approval = take(a_request(), dana)
    assert not within_transaction(decisions.expire, approval.pk)
    approval = a_moment_ago(approval, "runs_at", "use_by", "expires_at")
    assert not consume(approval)
    assert within_transaction(decisions.expire, approval.pk)
    assert ledger.Event.objects.get(type="approval.expired").data["reason"] == "approved, but not used in time"


@pytest.mark.parametrize("state", [s for s in CLOSED if s != State.APPROVED])
def test_nothing_closed_expires(dana, state):
    approval = a_moment_ago(in_state(state, dana), "expires_at")
    assert not within_transaction(decisions.expire, approval.pk)
    assert read(approval).state == state


@pytest.mark.parametrize("type", ["reject", "respond"])
def test_a_rejection_or_an_answer_reaches_the_agent_once_and_not_while_it_is_held(dana, type):
    approval = take(a_request(hold_seconds=30), dana, type)
    assert not within_transaction(decisions.settle, approval)
    approval = a_moment_ago(approval, "runs_at")
    assert within_transaction(decisions.settle, approval)
    assert not within_transaction(decisions.settle, approval)
    assert read(approval).used_at is not None


def test_an_expiry_reaches_the_agent_once(dana):
    approval = in_state(State.EXPIRED, dana)
    assert within_transaction(decisions.settle, approval)
    assert not within_transaction(decisions.settle, approval)


@pytest.mark.parametrize("state", ["pending", "approved", "used", "withdrawn", "superseded"])
def test_nothing_else_is_settled(dana, state):
    approval = a_request() if state == "pending" else in_state(state, dana)
    assert not within_transaction(decisions.settle, approval)


def test_a_rejection_undone_meanwhile_does_not_reach_the_agent(dana):
    approval = a_moment_ago(take(a_request(hold_seconds=30), dana, "reject"), "runs_at")
    assert isinstance(undo(approval, dana), Approval)
    assert not within_transaction(decisions.settle, approval)


def test_a_run_that_ends_withdraws_whatever_has_not_taken_effect(dana):
    run_id = uuid.uuid4()
    pending, approved, rejected, used = (a_request(run_id=run_id) for _ in range(4))
    take(approved, dana)
    take(rejected, dana, "reject")
    assert consume(a_moment_ago(take(used, dana), "runs_at"))
    other = a_request()
    assert within_transaction(decisions.withdraw, run_id, "The run has ended.") == 3
    assert within_transaction(decisions.withdraw, run_id, "The run has ended.") == 0
    assert [read(a).state for a in (pending, approved, rejected, used, other)] == [
        "withdrawn", "withdrawn", "withdrawn", "used", "pending",
    ]  # fmt: skip
    assert told(pending).count("approval.withdrawn") == 3


@pytest.mark.parametrize("state", [s for s in CLOSED if s not in Approval.DECIDED])
def test_only_an_open_request_is_superseded(dana, state):
    assert not within_transaction(decisions.supersede, in_state(state, dana), "It has changed.")
    for opened in (a_request(), in_state(State.APPROVED, dana)):
        assert within_transaction(decisions.supersede, opened, "It has changed.")
        assert not consume(a_moment_ago(opened, "runs_at"))


@pytest.mark.parametrize("state", [State.REJECTED, State.RESPONDED])
def test_what_people_said_is_superseded_until_it_has_reached_the_agent(dana, state):
    said, reached = in_state(state, dana), a_moment_ago(in_state(state, dana), "runs_at")
    assert within_transaction(decisions.settle, reached)
    assert not within_transaction(decisions.supersede, reached, "It has changed.")
    assert within_transaction(decisions.supersede, said, "It has changed.")


def test_a_decision_made_before_a_change_cannot_be_used_after_it(dana):
    approval = a_moment_ago(take(a_request(), dana), "runs_at")
    Approval.objects.filter(pk=approval.pk).update(version=approval.version + 1)
    assert not within_transaction(decisions.consume, approval)
