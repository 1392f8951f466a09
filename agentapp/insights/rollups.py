"""The only writer of RequestFigures, CallFigures, ModelFigures and RollUp: the figures of past hours.

An hour is recomputed from its rows and replaced as a whole, so doing it again changes nothing. Whatever changes the
rows of a past hour (a decision taken back, a step that asks another group) has that hour recomputed.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models, transaction
from django.db.models import Min
from django.db.models.functions import TruncHour

from agentapp.insights.adding import merged
from agentapp.insights.counting import HOUR, count, hour_of
from agentapp.models import CallFigures, ModelFigures, ModelUse, RequestFigures, RollUp, Span, Step, ToolExecution
from approvals import clock
from approvals.models import Approval, Decision, Event

DAY = timedelta(days=1)
# A transaction that began before the end of the hour may commit a little after it.
SETTLES = timedelta(minutes=10)
# The most that one pass takes on. Catching up thus leaves the worker to others in between.
MOST_AT_ONCE = timedelta(days=7)

# Events that can change the figures of the hours in which a request was asked and decided.
_MOVES = ("approval.escalated", "approval.undone")

_TABLES: tuple[type[models.Model], ...] = (RequestFigures, CallFigures, ModelFigures)
_KEYS = {
    RequestFigures: ("team", "by", "key"),
    CallFigures: ("agent", "tool"),
    ModelFigures: ("agent", "model"),
}
_COUNTS = {
    RequestFigures: ("waits", "claimed"),
    CallFigures: (),
    ModelFigures: (),
}


def catch_up(now: datetime | None = None, most: timedelta = MOST_AT_ONCE) -> RollUp | None:
    """Add up past hours that have no figures yet or have changed. None if somebody else is doing it."""
    # If this machine's clock is ahead, it would store final figures for hours that are not over.
    now = now or clock.asked()
    with transaction.atomic():
        state = _state(now)
        if state is None:
            return None
        over = hour_of(now)
        until = min(over, max(state.until, hour_of(state.until + most)))
        hours = _changed(state.looked_at - SETTLES, state.until)
        unsettled = max(hour_of(state.looked_at - SETTLES), state.until - DAY)
        hours |= set(_hours(min(unsettled, state.until), until))
        for begin, end in _stretches(hours):
            _replace(begin, end)
        _replace_days(hours, until)
        state.until, state.looked_at = until, now
        state.save()
        return state


def back_fill(since: datetime | None = None, now: datetime | None = None) -> RollUp:
    """Recompute every hour from a moment on, or from the first row. Figures stay correct throughout.

    Nothing is computed before the first row, whatever is asked. A mistyped year would take days, with no figures
    in the meantime.
    """
    now = now or clock.asked()
    with transaction.atomic():
        state = RollUp.objects.select_for_update().first() or RollUp(until=hour_of(now), looked_at=now)
        first = hour_of(_first() or now)
        state.until = max(first, min(hour_of(since or first), state.until))
        state.save()
    while state.until < hour_of(now):
        state = catch_up(now) or RollUp.objects.get()
    return state


def _state(now: datetime) -> RollUp | None:
    if not RollUp.objects.exists():
        RollUp.objects.get_or_create(pk=RollUp.ONLY, defaults={"until": hour_of(_first() or now), "looked_at": now})
    return RollUp.objects.select_for_update(skip_locked=True).first()


def _first() -> datetime | None:
    """The moment of the first row that any figure is based on."""
    firsts = [
        Approval.objects.aggregate(at=Min("created_at"))["at"],
        ToolExecution.objects.aggregate(at=Min("finished_at"))["at"],
        Step.objects.aggregate(at=Min("finished_at"))["at"],
        ModelUse.objects.aggregate(at=Min("at"))["at"],
    ]
    return min((at for at in firsts if at is not None), default=None)


def _changed(since: datetime, until: datetime) -> set[datetime]:
    """Hours whose figures have changed: a decision was taken back, or a request was put to one more group.

    The request now counts for that group too, in the hour it was asked in; the hour it ends in is still to come. Taking
    a decision back may undo an ending that another person's decision caused, in that decision's hour. How long a
    question stopped the clock is known only when it is closed, and one of several people may have decided by then.
    """
    decided = Decision.objects.filter(decided_at__lt=until)
    moved = Event.objects.filter(type__in=_MOVES, at__gte=since).values("approval_id")
    asked = Approval.objects.filter(pk__in=moved, created_at__lt=until)
    return (
        _hours_of(decided.filter(undone_at__gte=since), "decided_at")
        | _hours_of(asked, "created_at")
        | _hours_of(decided.filter(approval__in=moved), "decided_at")
        | _hours_of(decided.filter(approval__questions__closed_at__gte=since), "decided_at")
    )


def _hours_of(rows: models.QuerySet[Any], moment: str) -> set[datetime]:
    return set(rows.order_by().annotate(hour=TruncHour(moment, tzinfo=UTC)).values_list("hour", flat=True))


def _hours(begin: datetime, end: datetime) -> Iterable[datetime]:
    while begin < end:
        yield begin
        begin += HOUR


def _stretches(hours: Iterable[datetime]) -> Iterable[tuple[datetime, datetime]]:
    """Consecutive hours, as (first, after the last)."""
    begin = last = None
    for at in sorted(hours):
        if begin is None or last is None or at != last + HOUR:
            if begin is not None and last is not None:
                yield begin, last + HOUR
            begin = at
        last = at
    if begin is not None and last is not None:
        yield begin, last + HOUR


def _replace(begin: datetime, end: datetime) -> None:
    """Replace the stored figures of some hours."""
    counted = count(begin, end)
    made: dict[Any, list[Any]] = {
        RequestFigures: counted.requests,
        CallFigures: counted.calls,
        ModelFigures: counted.models,
    }
    for table, rows in made.items():
        table._default_manager.filter(span=Span.HOUR, at__gte=begin, at__lt=end).delete()
        table._default_manager.bulk_create(rows, batch_size=1000)


def _replace_days(hours: Iterable[datetime], until: datetime) -> None:
    """Add up past days in which an hour has changed."""
    days = {hour.replace(hour=0) for hour in hours}
    for day in sorted(day for day in days if day + DAY <= until):
        for table in _TABLES:
            rows = table._default_manager.filter(span=Span.HOUR, at__gte=day, at__lt=day + DAY)
            table._default_manager.filter(span=Span.DAY, at=day).delete()
            table._default_manager.bulk_create(_summed(table, day, rows), batch_size=1000)


def _summed(table: Any, day: datetime, rows: Iterable[Any]) -> list[Any]:
    groups: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in _KEYS[table])].append(row)
    apart = {"id", "span", "at", *_KEYS[table], *_COUNTS[table]}
    numbers = [one.name for one in table._meta.fields if one.name not in apart]
    return [
        table(
            span=Span.DAY,
            at=day,
            **dict(zip(_KEYS[table], key, strict=True)),
            **{name: sum(getattr(row, name) for row in found) for name in numbers},
            **{name: merged(getattr(row, name) for row in found) for name in _COUNTS[table]},
        )
        for key, found in groups.items()
    ]
