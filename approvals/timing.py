"""When a request's time is up: its expiry, its target, its escalation steps; and which of them are due. Reads only.

The moments are frozen when the request is made. A question stops the clock and so moves them; if the clock counts
business time, so does the pause.
"""

import functools
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from approvals.business_hours import BusinessHours
from approvals.clock import Now
from approvals.escalation import Step
from approvals.models import Approval
from approvals.prepared import Prepared


def after(begin: datetime, seconds: float, in_business_hours: bool) -> datetime:
    """The moment when this much of a request's time has passed."""
    return _hours().add(begin, seconds) if in_business_hours else begin + timedelta(seconds=seconds)


def planned(steps: Sequence[Step], begin: datetime, in_business_hours: bool) -> list[dict[str, Any]]:
    """Steps as they are frozen on a request, each with its moment."""
    return [
        step.as_json() | {"at": after(begin, step.after, in_business_hours).isoformat(), "taken_at": ""}
        for step in steps
    ]


def next_step_at(approval: Approval) -> datetime | None:
    """When the next step of a request is to be taken, by its list of steps."""
    ahead = approval.escalation[approval.escalated :]
    return datetime.fromisoformat(ahead[0]["at"]) if ahead else None


def pause(approval: Approval, begin: datetime, until: datetime, planned_until: datetime | None = None) -> None:
    """Move everything still to come by the time that a question stops the clock. Not saved.

    `planned_until`: how far this question has already moved the moments.
    """
    if approval.business_hours and approval.expires_seconds is not None:
        _pause_business(approval, begin, _hours().between(begin, until))
        return
    delta = until - (planned_until or begin)
    approval.expires_at += delta
    if approval.target_at is not None and approval.target_at > begin:
        approval.target_at += delta
    for step in _to_come(approval, begin):
        step["at"] = (datetime.fromisoformat(step["at"]) + delta).isoformat()
    approval.escalates_at = next_step_at(approval)


def _pause_business(approval: Approval, begin: datetime, seconds: float) -> None:
    """A clock stops at most once, so what it counts is recounted from the beginning."""
    assert approval.expires_seconds is not None
    approval.expires_at = _hours().add(approval.created_at, approval.expires_seconds + seconds)
    if approval.target_seconds is not None and approval.target_at is not None and approval.target_at > begin:
        approval.target_at = _hours().add(approval.created_at, approval.target_seconds + seconds)
    for step in _to_come(approval, begin):
        step["at"] = _hours().add(approval.created_at, step["after"] + seconds).isoformat()
    approval.escalates_at = next_step_at(approval)


def _to_come(approval: Approval, begin: datetime) -> list[dict[str, Any]]:
    """The steps whose moment had not come when the clock was stopped."""
    ahead = approval.escalation[approval.escalated :]
    return [step for step in ahead if datetime.fromisoformat(step["at"]) > begin]


# What `pause` moves.
MOVED = ("expires_at", "target_at", "escalation", "escalates_at")


def escalating(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests whose next step is due, as (request, run)."""
    return _escalating(limit).rows()


@functools.cache
def _escalating(limit: int) -> Prepared[tuple[uuid.UUID, uuid.UUID]]:
    due = Approval.objects.filter(state__in=Approval.UNDECIDED, escalates_at__lte=Now(), expires_at__gt=Now())
    return Prepared(lambda: due.order_by("escalates_at").values_list("pk", "run_id")[:limit])


def breaching(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests that nobody has decided by their target, and for which that is not noted yet, as (request, run)."""
    return _breaching(limit).rows()


@functools.cache
def _breaching(limit: int) -> Prepared[tuple[uuid.UUID, uuid.UUID]]:
    missed = Approval.objects.filter(state__in=Approval.UNDECIDED, target_at__lte=Now(), breached_at__isnull=True)
    return Prepared(lambda: missed.order_by("target_at").values_list("pk", "run_id")[:limit])


def _hours() -> BusinessHours:
    hours: BusinessHours = settings.BUSINESS_HOURS
    return hours
