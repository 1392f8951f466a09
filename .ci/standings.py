"""Rare states of the chain, for pictures: being checked, and broken. Removed again once the pictures are taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import story
from django.utils import timezone

from approvals.models import Event, Verification


@contextmanager
def verifying(told: story.Story) -> Iterator[None]:
    """A person has asked for verification, and a worker is at it."""
    now, total = timezone.now(), Event.objects.count()
    row = Verification.objects.create(
        started_by=told.people["ada"], started_at=now, seen_at=now, claimed_until=now + timedelta(minutes=2),
        events_total=total, events=total * 2 // 3,
    )  # fmt: skip
    yield
    row.delete()


@contextmanager
def broken(told: story.Story) -> Iterator[None]:
    """The last verification reports an event that somebody changed. Nothing was changed: only the report exists."""
    now, event = timezone.now(), Event.objects.get(pk=told.keys["decision_event"])
    around = Event.objects.filter(chain=event.chain, seq__in=(event.seq - 1, event.seq + 1))
    beside = {("before" if one.seq < event.seq else "after"): _named(one) for one in around}
    row = Verification.objects.create(
        state=Verification.State.DONE, started_by=told.people["ada"], started_at=now, seen_at=now, finished_at=now,
        events=event.seq, holds=False,
        broken={"chain": event.chain, "seq": event.seq, "problem": "its content does not match its hash",
                "found": _named(event), **beside},
    )  # fmt: skip
    yield
    row.delete()


def _named(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, "type": event.type, "at": event.at.isoformat(), "hash": event.hash}
