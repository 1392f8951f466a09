"""Questions before a decision: the clock stops until they are answered."""

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.contrib.auth.models import User

from approvals import approval_events, claims, ledger, people, questions, timing
from approvals.accepting import no_longer_open
from approvals.decisions.escalating import note_breach
from approvals.decisions.rows import locked
from approvals.digest import as_typed
from approvals.models import Approval, Notification, Question
from approvals.sealed import sealed
from approvals.standing import Refusal, may_decide


def ask(approval_id: uuid.UUID, user: User, text: str, within: timedelta) -> Question | Refusal:
    """Ask before deciding. The first question stops the clock until it is answered, or for this long at most."""
    approval = locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    refused = may_decide(user, approval) or no_longer_open(approval)
    if refused:
        return refused
    if not text.strip():
        return Refusal("message_required", "Write what you want to know.", "text")
    if approval.state == Approval.State.ASKED:
        return Refusal("already_asked", "A question is already open. Wait for its answer, then ask yours.")
    now: datetime = approval.database_now  # type: ignore[attr-defined]
    stops = not questions.about(approval).exists()
    if stops:
        note_breach(approval, now)
        timing.pause(approval, now, now + within)
    answer_by = now + within if stops else min(now + within, approval.expires_at)
    approval.state = Approval.State.ASKED
    approval.save(update_fields=["state", "breached_at", *timing.MOVED])
    question = questions.put(approval, user, as_typed(text), now, answer_by)
    said = sealed(question.text, question.salt)
    data = {"question": str(question.pk), "text": said, "stops_clock": stops}
    data |= {"answer_by": answer_by.isoformat(), "expires_at": approval.expires_at.isoformat()}
    approval_events.record(approval, "asked", data, ledger.actor_of(user))
    return question


def answer(
    question_id: uuid.UUID,
    text: str,
    answerer: User | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    proposed_text: str = "",
) -> bool:
    """Keep the answer to a question, the agent's or a person's. The clock runs again. False: somebody was first.

    The request waits as before, unless the caller sets it aside for what the agent proposes instead, `proposed_text`.
    `facts` go into the event.
    """
    question, approval = _asked(question_id)
    words = as_typed(text)[: questions.MAX_ANSWER_CHARS]
    if not words or not questions.answer(question, words, answerer, proposed_text):
        return False
    _wait_again(approval, question)
    said = sealed(words, question.salt)
    data = {"question": str(question.pk), "answer": said, **facts}
    actor = ledger.actor_of(answerer) if answerer is not None else ledger.MODEL
    approval_events.record(approval, "answered", data, actor)
    people.tell_again(approval.pk, question.asker_id, Notification.Kind.ANSWERED)
    return True


def go_on(question_id: uuid.UUID, why: str) -> bool:
    """Stop waiting for an answer. The clock runs again. False: the question was answered or closed meanwhile."""
    question, approval = _asked(question_id)
    if question.closed_at is not None:
        return False
    _wait_again(approval, question)
    approval_events.record(approval, "unanswered", {"question": str(question.pk), "reason": why})
    return True


def _asked(question_id: uuid.UUID) -> tuple[Question, Approval]:
    """A question and its request, both as they are now, with the request locked."""
    about = Question.objects.values_list("approval_id", flat=True).get(pk=question_id)
    approval = locked(about)
    assert approval is not None
    return Question.objects.get(pk=question_id), approval


def _wait_again(approval: Approval, question: Question) -> None:
    """Let a request wait for people again, if this question is why it did not."""
    if question.closed_at is None:
        let_clock_go_on(approval, question)
        approval.state = Approval.State.PENDING
        approval.save(update_fields=["state", "paused_seconds", *timing.MOVED])
        claims.wake_in_time(approval)


def let_clock_go_on(approval: Approval, question: Question) -> None:
    """Close a request's open question and let its clock run again. Not saved: the caller moves the request."""
    if questions.stops_clock(question):
        until = min(approval.database_now, question.answer_by)  # type: ignore[attr-defined]
        timing.pause(approval, question.asked_at, until, planned_until=question.answer_by)
        approval.paused_seconds = round((until - question.asked_at).total_seconds())
    questions.close([approval.pk])
