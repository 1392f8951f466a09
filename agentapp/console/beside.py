"""The column next to a request: its place in the queue, whom it asks, how similar requests ended, its history."""

import statistics
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet, TextField, UUIDField
from django.utils import timezone

from agentapp import auth, starting
from agentapp.console import judged, queue
from agentapp.console.history import history
from agentapp.console.shown import execution_of
from approvals import comments, entitlement
from approvals.models import Approval, Question
from approvals.prepared import Given

ALIKE = 20
MAX_PEOPLE = 8
# Neighbours in the queue are looked up among this many; beyond that, a place in the queue says nothing.
NEIGHBOURS = 500


@dataclass(frozen=True)
class Place:
    """Where a request stands in its viewer's queue. 0: not in it."""

    number: int = 0
    total: int = 0
    previous: uuid.UUID | None = None
    next: uuid.UUID | None = None


@dataclass(frozen=True)
class Alike:
    """How the latest requests for the same tool ended."""

    states: list[str]
    words: str


def beside(approval: Approval, user: User, questions: Sequence[Question], all_comments: bool = False) -> dict[str, Any]:
    """The right column: the request's place in the queue, similar requests, its history, whom it asks."""
    most = None if all_comments else comments.SHOWN
    execution = execution_of(approval)
    run = execution.run if execution is not None else None
    place = place_of(approval, user)
    asked = people_asked(approval)
    return {
        "place": place,
        "waiting_count": place.total,
        "run": run,
        "run_visible": run is not None and auth.may_see(user, run),
        "again_from": again_from(approval, user),
        "again_key": uuid.uuid4(),
        "alike": alike(approval, user),
        "history": history(approval, asked["people"], questions),
        "said": comments.of(approval, most) if getattr(approval, "was_commented", True) else comments.Said([]),
        "all_comments": all_comments,
        "comment_chars": comments.MAX_CHARS,
        **judged.context(approval.decisions.all(), run, user),
        **asked,
        "left_percent": left_percent(approval, timezone.now()),
    }


def again_from(approval: Approval, user: User) -> int:
    """The step from which this person may start a new run to propose an undecided call again. 0: none."""
    undecided = approval.state in (Approval.State.EXPIRED, Approval.State.WITHDRAWN)
    execution = execution_of(approval) if undecided else None
    run = execution.run if execution is not None else None
    if execution is None or run is None or not auth.may_see(user, run):
        return 0
    return execution.step.number if starting.may_try_again(user, run) else 0


def people_asked(approval: Approval) -> dict[str, Any]:
    """Who may decide. The history shows the channels over which they were told."""
    if approval.state not in Approval.UNDECIDED:
        return {"people": [], "more_people": False}
    people = entitlement.deciders_of(approval).order_by("first_name", "username")
    found = list(people[: MAX_PEOPLE + 1])
    return {"people": found[:MAX_PEOPLE], "more_people": len(found) > MAX_PEOPLE}


def place_of(approval: Approval, user: User) -> Place:
    ids = queue.pending_ids(user, NEIGHBOURS)
    if approval.pk not in ids:
        return Place(total=len(ids), next=ids[0] if ids else None)
    at = ids.index(approval.pk)
    return Place(
        number=at + 1,
        total=len(ids),
        previous=ids[at - 1] if at else None,
        next=ids[at + 1] if at + 1 < len(ids) else None,
    )


def alike(approval: Approval, user: User) -> Alike | None:
    """The last ended requests for the same tool, oldest first."""
    rows = _ALIKE.rows(user, tool=approval.tool, pk=approval.pk)
    if not rows:
        return None
    states = [_ended_as(row) for row in reversed(rows)]
    names = (
        ("approved", "approved"), ("edited", "with changes"), ("rejected", "rejected"),
        ("responded", "answered"), ("expired", "expired"),
    )  # fmt: skip
    counted = [f"{states.count(state)} {name}" for state, name in names if state in states]
    took = [row.decided_at - row.created_at for row in rows if row.decided_at]
    words = ", ".join(counted) + "."
    if took:
        words += f" Median {_in_words(timedelta(seconds=statistics.median(t.total_seconds() for t in took)))}."
    return Alike(states, words)


def _alike(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[Approval]:
    ended = Q(state__in=queue.ENDED, decided_at__isnull=False) | Q(state=Approval.State.EXPIRED)
    return (
        entitlement.seen(sight, reader)
        .filter(ended, tool=Given("tool", TextField()))
        .exclude(pk=Given("pk", UUIDField()))
        .order_by("-created_at")
        .only("state", "created_at", "decided_at", *Approval.TELLS_OF_EDITS)[:ALIKE]
    )


_ALIKE = entitlement.Seen(_alike, sees_all_apart=True)


def left_percent(approval: Approval, now: datetime) -> int:
    """How much of the time to decide is left, for the bar under the countdown."""
    whole = (approval.expires_at - approval.created_at).total_seconds()
    left = (approval.expires_at - now).total_seconds()
    return max(0, min(100, round(100 * left / whole))) if whole > 0 else 0


def _ended_as(row: Approval) -> str:
    if row.state in (Approval.State.APPROVED, Approval.State.USED):
        return "edited" if row.is_edited else "approved"
    return row.state


def _in_words(took: timedelta) -> str:
    seconds = int(took.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
