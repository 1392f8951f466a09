"""The only writer of Approval, Decision and the creation of Notification.

Each function is one transition: it changes rows under a condition, counts them, and records its
event. The caller holds the lock on the run's row, so that a decision and a run that is about to
wait cannot miss each other; and is inside `ledger.transaction()`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q, prefetch_related_objects

from approvals import ledger
from approvals.cards import Card, concerns, digest_of, pending
from approvals.clock import Now
from approvals.models import Approval, Channel, Decision, DecisionType, Notification, Risk
from approvals.standing import Refusal, final_digest, is_enough, may_decide


@dataclass(frozen=True)
class Verdict:
    """One person's answer to one request, as it came in. `id` makes a repeat harmless."""

    id: uuid.UUID
    type: str
    user: User
    version: int
    action_digest: str
    message: str = ""
    stop_run: bool = False
    via: str = "console"
    edited_text: str = ""
    edited_title: str = ""


@dataclass(frozen=True)
class Taken:
    """A decision that counts, and where the request stands now. `repeated`: it had been sent before."""

    approval: Approval
    decision: Decision
    repeated: bool = False


def request(cards: Sequence[Card], now: datetime, channels: Sequence[Channel] = ()) -> list[Approval]:
    """Ask people about calls: pending rows, their groups, and a notification for each channel."""
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
                "told": [n.channel.name for n in notifications if n.approval_id == approval.pk],
            },
        )
    return approvals


