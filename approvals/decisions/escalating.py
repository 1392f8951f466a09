"""What happens while nobody decides: more people may decide, people are reminded, a missed target is noted."""

import uuid
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Q

from approvals import approval_events, entitlement, people, timing
from approvals.decisions.rows import locked
from approvals.models import Approval, Channel, Notification


def escalate(approval_id: uuid.UUID) -> bool:
    """Take the next escalation step of a request, if its time has come. False: it has not, or somebody was first.

    Only who may decide grows. How many must, and who must not, stays as it is.
    """
    approval = locked(approval_id)
    if approval is None or not _is_due(approval):
        return False
    number, now = approval.escalated, approval.database_now  # type: ignore[attr-defined]
    step = approval.escalation[number]
    step["taken_at"] = now.isoformat()
    approval.escalated = number + 1
    taken = Approval.objects.filter(pk=approval_id, escalated=number, state__in=Approval.UNDECIDED).update(
        escalated=number + 1, escalation=approval.escalation, escalates_at=timing.next_step_at(approval)
    )
    if not taken:
        return False
    if step["remind"]:
        _remind(approval, step, number + 1, now)
    if step["group"]:
        _let_decide(approval, step, number + 1, now)
    return True


def breach(approval_id: uuid.UUID) -> bool:
    """Note that a request's target has passed without a decision. False: it has not, or this is already noted."""
    approval = locked(approval_id)
    if approval is None or approval.state not in Approval.UNDECIDED:
        return False
    if not note_breach(approval, approval.database_now):  # type: ignore[attr-defined]
        return False
    approval.save(update_fields=["breached_at"])
    return True


def note_breach(approval: Approval, now: datetime) -> bool:
    """The same for a locked request, before anything else happens to it. Not saved."""
    if approval.target_at is None or approval.breached_at is not None or approval.target_at > now:
        return False
    approval.breached_at = now
    approval_events.record(approval, "breached", {"target_at": approval.target_at.isoformat()})
    return True


def _is_due(approval: Approval) -> bool:
    now: datetime = approval.database_now  # type: ignore[attr-defined]
    waits = approval.state in Approval.UNDECIDED and approval.expires_at > now
    return waits and approval.escalates_at is not None and approval.escalates_at <= now


def _remind(approval: Approval, step: dict[str, Any], number: int, now: datetime) -> None:
    decided = approval.decisions.filter(undone_at__isnull=True).values("user")
    still = entitlement.deciders_of(approval).exclude(pk__in=decided)
    told = people.tell_team(approval, still, Notification.Kind.REMINDED, number)
    every = Q(groups__isnull=True) | Q(groups__in=approval.groups.all())
    _tell_channels(approval, every, Notification.Kind.REMINDED, number, now)
    _record(approval, "reminded", step, told=told)


def _let_decide(approval: Approval, step: dict[str, Any], number: int, now: datetime) -> None:
    """Let a group decide too, and tell it. If everybody may decide, only tell it: a name must not narrow that."""
    group = Group.objects.filter(pk=step.get("group_id") or 0).first()
    if group is None:
        _record(approval, "escalated", step, told=0, reason="there is no such group any more")
        return
    is_added = approval.groups.exists()
    if is_added:
        approval.groups.add(group)
    able = entitlement.deciders_of(approval).filter(groups=group)
    told = people.tell_team(approval, able, Notification.Kind.ESCALATED, number)
    _tell_channels(approval, Q(groups=group), Notification.Kind.ESCALATED, number, now)
    _record(approval, "escalated", step, told=told, added=is_added)


def _tell_channels(approval: Approval, those: Q, kind: str, number: int, now: datetime) -> None:
    channels = Channel.objects.filter(those, active=True, personal=False).distinct()
    rows = [
        Notification(approval=approval, channel=channel, kind=kind, step=number, created_at=now) for channel in channels
    ]
    Notification.objects.bulk_create(rows, ignore_conflicts=True)


def _record(approval: Approval, what: str, step: dict[str, Any], **data: Any) -> None:
    approval_events.record(approval, what, {"after": step["after"], "group": step["group"], **data})
