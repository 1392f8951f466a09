"""What rows say that people approved is compared with the ledger: before a call, and every day."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from approvals import append_only, approval_events, as_recorded, cards, standing
from approvals.decisions import erase
from approvals.digest import canonical
from approvals.models import Approval, Decision, Event
from approvals.proof import verifying
from tests.races import race
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


def on_record(approval: Approval) -> list[Any]:
    return standing.on_record(approval)


def are_recorded(approval: Approval) -> bool:
    """Whether the ledger has every decision that approves it."""
    given = on_record(approval)
    assert given
    return all(each.is_recorded for each in given)


@contextmanager
def append_only_removed() -> Iterator[None]:
    append_only.remove(connection)
    yield
    append_only.install(connection)


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


def test_whoever_agreed_before_a_change_does_not_agree_to_it_later(dana, marco):
    """Neither a change nor taking one back says that others agree. What they said before is not brought back."""
    approval = a_request(approvals_needed=3, hold_seconds=60)
    take(approval, marco)
    before = brought_back(marco, lambda: take(approval, dana, "edit", arguments=CHEAPER))
    assert {each.user: each.is_recorded for each in on_record(approval)} == {marco: False, dana: True}
    before.update(undone_at=timezone.now())
    take(approval, marco)
    brought_back(marco, lambda: undo(approval, dana))
    assert {each.user: each.is_recorded for each in on_record(approval)} == {marco: False}


def brought_back(user: User, change: Callable[[], object]) -> QuerySet[Decision]:
    """Their decision that counts, after something that ends it."""
    [counts] = Decision.objects.filter(user=user, undone_at=None)
    change()
    row = Decision.objects.filter(pk=counts.pk)
    assert row.update(undone_at=None) == 1
    return row


def test_how_sure_it_was_who_decided_is_what_the_ledger_says(dana):
    approval = take(a_request(), dana, assurance="password")
    assert are_recorded(approval)
    Decision.objects.update(assurance="passkey")
    assert not are_recorded(approval)


def test_a_decision_of_a_person_is_not_one_of_nobody(dana):
    approval = take(a_request(), dana)
    Decision.objects.update(user=None, customer="ana", assurance="")
    assert not are_recorded(approval)


def test_a_change_that_let_rejections_count_is_recorded(dana):
    """Its event says that the request was rejected. The rejection can be taken back, and the change stands."""
    approval = take(a_request(), dana, "edit", arguments=CHEAPER)
    with append_only_removed():
        Event.objects.filter(type="approval.approved").update(type="approval.rejected")
    assert are_recorded(approval)


@pytest.mark.parametrize("what", ["used", "expired", "superseded", "withdrawn"])
def test_a_request_that_is_over_does_not_begin_anew(dana, what):
    approval = a_moment_ago(take(a_request(), dana), "runs_at")
    assert standing.is_bound(approval)
    within_transaction(approval_events.record, approval, what)
    assert not standing.is_bound(approval)


def test_what_nobody_approved_is_not_bound_however_few_are_needed():
    approval = a_request()
    Approval.objects.update(
        approvals_needed=0, final_digest=approval.action_digest, final_arguments_text=approval.arguments_text
    )
    assert standing.is_enough(read(approval))
    assert not standing.is_bound(read(approval))


def test_a_confirmation_that_the_ledger_does_not_know_confirms_nothing(dana):
    approval = used(dana)
    Approval.objects.update(kind="confirmation")
    assert standing.is_confirmed(approval.execution_id, approval.final_digest)
    Approval.objects.update(final_digest="0" * 64)
    assert not standing.is_confirmed(approval.execution_id, "0" * 64)


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


def test_a_request_that_was_used_cannot_be_called_anything_else(dana):
    approval = used(dana)
    for state in ("approved", "withdrawn", "pending"):
        Approval.objects.update(state=state, used_at=None, ended_at=None)
        assert approval.reference in as_recorded.compare(None, 10)[1].problem


@pytest.mark.parametrize("text", ["[" * 100_000, "{"], ids=["nested", "cut"])
def test_a_text_that_nobody_can_read_is_named(dana, text):
    approval = used(dana)
    Approval.objects.update(final_arguments_text=text)
    assert approval.reference in as_recorded.compare(None, 10)[1].problem


def test_a_request_is_not_erased_for_saying_so(dana):
    approval = used(dana)
    Approval.objects.update(final_arguments_text=DEARER, erased_at=timezone.now())
    assert approval.reference in as_recorded.compare(None, 10)[1].problem


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


@pytest.mark.django_db(transaction=True)
def test_what_is_used_while_it_is_looked_at_is_no_difference(dana, monkeypatch):
    approval = a_moment_ago(take(a_request(), dana), "runs_at")
    real = as_recorded.with_events

    def slowly(rows: Any, after: Any, most: int, *others: Any) -> Any:
        """The rows are read, and the request is used before their events are."""

        class Slow(type(rows)):
            def __getitem__(self, part: Any) -> Any:
                found = list(super().__getitem__(part))
                if read(approval).state != "used":
                    assert race(lambda: consume(approval)) == [True]
                return found

        rows.__class__ = Slow
        return real(rows, after, most, *others)

    monkeypatch.setattr(as_recorded, "with_events", slowly)
    assert verifying.look().broken is None
    assert read(approval).state == "used"


def test_the_key_of_a_decision_may_be_that_of_something_else(dana, marco):
    """Clients choose it."""
    approval = a_request(approvals_needed=2)
    take(approval, dana, id=approval.pk)
    assert standing.is_bound(take(approval, marco, id=approval.execution_id))