def decide(approval_id: uuid.UUID, verdict: Verdict, use_within: timedelta) -> Taken | Refusal:
    """Take one person's decision, or say why not. First wins; nothing is changed by a refusal."""
    repeated = Decision.objects.select_related("approval").filter(pk=verdict.id).first()
    if repeated is not None:
        return _repeat(repeated, approval_id, verdict)
    approval = _locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    refusal = _refusal(approval, verdict)
    if refusal:
        return refusal
    decision = _record_decision(approval, verdict)
    now: datetime = approval.db_now  # type: ignore[attr-defined]
    if decision.type in (DecisionType.APPROVE, DecisionType.EDIT):
        _count_approval(approval, decision, now, use_within, verdict.edited_title)
    else:
        approval.state = Approval.State.REJECTED if decision.type == DecisionType.REJECT else Approval.State.RESPONDED
        approval.decided_at = now
        approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    approval.version = approval.version + 1
    approval.save()
    ledger.record(
        ledger.run_chain(approval.run_id),
        f"approval.{'changed' if approval.state == Approval.State.PENDING else approval.state}",
        {
            "approval": str(approval.pk),
            "decision": str(decision.pk),
            "type": decision.type,
            "action_digest": decision.action_digest,
            "view_digest": decision.view_digest,
            "message": decision.message,
            "edited": approval.is_edited,
            "runs_at": approval.runs_at.isoformat() if approval.runs_at else "",
        },
        actor=ledger.actor_of(verdict.user, "" if verdict.via == "console" else verdict.via),
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
    if approval.used_at is not None or approval.state not in (Approval.State.PENDING, *Approval.DECIDED):
        return Refusal("too_late", "It has already taken effect and cannot be undone.")
    undone = Q(pk=mine.pk)
    if mine.type == DecisionType.EDIT:
        undone |= Q(approval=approval, undone_at__isnull=True)
        approval.final_arguments_text = approval.final_digest = approval.final_title = ""
    Decision.objects.filter(undone).update(undone_at=Now())
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
    pending = Approval.objects.filter(pk=approval_id, state=Approval.State.PENDING, expires_at__lte=Now())
    unused = Approval.objects.filter(pk=approval_id, state=Approval.State.APPROVED, use_by__lte=Now())
    if _close(pending, Approval.State.EXPIRED):
        why = "no one decided"
    elif _close(unused, Approval.State.EXPIRED):
        why = "approved, but not used in time"
    else:
        return False
    approval = Approval.objects.only("run_id").get(pk=approval_id)
    ledger.record(ledger.run_chain(approval.run_id), "approval.expired", {"approval": str(approval_id), "reason": why})
    return True


def overdue(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests whose time is up, as (approval, run): undecided too long, or approved and not used in time."""
    undecided = Q(state=Approval.State.PENDING, expires_at__lte=Now())
    unused = Q(state=Approval.State.APPROVED, use_by__lte=Now())
    found = Approval.objects.filter(undecided | unused).order_by("expires_at")
    return list(found.values_list("pk", "run_id")[:limit])


def withdraw(run_id: uuid.UUID, reason: str) -> int:
    """Close every open request of a run that has ended. Returns how many."""
    open_ids = list(
        Approval.objects.filter(
            run_id=run_id, used_at__isnull=True, state__in=[Approval.State.PENDING, *Approval.DECIDED]
        ).values_list("pk", flat=True)
    )
    if not open_ids:
        return 0
    Approval.objects.filter(pk__in=open_ids).update(state=Approval.State.WITHDRAWN, version=F("version") + 1)
    for approval_id in open_ids:
        ledger.record(ledger.run_chain(run_id), "approval.withdrawn", {"approval": str(approval_id), "reason": reason})
    return len(open_ids)


def supersede(approval: Approval, reason: str) -> bool:
    """Set a request aside because what it asked about has changed. A new one takes its place."""
    states = [Approval.State.PENDING, Approval.State.APPROVED]
    found = Approval.objects.filter(pk=approval.pk, state__in=states, used_at__isnull=True)
    if not _close(found, Approval.State.SUPERSEDED):
        return False
    ledger.record(
        ledger.run_chain(approval.run_id), "approval.superseded", {"approval": str(approval.pk), "reason": reason}
    )
    return True


def _locked(approval_id: uuid.UUID) -> Approval | None:
    return Approval.objects.select_for_update().annotate(db_now=Now()).filter(pk=approval_id).first()


def _repeat(decision: Decision, approval_id: uuid.UUID, verdict: Verdict) -> Taken | Refusal:
    same = decision.approval_id == approval_id and decision.user_id == verdict.user.pk
    if not same or not _says(decision, verdict):
        return Refusal("decision_id_reused", "This decision id belongs to another decision; make a new one.")
    return Taken(decision.approval, decision, repeated=True)


def _says(decision: Decision, verdict: Verdict) -> bool:
    """Whether a verdict sent again asks for what was recorded. An edit that changed nothing was an approval."""
    if verdict.type == DecisionType.EDIT:
        approving = decision.type in (DecisionType.APPROVE, DecisionType.EDIT)
        return approving and decision.arguments_text == verdict.edited_text
    return decision.type == verdict.type


def _refusal(approval: Approval, verdict: Verdict) -> Refusal | None:
    forbidden = may_decide(verdict.user, approval)
    if forbidden:
        return forbidden
    if approval.state != Approval.State.PENDING:
        return Refusal("already_decided", _who_was_first(approval))
    if approval.expires_at <= approval.db_now:  # type: ignore[attr-defined]
        return Refusal("expired", "Time ran out before this decision; the call will not run.")
    if verdict.version != approval.version:
        return Refusal("changed", "This request changed while you were reading. Look again, then decide.")
    if verdict.action_digest != (approval.final_digest or approval.action_digest):
        return Refusal("action_changed", "The call you saw is not the call that waits here. Look again, then decide.")
    if verdict.type not in approval.allowed_decisions:
        return Refusal("not_allowed", f"The rule does not allow '{verdict.type}' here.")
    if verdict.type in (DecisionType.REJECT, DecisionType.RESPOND) and not verdict.message.strip():
        return Refusal("message_required", "Say why: the agent reads it." if verdict.type == DecisionType.REJECT
                       else "Write the answer the agent gets in the tool's place.")  # fmt: skip
    changed_by_them = approval.editor_id == verdict.user.pk and verdict.type == DecisionType.APPROVE
    if changed_by_them and approval.risk in (Risk.HIGH, Risk.CRITICAL):
        return Refusal("editor", "You changed these arguments, so somebody else approves them.")
    if approval.decisions.filter(user=verdict.user, undone_at__isnull=True).exists():
        return Refusal("decided_by_you", "You have already decided; this request needs another person.")
    return None


def _who_was_first(approval: Approval) -> str:
    last = approval.decisions.select_related("user").filter(undone_at__isnull=True).last()
    words = {
        Approval.State.EXPIRED: "This request has expired.",
        Approval.State.WITHDRAWN: "This request was withdrawn because its run ended.",
        Approval.State.SUPERSEDED: "This request was replaced by a newer one.",
    }
    if last is None or approval.state in words:
        return words.get(Approval.State(approval.state), "This request is closed.")
    done = {"approve": "approved it", "edit": "approved it with changes", "reject": "rejected it"}
    name = last.user.get_full_name() or last.user.get_username()
    return f"{name} already {done.get(last.type, 'answered it')}. Your decision was not recorded."


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
        type=type_,
        arguments_text=text,
        message=verdict.message,
        stop_run=verdict.stop_run,
        approval_version=verdict.version,
        action_digest=digest,
        view_digest=approval.view_digest,
        via=verdict.via[:20],
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
