"""The only writer of Approval, Decision and the creation of Notification.

Each function is one transition: it changes rows under a condition, counts them, and records its
event. The caller holds the lock on the run's row, so that a decision and a run that is about to
wait cannot miss each other; and is inside `ledger.transaction()`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q, prefetch_related_objects
from django.db.models.functions import Now

from approvals import ledger
from approvals.digest import action_digest, canonical, load, sha256
from approvals.models import Approval, Channel, Decision, DecisionType, Notification, Risk
from approvals.policy import Ruling


@dataclass(frozen=True)
class Card:
    """One request to be made: the exact call, everything people will be shown, and the terms."""

    run_id: uuid.UUID
    execution_id: uuid.UUID
    agent: str
    tool: str
    tool_version: str
    effect_class: str
    arguments_text: str
    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    reason: str
    expires_seconds: int
    hold_seconds: int
    route: str = ""
    run_title: str = ""
    button: str = ""
    locked_fields: list[str] = field(default_factory=list)
    secret_fields: list[str] = field(default_factory=list)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    explanation: str = ""
    snapshot_text: str = ""
    difference: list[dict[str, Any]] = field(default_factory=list)
    rule: str = ""
    risk: str = Risk.MEDIUM
    allowed_decisions: tuple[str, ...] = ()
    approvals_needed: int = 1
    starter_id: int | None = None
    starter_excluded: bool = True
    on_expiry: str = "reject"
    groups: tuple[int, ...] = ()
    supersedes_id: uuid.UUID | None = None


# Keys of rows, which mean nothing to a reader.
_NOT_SHOWN = frozenset({"run_id", "execution_id", "starter_id", "supersedes_id"})


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
class Refusal:
    """Why a decision was not taken. `code` is for programs, `message` for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Taken:
    """A decision that counts, and where the request stands now. `repeated`: it had been sent before."""

    approval: Approval
    decision: Decision
    repeated: bool = False


def request(cards: Sequence[Card], now: datetime, channels: Sequence[Channel] = ()) -> list[Approval]:
    """Ask people about calls: pending rows, their groups, and a notification for each channel."""
    approvals = [_pending(card, now) for card in cards]
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
        if _concerns(channel, card)
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


def may_decide(user: User, approval: Approval) -> Refusal | None:
    """None when this person may decide about this request now, else why not."""
    if not user.is_active or not user.has_perm("approvals.decide_approval"):
        return Refusal("forbidden", "You can view this, not decide it: deciding needs the right to decide approvals.")
    groups = list(approval.groups.all())
    if groups and not {group.pk for group in groups} & set(user.groups.values_list("pk", flat=True)):
        names = " or ".join(group.name for group in groups)
        return Refusal("forbidden", f"You can view this, not decide it: it is decided by {names}.")
    if approval.starter_excluded and approval.starter_id == user.pk:
        return Refusal("starter", "You started this run, so someone else decides about its calls.")
    return None


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
    if not approval.final_digest or approval.final_digest != _final_digest(approval):
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


def deciders_still_allowed(approval: Approval) -> bool:
    """Whether everybody whose approval counts still has the right to give it."""
    standing = approval.decisions.select_related("user").filter(undone_at__isnull=True)
    return all(may_decide(decision.user, approval) is None for decision in standing)


def is_bound(approval: Approval) -> bool:
    """Whether the arguments on the row are, byte for byte, what enough people approved.

    The digest is made anew from the text, so that a row changed by hand does not pass.
    """
    return approval.final_digest != "" and approval.final_digest == _final_digest(approval) and _is_enough(approval)


def meets(approval: Approval, ruling: Ruling) -> bool:
    """Whether the approvals given would be enough under the terms of another ruling."""
    counting = approval.decisions.filter(undone_at__isnull=True, action_digest=approval.final_digest)
    users = {decision.user_id for decision in counting}
    if ruling.starter_excluded:
        users -= {approval.starter_id}
    if ruling.groups:
        users &= set(User.objects.filter(groups__in=ruling.groups, pk__in=users).values_list("pk", flat=True))
    return len(users) >= ruling.approvals_needed


def view_digest(card: Card) -> str:
    """Digest of everything a person is shown before deciding, and of the terms they decide under."""
    shown = {name: value for name, value in asdict(card).items() if name not in _NOT_SHOWN}
    return sha256(canonical(shown))


def _pending(card: Card, now: datetime) -> Approval:
    return Approval(
        run_id=card.run_id,
        execution_id=card.execution_id,
        agent=card.agent,
        route=card.route,
        run_title=card.run_title,
        tool=card.tool,
        tool_version=card.tool_version,
        effect_class=card.effect_class,
        arguments_text=card.arguments_text,
        arguments=load(card.arguments_text),
        action_digest=_digest_of(card.tool, card.tool_version, card.arguments_text, card.run_id, card.execution_id),
        title=card.title,
        sentence=card.sentence,
        effects=card.effects,
        button=card.button,
        locked_fields=card.locked_fields,
        secret_fields=card.secret_fields,
        evidence=card.evidence,
        explanation=card.explanation,
        snapshot_text=card.snapshot_text,
        difference=card.difference,
        view_digest=view_digest(card),
        rule=card.rule,
        reason=card.reason[:500],
        risk=card.risk,
        allowed_decisions=list(card.allowed_decisions),
        approvals_needed=card.approvals_needed,
        starter_id=card.starter_id,
        starter_excluded=card.starter_excluded,
        hold_seconds=card.hold_seconds,
        on_expiry=card.on_expiry,
        supersedes_id=card.supersedes_id,
        created_at=now,
        expires_at=now + timedelta(seconds=card.expires_seconds),
    )


def _digest_of(tool: str, version: str, arguments_text: str, run_id: uuid.UUID, execution_id: uuid.UUID) -> str:
    return action_digest(
        tool=tool,
        tool_version=version,
        arguments=load(arguments_text),
        run=str(run_id),
        subject=str(execution_id),
    )


def _concerns(channel: Channel, card: Card) -> bool:
    groups: set[int] = {group.pk for group in channel.groups.all()}
    return not groups or bool(groups & set(card.groups))


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
    digest = _digest_of(approval.tool, approval.tool_version, text, approval.run_id, approval.execution_id)
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
    if not _is_enough(approval):
        return
    approval.state = Approval.State.APPROVED
    approval.decided_at = now
    approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    approval.use_by = approval.runs_at + use_within


def _is_enough(approval: Approval) -> bool:
    """Whether enough people approved the call as it would run now.

    At high and critical risk the person who changed the arguments does not count as one of them.
    """
    approving = [DecisionType.APPROVE]
    if approval.risk not in (Risk.HIGH, Risk.CRITICAL):
        approving.append(DecisionType.EDIT)
    counting = approval.decisions.filter(
        undone_at__isnull=True, type__in=approving, action_digest=approval.final_digest
    )
    return counting.count() >= approval.approvals_needed


def _final_digest(approval: Approval) -> str:
    """The digest of the call as it would run now, made from the text itself. Empty: the text is no JSON."""
    try:
        return _digest_of(
            approval.tool, approval.tool_version, approval.final_arguments_text, approval.run_id, approval.execution_id
        )
    except ValueError:
        return ""


def _close(found: Any, state: str) -> bool:
    return bool(found.update(state=state, version=F("version") + 1))
