"""The state of the chain: how many events there are, when they were last checked, and where it is broken, if it is."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth
from agentapp.audit import finding
from approvals.models import Event
from approvals.proof import status, verifying

HIDDEN = "The ledger is broken in a run that you may not see."
INTACT, BROKEN, VERIFYING, UNCHECKED = "intact", "broken", "verifying", "unchecked"


@dataclass(frozen=True)
class Neighbour:
    """The first event that does not hold, or one next to it."""

    what: str
    seq: int
    type: str
    at: str
    hash: str


@dataclass(frozen=True)
class Standing:
    """What the strip above the trail says."""

    state: str = UNCHECKED
    events: int = 0
    checked_at: datetime | None = None
    anchored_at: datetime | None = None
    anchor: str = ""
    not_anchored: str = ""
    """Why no checkpoint is signed. Empty if one is signed whenever it is due."""
    noted_outside: bool = False
    """Whether the last checkpoint is known outside the database."""
    # Where the first break is, in a sentence; the event itself, if there is one; and its neighbours.
    sentence: str = ""
    event: uuid.UUID | None = None
    around: tuple[Neighbour, ...] = ()
    # During a check: how many events are done.
    done: int = 0

    @property
    def anchor_short(self) -> str:
        return f"{self.anchor[:4]}…{self.anchor[-4:]}" if self.anchor else ""


def now(viewer: User | None = None) -> Standing:
    """The standing of the whole ledger, without anything about runs that the viewer may not see.

    At most three queries unless it is broken, none of which counts millions of rows.
    """
    known = status.standing()
    told = Standing(
        anchored_at=known.anchored_at,
        anchor=known.anchored,
        not_anchored=known.not_anchored,
        noted_outside=known.noted_outside,
    )
    if known.running is not None:
        total = max(known.running.events_total, known.running.events)
        return replace(told, state=VERIFYING, events=total, done=known.running.events)
    told = replace(told, events=known.events, checked_at=known.verified_at)
    if known.broken is not None:
        return _broken(told, known.broken, viewer)
    if known.holds:
        return replace(told, state=INTACT)
    return told


def hides(viewer: User | None, broken: dict[str, Any]) -> bool:
    """Whether a break is in a run that this person may not see."""
    if viewer is None or not broken["chain"].startswith("run:") or finding.sees_all(viewer):
        return False
    try:
        run = uuid.UUID(broken["chain"].removeprefix("run:"))
    except ValueError:
        return True
    return not auth.visible_runs(viewer).filter(pk=run).exists()


def _broken(told: Standing, broken: dict[str, Any], viewer: User | None) -> Standing:
    if hides(viewer, broken):
        return replace(told, state=BROKEN, sentence=HIDDEN)
    found = Event.objects.filter(chain=broken["chain"], seq=broken["seq"]).values_list("pk", flat=True).first()
    return replace(told, state=BROKEN, event=found, sentence=verifying.named(broken), around=around(broken))


def around(broken: dict[str, Any]) -> tuple[Neighbour, ...]:
    """The first event that does not hold and its neighbours, as far as they exist."""
    beside = (("Before it", "before"), ("In its place", "found"), ("After it", "after"))
    return tuple(
        Neighbour(what, *(broken[name][part] for part in ("seq", "type", "at", "hash")))
        for what, name in beside
        if broken.get(name)
    )
