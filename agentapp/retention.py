"""Removes what is older than the RETENTION_… settings allow. Off until one of them is set.

Runs that ended longer ago lose their words, as when a person erases them; the ledger keeps everything it has. In a
conversation that a person has taken over, recent messages keep the words of its runs. Notifications lose their name at
the receiving end and what went wrong. Evals are deleted, and the runs they began lose their words. Evals that are under
way, the last of each suite and those that others are compared with stay.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from agentapp import breakers, conversations, erasing, runs
from agentapp.evals import results
from agentapp.models import Conversation, EvalResult, EvalRun, Message, Run, ToolExecution
from agentapp.refused import Refused
from approvals import clock, ledger, notify
from approvals.models import Approval
from approvals.sealed import ERASED

BY = "retention"
BATCH = 100
# The most in one go; the next beat continues.
MOST = 5000
MOST_EVALS = 200


@dataclass(frozen=True)
class Due:
    """What of one kind would be removed now: how much, and the date before which it is too old."""

    kind: str
    days: int
    before: datetime
    counts: dict[str, int]

    @property
    def is_nothing(self) -> bool:
        return not any(self.counts.values())


def preview() -> list[Due]:
    """What would be removed now, by kind. Empty if nothing is set."""
    kept = {kind: days for kind, days in settings.RETENTION_DAYS.items() if days}
    if not kept:
        return []
    # The database's clock: a local clock that runs ahead would remove everything.
    now, found = clock.asked(), []
    for kind, days in kept.items():
        before = now - timedelta(days=days)
        found.append(Due(kind, days, before, _counts(kind, before)))
    return found


def apply() -> dict[str, int]:
    """Remove what is too old, in batches, each run in its own transaction. Returns how much of each kind."""
    total: dict[str, int] = {}
    for due in preview():
        if due.kind == "notifications":
            total["notifications"] = notify.forget(due.before)
        elif due.kind == "evals":
            _add(total, _forget_evals(due.before))
        else:
            _add(total, _take_away(due.before))
    gone = {name: number for name, number in total.items() if number}
    if gone:
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "retention.applied", {"days": dict(settings.RETENTION_DAYS), **gone})
    return gone


@shared_task
def apply_due() -> None:
    """Finish interrupted erasures, and remove what has become too old."""
    for erasure_id in erasing.unfinished():
        try:
            erasing.carry_out(erasure_id)
        except Refused:
            continue  # one of their runs has started working meanwhile; try next time
    apply()


def _take_away(before: datetime) -> dict[str, int]:
    total: dict[str, int] = {}
    for due in (_old(before), Run.objects.filter(pk__in=_said_since(before).values("run"))):
        tried: set[uuid.UUID] = set()
        while len(tried) < MOST:
            batch = list(due.exclude(pk__in=tried).order_by("finished_at").values_list("pk", flat=True)[:BATCH])
            if not batch:
                break
            tried.update(batch)
            for run_id in batch:
                _add(total, _take_due(run_id, due, before))
    return total


def _forget_evals(before: datetime) -> dict[str, int]:
    """Erase the words of an eval's runs first: if the worker is killed, the eval is still there for the next time."""
    total: dict[str, int] = {}
    for eval_id in list(results.old(before).order_by("finished_at").values_list("pk", flat=True)[:MOST_EVALS]):
        runs = list(_runs_of(EvalRun.objects.filter(pk=eval_id)))
        for run_id in [run_id for level in runs for run_id in level.values_list("pk", flat=True)]:
            _add(total, _take_one(run_id))
        if not any(level.exists() for level in runs) and results.forget(eval_id, before):
            _add(total, {"evals": 1})
    return total


def _runs_of(evals: QuerySet[EvalRun]) -> Iterator[QuerySet[Run]]:
    """The runs that these evals began and that still have words, then those they asked for, one level at a time."""
    begun = EvalResult.objects.filter(eval_run__in=evals.values("pk"), run__isnull=False)
    level = Run.objects.filter(pk__in=begun.values("run"))
    while level.exists():
        yield level.filter(erased_at__isnull=True)
        level = Run.objects.filter(parent__in=level.values("pk"))


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


def _take_one(run_id: uuid.UUID, before: datetime | None = None) -> dict[str, int]:
    try:
        with ledger.transaction():
            return erasing.take_away(run_id, BY, {}, before)
    except Refused:
        return {}  # somebody has started to look into it


def _take_due(run_id: uuid.UUID, due: QuerySet[Run], before: datetime) -> dict[str, int]:
    """Erase a run's words if it is still due under lock, when nobody can add to it or take over its conversation."""
    with ledger.transaction():
        runs.lock_parent(run_id)
        run = runs.lock(run_id)
        if run is None or not due.filter(pk=run_id).exists():
            return {}
        breakers.erase_said(run)  # first: wherever both are locked, breakers come before a conversation
        if run.conversation is not None:
            conversations.lock(run.conversation)
        return _take_one(run_id, before) if due.filter(pk=run_id).exists() else {}


def _old(before: datetime) -> QuerySet[Run]:
    """Runs that ended too long ago, unless a run above or below is at work or a person holds their conversation."""
    unknown = Q(executions__state=ToolExecution.State.OUTCOME_UNKNOWN, executions__mocked=False)
    ended = Run.objects.filter(state__in=Run.FINAL, finished_at__lt=before, erased_at__isnull=True)
    at_work = Q(parent__isnull=False) & ~Q(parent__state__in=Run.FINAL)
    under_way = EvalResult.objects.filter(run__isnull=False).exclude(eval_run__state__in=EvalRun.FINAL)
    ended = ended.exclude(pk__in=under_way.values("run"))
    ended = ended.exclude(pk__in=Run.objects.filter(unknown).values("pk")).exclude(at_work)
    # While a person speaks, messages belong to the run that they took over, long after it has ended.
    said = Message.objects.filter(run=OuterRef("pk"), conversation=OuterRef("conversation"), created_at__gte=before)
    held = _held(before).filter(pk=OuterRef("conversation"))
    return ended.exclude(taken_over_at__gte=before).exclude(Exists(said)).exclude(Exists(held))


def _said_since(before: datetime) -> QuerySet[Message]:
    """Messages that are too old and were added after their run had been erased, so that they did not go with it."""
    said = Message.objects.filter(run__erased_at__isnull=False, created_at__lt=before).exclude(content=ERASED)
    return said.exclude(conversation__in=_held(before).values("pk"))


def _held(before: datetime) -> QuerySet[Conversation]:
    """Conversations that wait for a person or that a person has taken over, with activity since that date."""
    said = Message.objects.filter(conversation=OuterRef("pk"), created_at__gte=before)
    taken = Run.objects.filter(conversation=OuterRef("pk"), taken_over_at__gte=before)
    lately = Q(person_wanted_at__gte=before) | Exists(said) | Exists(taken)
    return Conversation.objects.filter(lately, mode=Conversation.Mode.MANUAL)


def _counts(kind: str, before: datetime) -> dict[str, int]:
    if kind == "notifications":
        return {"notifications": notify.old(before).count()}
    if kind == "evals":
        evals = results.old(before)
        return {"evals": evals.count(), "runs": sum(level.count() for level in _runs_of(evals))}
    old = _old(before)
    return {
        "runs": old.count(),
        "calls": ToolExecution.objects.filter(run__in=old).count(),
        "requests": Approval.objects.filter(run_id__in=old.values("pk")).count(),
        "messages": Message.objects.filter(run__in=old).count() + _said_since(before).count(),
    }
