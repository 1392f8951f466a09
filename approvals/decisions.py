"""The only writer of Approval, Decision and the creation of Notification.

Each function is one transition: it changes rows under a condition, counts them, and records its
event. The caller holds the lock on the run's row, so that a decision and a run that is about to
wait cannot miss each other; and is inside `ledger.transaction()`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q, prefetch_related_objects

from approvals import ledger, people, questions
from approvals.cards import Card, concerns, digest_of, pending
from approvals.clock import Now
from approvals.models import Approval, Channel, Decision, DecisionType, Notification, Question
from approvals.standing import Refusal, final_digest, is_enough, marks_of, may_decide
from approvals.verdicts import Verdict as Verdict
from approvals.verdicts import no_longer_open, refusal, says


@dataclass(frozen=True)
class Taken:
    """A decision that counts, and where the request stands now. `repeated`: it had been sent before."""

    approval: Approval
    decision: Decision
    repeated: bool = False


def request(
    cards: Sequence[Card], now: datetime, channels: Sequence[Channel] = (), audience: Sequence[Sequence[int]] = ()
) -> list[Approval]:
    """Ask people about calls: pending rows, their groups, and a notification for each channel and each of the audience.

    `audience` has the people for each card, as `people.audience` finds them.
    """
    approvals = [pending(card, now) for card in cards]
    prefetch_related_objects(list(channels), "groups")
    Approval.objects.bulk_create(approvals)
    through = Approval.groups.through
    links = [
        through(approval_id=approval.pk, group_id=group)
        for approval, card in zip(approvals, cards, strict=True)
        for group in card.groups
    ]
    through.objects.bulk_create(links)
    notifications = [
        Notification(approval=approval, channel=channel, created_at=now)
        for approval, card in zip(approvals, cards, strict=True)
        for channel in channels
        if concerns(channel, card)
    ]
    notifications += [
        Notification(approval=approval, user_id=user_id, created_at=now)
        for approval, user_ids in zip(approvals, audience, strict=False)
        for user_id in user_ids
    ]
    Notification.objects.bulk_create(notifications)
    for approval in approvals:
        ledger.record(
            ledger.run_chain(approval.run_id),
            "approval.requested",
            {
                "approval": str(approval.pk),
                "execution": str(approval.execution_id),
                "tool": approval.tool,
                "tool_version": approval.tool_version,
                "action_digest": approval.action_digest,
                "view_digest": approval.view_digest,
                "rule": approval.rule,
                "reason": approval.reason,
                "risk": approval.risk,
                "expires_at": approval.expires_at.isoformat(),
                "supersedes": str(approval.supersedes_id or ""),
                "told": [n.channel.name for n in notifications if n.channel and n.approval_id == approval.pk],
                **marks_of(approval),
            },
        )
    return approvals


def decide(approval_id: uuid.UUID, verdict: Verdict, use_within: timedelta) -> Taken | Refusal:
    """Take one person's decision, or a customer's, or say why not. First wins; nothing is changed by a refusal."""
    repeated = Decision.objects.select_related("approval").filter(pk=verdict.id).first()
    if repeated is not None:
        return _repeat(repeated, approval_id, verdict)
    approval = _locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    refused = refusal(approval, verdict)
    if refused:
        return refused
    was_asked = approval.state == Approval.State.ASKED
    decision = _record_decision(approval, verdict)
    now: datetime = approval.db_now  # type: ignore[attr-defined]
    if decision.type in (DecisionType.APPROVE, DecisionType.EDIT):
        _count_approval(approval, decision, now, use_within, verdict.edited_title)
    else:
        approval.state = Approval.State.REJECTED if decision.type == DecisionType.REJECT else Approval.State.RESPONDED
        approval.decided_at = now
        approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    if was_asked and approval.state not in Approval.UNDECIDED:
        _go_on(approval, questions.open_about([approval.pk]).get())
    approval.version = approval.version + 1
    approval.save()
    ledger.record(
        ledger.run_chain(approval.run_id),
        f"approval.{'changed' if approval.state in Approval.UNDECIDED else approval.state}",
        {
            "approval": str(approval.pk),
            "decision": str(decision.pk),
            "type": decision.type,
            "action_digest": decision.action_digest,
            "view_digest": decision.view_digest,
            "message": decision.message,
            "edited": approval.is_edited,
            "runs_at": approval.runs_at.isoformat() if approval.runs_at else "",
            **({"assurance": decision.assurance} if decision.assurance else {}),
            **marks_of(approval),
        },
        actor=verdict.actor,
    )
    return Taken(approval, decision)


def undo(approval_id: uuid.UUID, user: User) -> Approval | Refusal:
    """Take back one's own decision: while it is held, or while it waits for other people's.

    Refused once the worker has acted on it. Without an edit the call stands as it was proposed, and
    whoever approved the edited one has not approved that.
    """
    approval = _locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    mine = approval.decisions.filter(user=user, undone_at__isnull=True).first()
    if mine is None:
        return Refusal("not_yours", "Only the person who decided can undo it.")
    if approval.used_at is not None or approval.state not in (*Approval.UNDECIDED, *Approval.DECIDED):
        return Refusal("too_late", "It has already taken effect and cannot be undone.")
    undone = Q(pk=mine.pk)
    if mine.type == DecisionType.EDIT:
        undone |= Q(approval=approval, undone_at__isnull=True)
        approval.final_arguments_text = approval.final_digest = approval.final_title = ""
    Decision.objects.filter(undone).update(undone_at=Now())
    if approval.state != Approval.State.ASKED:
        approval.state = Approval.State.PENDING
    approval.decided_at = approval.runs_at = approval.use_by = None
    approval.version += 1
    approval.save()
    ledger.record(
        ledger.run_chain(approval.run_id),
        "approval.undone",
        {"approval": str(approval.pk), "decision": str(mine.pk)},
        actor=ledger.actor_of(user),
    )
    return approval


def consume(approval: Approval) -> bool:
    """Use an approval for the one execution it allows.

    False: it is not approved, not due, too old, used, or its arguments are not those that were approved.
    """
    if not approval.final_digest or approval.final_digest != final_digest(approval):
        return False
    used = Approval.objects.filter(
        pk=approval.pk,
        state=Approval.State.APPROVED,
        used_at__isnull=True,
        runs_at__lte=Now(),
        use_by__gt=Now(),
        final_digest=approval.final_digest,
        version=approval.version,
    ).update(state=Approval.State.USED, used_at=Now())
    if used:
        ledger.record(
            ledger.run_chain(approval.run_id),
            "approval.used",
            {"approval": str(approval.pk), "action_digest": approval.final_digest},
        )
    return bool(used)


def settle(approval: Approval) -> bool:
    """Mark that a rejection, an answer or an expiry has reached the agent.

    False: it can still be undone, or was undone or settled meanwhile.
    """
    states = [Approval.State.REJECTED, Approval.State.RESPONDED, Approval.State.EXPIRED]
    due = Q(runs_at__isnull=True) | Q(runs_at__lte=Now())
    found = Approval.objects.filter(
        due, pk=approval.pk, state__in=states, used_at__isnull=True, version=approval.version
    )
    return bool(found.update(used_at=Now()))


def expire(approval_id: uuid.UUID) -> bool:
    """End a request nobody decided in time, or an approval nobody used in time. Absence never approves."""
    pending = Approval.objects.filter(pk=approval_id, state__in=Approval.UNDECIDED, expires_at__lte=Now())
    unused = Approval.objects.filter(pk=approval_id, state=Approval.State.APPROVED, use_by__lte=Now())
    if _close(pending, Approval.State.EXPIRED):
        why = "no one decided"
    elif _close(unused, Approval.State.EXPIRED):
        why = "approved, but not used in time"
    else:
        return False
    questions.close([approval_id])
    approval = Approval.objects.only("run_id").get(pk=approval_id)
    ledger.record(ledger.run_chain(approval.run_id), "approval.expired", {"approval": str(approval_id), "reason": why})
    return True


def withdraw(run_id: uuid.UUID, reason: str) -> int:
    """Close every open request of a run that has ended. Returns how many."""
    open_ids = list(
        Approval.objects.filter(
            run_id=run_id, used_at__isnull=True, state__in=[*Approval.UNDECIDED, *Approval.DECIDED]
        ).values_list("pk", flat=True)
    )
    if not open_ids:
        return 0
    Approval.objects.filter(pk__in=open_ids).update(state=Approval.State.WITHDRAWN, version=F("version") + 1)
    questions.close(open_ids)
    for approval_id in open_ids:
        ledger.record(ledger.run_chain(run_id), "approval.withdrawn", {"approval": str(approval_id), "reason": reason})
    return len(open_ids)


def exclude(run_ids: Sequence[uuid.UUID], user: User) -> None:
    """Let a person decide nothing more about the requests of some runs, and count nothing they have decided.

    The caller holds the locks on the runs' rows and records why.
    """
    unused = Approval.objects.filter(
        run_id__in=run_ids, used_at__isnull=True, state__in=[*Approval.UNDECIDED, *Approval.DECIDED]
    )
    for approval in unused.only("excluded"):
        if user.pk in approval.excluded:
            continue
        counted = approval.decisions.filter(user=user, undone_at__isnull=True).exists()
        # Whoever is about to act on what they decided finds that the request has changed.
        Approval.objects.filter(pk=approval.pk).update(
            excluded=[*approval.excluded, user.pk], version=F("version") + int(counted)
        )


def supersede(approval: Approval, reason: str) -> bool:
    """Set an open request aside because what it asked about has changed. A new one takes its place, or none need."""
    states = [*Approval.UNDECIDED, *Approval.DECIDED]
    found = Approval.objects.filter(pk=approval.pk, state__in=states, used_at__isnull=True)
    if not _close(found, Approval.State.SUPERSEDED):
        return False
    questions.close([approval.pk])
    ledger.record(
        ledger.run_chain(approval.run_id), "approval.superseded", {"approval": str(approval.pk), "reason": reason}
    )
    return True


def ask(approval_id: uuid.UUID, user: User, text: str, within: timedelta) -> Question | Refusal:
    """Ask before deciding. The first question stops the clock until it is answered, for so long at most."""
    approval = _locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    refused = may_decide(user, approval) or no_longer_open(approval)
    if refused:
        return refused
    if not text.strip():
        return Refusal("message_required", "Write what you want to know.")
    if approval.state == Approval.State.ASKED:
        return Refusal("already_asked", "A question is open already. Wait for its answer, then ask yours.")
    now: datetime = approval.db_now  # type: ignore[attr-defined]
    stops = not approval.questions.exists()
    if stops:
        approval.expires_at += within
    answer_by = now + within if stops else min(now + within, approval.expires_at)
    approval.state = Approval.State.ASKED
    approval.save(update_fields=["state", "expires_at"])
    question = questions.put(approval, user, text.strip(), now, answer_by)
    data = {"approval": str(approval.pk), "question": str(question.pk), "text": question.text, "stops_clock": stops}
    data |= {"answer_by": answer_by.isoformat(), "expires_at": approval.expires_at.isoformat()}
    ledger.record(ledger.run_chain(approval.run_id), "approval.asked", data, ledger.actor_of(user))
    return question


def answer(
    question_id: uuid.UUID, text: str, answerer: User | None = None, facts: Mapping[str, Any] = MappingProxyType({})
) -> bool:
    """Keep the answer to a question, the agent's or a person's; the clock goes on. False: somebody was first.

    It says nothing about the request: that waits as before. `facts` go into the event.
    """
    question, approval = _asked(question_id)
    if not text.strip() or not questions.answer(question, text.strip(), answerer):
        return False
    _wait_again(approval, question)
    data = {"approval": str(approval.pk), "question": str(question.pk), "answer": text.strip(), **facts}
    actor = ledger.actor_of(answerer) if answerer is not None else ledger.MODEL
    ledger.record(ledger.run_chain(approval.run_id), "approval.answered", data, actor)
    people.tell([(approval.pk, question.asker_id)], Notification.Kind.ANSWERED)
    return True


def go_on(question_id: uuid.UUID, why: str) -> bool:
    """Wait no longer for an answer; the clock goes on. False: it was answered or closed meanwhile."""
    question, approval = _asked(question_id)
    if question.closed_at is not None:
        return False
    _wait_again(approval, question)
    data = {"approval": str(approval.pk), "question": str(question.pk), "reason": why}
    ledger.record(ledger.run_chain(approval.run_id), "approval.unanswered", data)
    return True


def _locked(approval_id: uuid.UUID) -> Approval | None:
    return Approval.objects.select_for_update().annotate(db_now=Now()).filter(pk=approval_id).first()


def _repeat(decision: Decision, approval_id: uuid.UUID, verdict: Verdict) -> Taken | Refusal:
    if not says(decision, approval_id, verdict):
        return Refusal("decision_id_reused", "This decision id belongs to another decision; make a new one.")
    return Taken(decision.approval, decision, repeated=True)


def _record_decision(approval: Approval, verdict: Verdict) -> Decision:
    current = approval.final_arguments_text or approval.arguments_text
    edited = verdict.type == DecisionType.EDIT and verdict.edited_text != current
    type_ = DecisionType.APPROVE if verdict.type == DecisionType.EDIT and not edited else verdict.type
    text = verdict.edited_text if edited else current
    digest = digest_of(approval.tool, approval.tool_version, text, approval.run_id, approval.execution_id)
    if edited:
        # Whoever approved the call as it was has not approved this one.
        approval.decisions.filter(undone_at__isnull=True).update(undone_at=Now())
    return Decision.objects.create(
        pk=verdict.id,
        approval=approval,
        user=verdict.user,
        customer=verdict.customer[:200],
        type=type_,
        arguments_text=text,
        message=verdict.message,
        stop_run=verdict.stop_run,
        approval_version=verdict.version,
        action_digest=digest,
        view_digest=approval.view_digest,
        via=verdict.via[:20],
        assurance=verdict.assurance[:20],
        decided_at=approval.db_now,  # type: ignore[attr-defined]
    )


def _count_approval(
    approval: Approval, decision: Decision, now: datetime, use_within: timedelta, edited_title: str
) -> None:
    """Bind the request to what this person approved, and approve it when enough people have."""
    approval.final_arguments_text = decision.arguments_text
    approval.final_digest = decision.action_digest
    if decision.type == DecisionType.EDIT:
        approval.final_title = edited_title
    if not is_enough(approval):
        return
    approval.state = Approval.State.APPROVED
    approval.decided_at = now
    approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    approval.use_by = approval.runs_at + use_within


def _close(found: Any, state: str) -> bool:
    return bool(found.update(state=state, version=F("version") + 1))


def _asked(question_id: uuid.UUID) -> tuple[Question, Approval]:
    """A question and its request, both as they are now, the request locked."""
    about = Question.objects.values_list("approval_id", flat=True).get(pk=question_id)
    approval = _locked(about)
    assert approval is not None
    return Question.objects.get(pk=question_id), approval


def _wait_again(approval: Approval, question: Question) -> None:
    """Let a request wait for people again, if this question is why it did not."""
    if question.closed_at is None:
        _go_on(approval, question)
        approval.state = Approval.State.PENDING
        approval.save(update_fields=["state", "expires_at", "paused_seconds"])


def _go_on(approval: Approval, question: Question) -> None:
    """Close the question that a request was asked, and let its clock go on. Not saved: the caller moves the request."""
    if questions.stops_clock(question):
        until = min(approval.db_now, question.answer_by)  # type: ignore[attr-defined]
        approval.expires_at -= question.answer_by - until
        approval.paused_seconds = round((until - question.asked_at).total_seconds())
    questions.close([approval.pk])
