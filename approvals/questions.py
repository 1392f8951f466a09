"""The only writer of Question: what people ask before they decide, and the answers.

A question moves its request as well; `decisions` does that and calls these functions. The caller holds the lock on the
run's row and is inside `ledger.transaction()`.
"""

import functools
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Case, DateTimeField, F, OuterRef, QuerySet, Subquery, UUIDField, When

from approvals.clock import Now
from approvals.models import Approval, Question
from approvals.prepared import Given, Prepared
from approvals.sealed import ERASED, GONE

MAX_CHARS = 2000
MAX_ANSWER_CHARS = 8000


def put(approval: Approval, asker: User, text: str, asked_at: datetime, answer_by: datetime) -> Question:
    question: Question = Question.objects.create(
        approval=approval, asker=asker, text=text[:MAX_CHARS], asked_at=asked_at, answer_by=answer_by
    )
    return question


def answer(question: Question, text: str, answerer: User | None, proposed_text: str = "") -> bool:
    """Keep an answer, even if the question was closed meanwhile. False: somebody was first."""
    unanswered = Question.objects.filter(pk=question.pk, answer="")
    closed_at = question.closed_at or Now()
    said = {"answer": text[:MAX_ANSWER_CHARS], "answerer": answerer, "proposed_text": proposed_text}
    return bool(unanswered.update(**said, closed_at=closed_at))


def close(approval_ids: Sequence[uuid.UUID]) -> int:
    """Stop waiting for an answer: its time is up, or the request was decided or has ended."""
    return Question.objects.filter(approval__in=approval_ids, closed_at__isnull=True).update(closed_at=Now())


def open_in(run_id: uuid.UUID) -> list[Question]:
    """The unanswered questions about a run's calls, oldest first."""
    return _OPEN_IN.rows(run=run_id)


_OPEN_IN = Prepared(
    lambda: Question.objects.filter(approval__run_id=Given("run", UUIDField()), closed_at__isnull=True).order_by(
        "asked_at"
    )
)


def open_about(approvals: Iterable[uuid.UUID]) -> QuerySet[Question]:
    """The unanswered questions about some requests."""
    return Question.objects.filter(approval__in=approvals, closed_at__isnull=True)


def about(approval: Approval) -> QuerySet[Question]:
    """What was asked about a request, and about the requests for the same call that it replaces."""
    return Question.objects.filter(
        approval__execution_id=approval.execution_id, approval__created_at__lte=approval.created_at
    )


def stops_clock(question: Question) -> bool:
    """Whether this question stops its request's clock. Only the first question about a call does."""
    return not about(question.approval).filter(asked_at__lt=question.asked_at).exists()


def stopped_at() -> Case:
    """For a query of decisions: when a question stopped their request's clock. None: none has."""
    first = Question.objects.filter(approval=OuterRef("approval")).order_by("asked_at").values("asked_at")[:1]
    return Case(When(approval__paused_seconds__gt=0, then=Subquery(first)), output_field=DateTimeField())


def stood_by(moment: datetime, paused_seconds: int, stopped_at: datetime | None) -> int:
    """How many seconds a request's clock had been stopped by a moment: one of several people may decide earlier."""
    if stopped_at is None:
        return paused_seconds
    return min(paused_seconds, max(0, round((moment - stopped_at).total_seconds())))


def overdue(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Questions whose time is up, as (question, run)."""
    return _overdue(limit).rows()


@functools.cache
def _overdue(limit: int) -> Prepared[tuple[uuid.UUID, uuid.UUID]]:
    found = Question.objects.filter(closed_at__isnull=True, answer_by__lte=Now()).order_by("answer_by")
    return Prepared(lambda: found.annotate(run=F("approval__run_id")).values_list("pk", "run")[:limit])


def erase(approval_ids: Sequence[uuid.UUID]) -> None:
    """Erase what was asked and answered about some requests."""
    about = Question.objects.filter(approval__in=approval_ids)
    about.exclude(answer="").update(answer=ERASED)
    about.update(text=ERASED, proposed_text="", salt=GONE)
