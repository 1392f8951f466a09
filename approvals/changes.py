"""Changes to the configuration, of one row or of any, read back from the ledger. Writes nothing."""

import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models

from approvals import ledger
from approvals.digest import canonical, load
from approvals.models import Event
from approvals.places import Place

# The events that `configuration` writes.
TYPES = ("configuration.created", "configuration.changed", "configuration.deleted")
# A moment as rows are recorded: to the microsecond, with its zone.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
# Longer values are folded.
LONG = 120


@dataclass(frozen=True)
class Field:
    """One column of a change: the value before and now. None: the row did not exist."""

    name: str
    before: Any
    after: Any

    @property
    def label(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def was(self) -> str:
        return _text(self.before)

    @property
    def now(self) -> str:
        return _text(self.after)

    @property
    def is_long(self) -> bool:
        return max(len(self.was), len(self.now)) > LONG


@dataclass(frozen=True)
class Recorded:
    """One event about the row, with the columns that differ."""

    at: datetime
    actor: str
    what: str
    fields: list[Field]

    @property
    def who(self) -> str:
        """The actor's name for readers, without the row number."""
        return self.actor.split(":", 2)[-1]

    def of(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def of(row: models.Model, most: int = 100) -> list[Recorded]:
    """The events about a row, latest first."""
    named = f'"key":"{row.pk}"', f'"table":"{row._meta.label}"'
    events = Event.objects.filter(chain=ledger.CONFIGURATION, type__in=TYPES)
    for text in named:
        events = events.filter(body__contains=text)
    return [found for event in events.order_by("-seq")[:most] if (found := _read(event, row)) is not None]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return f"{value[:10]} {value[11:19]} UTC"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return value if isinstance(value, str) else canonical(value)


def _read(event: Event, row: models.Model) -> Recorded | None:
    """The event as a change of this row. None: it only quotes the row's key."""
    data = load(event.body)["data"]
    if (data["table"], data["key"]) != (row._meta.label, str(row.pk)):
        return None
    before, after = data["before"] or {}, data.get("after") or {}
    names = dict.fromkeys([*before, *after])
    fields = [Field(name, before.get(name), after.get(name)) for name in names]
    return Recorded(event.at, event.actor, event.type.removeprefix("configuration."), fields)


# --- What was changed, in any row ------------------------------------------------------------------

# One page looks through at most this many events: only the text of an event has names and tables.
MAX_LOOKED_AT = 2000
_AT_A_TIME = 200


@dataclass(frozen=True)
class Wanted:
    """Which changes to find. Empty: all. `who` are actor keys, as in `user:5`; None: anybody."""

    table: str = ""
    name: str = ""
    key: str = ""
    who: Collection[str] | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Made:
    """One change of a configuration row."""

    id: uuid.UUID
    at: datetime
    actor: str
    what: str
    table: str
    key: str
    name: str
    fields: list[Field]


@dataclass(frozen=True)
class Page:
    """Changes, latest first. `older` is where the next page begins; `is_cut`: this page was not searched to its end."""

    made: list[Made]
    older: Place | None = None
    is_cut: bool = False


def latest(wanted: Wanted, most: int, before: Place | None = None) -> Page:
    """A page of changes, from the latest or from a given place. One query for every two hundred events searched."""
    found: list[Made] = []
    looked_at = 0
    events = _candidates(wanted)
    while looked_at < MAX_LOOKED_AT:
        rows = list(_behind(events, before)[:_AT_A_TIME])
        for event in rows:
            if len(found) == most:
                return Page(found, before)
            looked_at, before = looked_at + 1, Place.of(event)
            made = read(event)
            if _fits(made, wanted):
                found.append(made)
        if len(rows) < _AT_A_TIME:
            return Page(found)
    return Page(found, before, is_cut=True)


def read(event: Event) -> Made:
    """An event as the change it records. Its type is one of `TYPES`."""
    data = event.data
    before, after = data["before"] or {}, data.get("after") or {}
    fields = [Field(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]
    what = event.type.removeprefix("configuration.")
    return Made(event.pk, event.at, event.actor, what, data["table"], data["key"], data["name"], fields)


def _candidates(wanted: Wanted) -> models.QuerySet[Event]:
    """Candidate events: their text contains what is searched for, somewhere."""
    events = Event.objects.filter(chain=ledger.CONFIGURATION, type__in=TYPES)
    if wanted.table:
        events = events.filter(body__contains=f'"table":{canonical(wanted.table)}')
    if wanted.key:
        events = events.filter(body__contains=f'"key":{canonical(wanted.key)}')
    if wanted.who is not None:
        events = events.filter(actor_key__in=wanted.who)
    return events.filter(at__gte=wanted.since) if wanted.since is not None else events


def _behind(events: models.QuerySet[Event], place: Place | None) -> models.QuerySet[Event]:
    ordered = events.order_by("-at", "-id")
    return ordered if place is None else ordered.filter(place.older)


def _fits(made: Made, wanted: Wanted) -> bool:
    same = made.table == (wanted.table or made.table) and made.key == (wanted.key or made.key)
    return same and wanted.name.casefold() in made.name.casefold()
