"""What rows say that people approved is compared with the ledger: before a call, and every day."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import as_recorded, cards, standing
from approvals.decisions import erase
from approvals.digest import canonical
from approvals.models import Approval, Decision
from approvals.proof import verifying
from tests.rows import a_moment_ago, a_request, consume, read, take, undo, within_transaction

pytestmark = pytest.mark.django_db

CHEAPER = {"order": "1001", "amount": 200}
DEARER = canonical({"order": "1001", "amount": 99999})


def used(dana: User, type: str = "approve", **changes: Any) -> Approval:
    approval = a_moment_ago(take(a_request(), dana, type, **changes), "runs_at")
    assert consume(approval)
    return read(approval)


def rewritten(approval: Approval, **changes: Any) -> Approval:
    """Change a request with all its digests, and its decisions with it."""
    Approval.objects.filter(pk=approval.pk).update(**changes)
    digest = cards.final_digest(read(approval))
    Approval.objects.filter(pk=approval.pk).update(final_digest=digest)
    Decision.objects.filter(approval=approval).update(action_digest=digest)
    return read(approval)


def are_recorded(approval: Approval) -> bool:
    given = standing.decided(approval)
    assert given
    return standing.are_recorded(given)


@pytest.mark.parametrize("changes", [{}, {"arguments": CHEAPER}], ids=["as proposed", "changed"])
def test_what_people_approved_is_recorded(dana, changes):
    approval = take(a_request(), dana, "edit" if changes else "approve", **changes)
    assert are_recorded(approval)
    assert as_recorded.compare(None, 10) == (None, None)
    assert consume(a_moment_ago(approval, "runs_at"))
    assert as_recorded.compare(None, 10) == (None, None)


def test_each_of_several_who_approve_is_recorded(dana, marco):
    approval = a_request(approvals_needed=2)
    take(approval, dana)
    assert are_recorded(take(approval, marco))
    assert as_recorded.compare(None, 10) == (None, None)


@pytest.mark.parametrize(
    "change",
    [{"action_digest": "0" * 64}, {"type": "edit"}, {"user": "marco"}, {"approval_id": "other"}],
    ids=lambda change: next(iter(change)),
)
def test_a_decision_that_is_not_as_the_ledger_has_it_is_noticed(dana, marco, change):
    approval, other = take(a_request(), dana), a_request()
    assert are_recorded(approval)
    change = {"user": {"user": marco}, "approval_id": {"approval_id": other.pk}}.get(next(iter(change)), change)
    Decision.objects.update(**change)
    assert not are_recorded(other if "approval_id" in change else approval)


def test_a_decision_that_was_taken_back_does_not_come_back(dana):
    approval = take(a_request(hold_seconds=60), dana)
    undo(approval, dana)
    Decision.objects.update(undone_at=None)
    assert not are_recorded(approval)
    Decision.objects.update(undone_at=timezone.now())
    assert are_recorded(take(approval, dana))


def test_a_rejection_need_not_be_looked_up(dana):
    approval = take(a_request(), dana, "reject")
    assert are_recorded(approval)


# --- Every day ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"final_arguments_text": DEARER}, {"tool": "pay_out"}, {"salt": "0" * 32}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("is_used", [False, True], ids=["approved", "used"])
def test_a_request_rewritten_with_its_digests_is_named(dana, change, is_used):
    approval = rewritten(used(dana) if is_used else take(a_request(), dana), **change)
    _, differing = as_recorded.compare(None, 10)
    assert differing is not None
    assert (differing.chain, differing.seq) == (f"run:{approval.run_id}", 2)  # the event in which it was approved
    assert differing.problem == f"what people approved here is not what the row of {approval.reference} says"


def test_a_request_whose_text_alone_was_changed_is_named(dana):
    approval = used(dana)
    Approval.objects.update(final_arguments_text=DEARER)
    assert approval.reference in as_recorded.compare(None, 10)[1].problem


def test_a_request_moved_to_another_run_is_named(dana):
    approval, other = used(dana), a_request()
    rewritten(approval, run_id=other.run_id)
    assert as_recorded.compare(None, 10)[1] is not None


def test_a_request_that_nobody_approved_is_named():
    approval, now = a_request(), timezone.now()
    Approval.objects.update(
        state="used", decided_at=now, runs_at=now, use_by=now, used_at=now, ended_at=now, ended_as="decided",
        final_digest=approval.action_digest, final_arguments_text=approval.arguments_text,
    )  # fmt: skip
    _, differing = as_recorded.compare(None, 10)
    assert (differing.seq, differing.problem) == (
        1, f"no event says that people approved {approval.reference}, and its row does"
    )  # fmt: skip


def test_a_request_that_was_approved_but_never_used_cannot_be_called_used(dana):
    approval = take(a_request(), dana)
    Approval.objects.update(state="used", used_at=timezone.now())
    assert approval.reference in as_recorded.compare(None, 10)[1].problem


def test_a_request_whose_words_were_erased_is_compared_by_its_digest(dana):
    approval = used(dana)
    within_transaction(erase, [approval.run_id], "ada")
    assert as_recorded.compare(None, 10) == (None, None)
    Approval.objects.update(final_digest="0" * 64)
    assert as_recorded.compare(None, 10)[1] is not None


def test_all_are_compared_however_they_are_cut(dana):
    made = sorted((used(dana) for _ in range(5)), key=lambda each: each.pk)
    a_request()
    keys, after = [], None
    while True:
        after, differing = as_recorded.compare(after, 2)
        assert differing is None
        if after is None:
            break
        keys.append(after)
    assert keys == [made[1].pk, made[3].pk]
    rewritten(made[4], tool="pay_out")
    assert as_recorded.compare(made[3].pk, 2)[1] is not None


def test_the_daily_check_compares(dana, monkeypatch):
    monkeypatch.setattr(verifying, "_ROWS", 2)
    made = [used(dana) for _ in range(5)]
    assert verifying.look().broken is None
    rewritten(made[4], tool="pay_out")
    row = verifying.start(None)
    while verifying.go_on(row.pk, 0):
        pass
    row.refresh_from_db()
    assert (row.holds, row.broken["seq"]) == (False, 2)
    assert made[4].reference in verifying.named(row.broken)
