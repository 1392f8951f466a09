"""An approval is used once, for exactly what was approved; and what the database itself refuses."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from approvals import decisions, ledger, standing
from approvals.digest import canonical
from approvals.models import Approval, Channel, Decision, Notification
from tests.rows import a_moment_ago, a_request, consume, read, take, within_transaction

pytestmark = pytest.mark.django_db

State = Approval.State
CHEAPER = {"order": "1001", "amount": 200}


@pytest.fixture
def approved(dana) -> Approval:
    """Approved, and due."""
    return a_moment_ago(take(a_request(), dana), "runs_at")


def test_an_approval_is_used_exactly_once(approved):
    assert consume(approved)
    used = read(approved)
    assert used.state == State.USED
    assert used.used_at is not None
    assert not consume(approved)
    assert not within_transaction(decisions.consume, approved)
    event = ledger.Event.objects.get(type="approval.used")
    about = {"execution": str(approved.execution_id), "tool": "refund_order", "risk": "medium"}
    assert event.data == {"approval": str(approved.pk), "action_digest": approved.final_digest, **about}


def test_an_approval_is_not_used_while_it_is_held(dana):
    approval = take(a_request(hold_seconds=30), dana)
    assert not consume(approval)
    assert consume(a_moment_ago(approval, "runs_at"))


def test_an_approval_is_not_used_too_late(approved):
    assert not consume(a_moment_ago(approved, "use_by"))
    assert read(approved).state == State.APPROVED


@pytest.mark.parametrize("type", ["reject", "respond"])
def test_a_rejection_is_no_approval(dana, type):
    assert not consume(a_moment_ago(take(a_request(), dana, type), "runs_at"))


def test_a_pending_request_is_no_approval():
    assert not consume(a_request())


def test_a_row_read_before_a_change_uses_nothing(approved):
    old = read(approved)
    Approval.objects.filter(pk=approved.pk).update(version=approved.version + 1)
    assert not within_transaction(decisions.consume, old)
    old.version += 1
    assert within_transaction(decisions.consume, old)


@pytest.mark.parametrize(
    "change",
    [
        {"final_arguments_text": canonical({"order": "1001", "amount": 99999})},
        {"final_arguments_text": canonical({"order": "1002", "amount": 240})},
        {"final_arguments_text": '{"order":"1001","amount":'},
        {"final_arguments_text": ""},
        {"final_digest": "0" * 64},
        {"tool": "pay_out"},
        {"tool_version": "v2"},
        {"run_id": "019a0000-0000-7000-8000-000000000009"},
        {"execution_id": "019a0000-0000-7000-8000-000000000009"},
    ],
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values()))[:20]}",
)
def test_a_call_changed_by_hand_after_the_approval_is_not_covered_by_it(approved, change):
    assert standing.is_bound(approved)
    Approval.objects.filter(pk=approved.pk).update(**change)
    changed = read(approved)
    assert not standing.is_bound(changed)
    assert not consume(changed)


def test_the_same_arguments_written_differently_are_the_same_call(approved):
    Approval.objects.filter(pk=approved.pk).update(final_arguments_text='{ "order": "1001", "amount": 240.0 }')
    assert standing.is_bound(read(approved))


def test_an_edited_call_is_used_as_it_was_edited(dana):
    approval = a_moment_ago(take(a_request(), dana, "edit", arguments=CHEAPER), "runs_at")
    assert consume(approval)
    assert ledger.Event.objects.get(type="approval.used").data["action_digest"] == approval.final_digest


def test_using_outside_of_a_transaction_changes_nothing(approved):
    with pytest.raises(RuntimeError), transaction.atomic():
        decisions.consume(approved)
    assert read(approved).state == State.APPROVED


# --- What the database refuses -----------------------------------------------------------------


def refused(**change: object) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Approval.objects.update(**change)


@pytest.mark.parametrize("missing", ["decided_at", "runs_at", "use_by", "final_digest"])
@pytest.mark.parametrize("state", ["approved", "used"])
def test_nothing_is_approved_without_being_bound_to_arguments_and_a_time(approved, state, missing):
    refused(state=state, used_at=timezone.now(), **{missing: "" if missing == "final_digest" else None})


def test_nothing_is_used_without_a_time(approved):
    refused(state="used", used_at=None)


def test_nothing_pending_has_been_used():
    a_request()
    refused(used_at=timezone.now())


def test_a_pending_request_cannot_be_called_approved_by_plain_sql():
    approval = a_request()
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_approval SET state = 'approved'")
    assert read(approval).state == State.PENDING


def test_a_call_has_one_open_request_at_most(dana):
    first = a_request()
    with pytest.raises(IntegrityError), transaction.atomic():
        a_request(execution_id=first.execution_id)
    take(first, dana)
    with pytest.raises(IntegrityError), transaction.atomic():
        a_request(execution_id=first.execution_id)
    within_transaction(decisions.supersede, read(first), "It has changed.")
    second = a_request(execution_id=first.execution_id, supersedes_id=first.pk)
    assert second.supersedes == read(first)
    refused(state="pending")


def test_a_person_has_one_standing_decision_about_a_request(dana):
    approval = take(a_request(approvals_needed=2), dana)
    decision = approval.decisions.get()
    decision.pk, decision._state.adding = approval.pk, True
    with pytest.raises(IntegrityError), transaction.atomic():
        decision.save(force_insert=True)
    Decision.objects.update(undone_at=timezone.now())
    decision.save(force_insert=True)


def test_a_channel_is_told_once_about_a_request():
    approval, channel = a_request(), Channel.objects.create(name="desk", kind="memory")
    Notification.objects.create(approval=approval, channel=channel, created_at=timezone.now())
    with pytest.raises(IntegrityError), transaction.atomic():
        Notification.objects.create(approval=approval, channel=channel, created_at=timezone.now())


def test_an_approval_is_used_within_the_time_it_was_given(dana):
    approval = take(a_request(hold_seconds=10), dana)
    assert approval.use_by - approval.runs_at == timedelta(hours=1)
