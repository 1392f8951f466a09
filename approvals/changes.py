"""What was changed in one row of configuration, read back from the ledger. Writes nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models

from approvals import ledger
from approvals.digest import canonical, load
from approvals.models import Event

# What is longer folds.
LONG = 120


@dataclass(frozen=True)
class Field:
    """One column of a change: what stood there, and what stands there now. None: the row was not there."""

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
        """The actor as people read it: without the number of their row."""
        return self.actor.split(":", 2)[-1]

    def of(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def of(row: models.Model, most: int = 100) -> list[Recorded]:
    """The events about a row, latest first."""
    named = f'"key":"{row.pk}"', f'"table":"{row._meta.label}"'
    events = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith="configuration.")
    for text in named:
        events = events.filter(body__contains=text)
    return [found for event in events.order_by("-seq")[:most] if (found := _read(event, row)) is not None]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return value if isinstance(value, str) else canonical(value)


def _read(event: Event, row: models.Model) -> Recorded | None:
    """The event as a change of this row. None: it only quotes its key."""
    data = load(event.body)["data"]
    if (data["table"], data["key"]) != (row._meta.label, str(row.pk)):
        return None
    before, after = data["before"] or {}, data.get("after") or {}
    names = dict.fromkeys([*before, *after])
    fields = [Field(name, before.get(name), after.get(name)) for name in names]
    return Recorded(event.at, event.actor, event.type.removeprefix("configuration."), fields)
