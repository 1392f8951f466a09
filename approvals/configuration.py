"""Changes to the configuration, each an event with the state before and after.

Admin pages, commands and the API all change configuration through here. The height of the configuration chain is
therefore the version of the configuration.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import NestedObjects
from django.contrib.auth.models import Group
from django.db import models, router
from django.db.models import ProtectedError

from approvals import ledger

# Never written to an event, whichever table they are in.
SECRET_FIELDS = frozenset({"password", "digest", "secret"})
# Long lists that follow from the rest of the event.
DERIVED_FIELDS = frozenset({"simulated_calls"})

_PLAIN = (bool, int, float, str, list, dict, type(None))


@dataclass(frozen=True)
class Change:
    """What one event says: the fields that differ, before and after.

    `before` is None for a new row, `after` is None for a deleted one.
    """

    table: str
    key: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def event_type(self) -> str:
        what = "created" if self.before is None else "deleted" if self.after is None else "changed"
        return f"configuration.{what}"


class _Rehearsed(Exception):
    """Undoes everything a rehearsal did."""


@contextmanager
def transaction(dry_run: bool = False) -> Iterator[None]:
    """A `ledger.transaction()` around several changes. A dry run is undone at its end, events included."""
    try:
        with ledger.transaction():
            yield
            if dry_run:
                raise _Rehearsed
    except _Rehearsed:
        pass


def describe(instance: models.Model) -> dict[str, Any]:
    """A row as plain JSON values. Related rows are named by their text; secrets are left out."""
    described: dict[str, Any] = {}
    for field in instance._meta.concrete_fields:
        if field.name in SECRET_FIELDS | DERIVED_FIELDS:
            continue
        value = getattr(instance, field.name)
        described[field.name] = value if isinstance(value, _PLAIN) else str(value)
    for many in instance._meta.many_to_many:
        if instance.pk is not None and not instance._state.adding:
            described[many.name] = sorted(str(item) for item in _with_owners(getattr(instance, many.name).all()))
    return described


def before(instance: models.Model) -> dict[str, Any] | None:
    """The stored state of a row that is about to change, locked until the transaction ends. None: the row is new."""
    stored = _stored(instance).select_for_update(of=("self",), no_key=True).first()
    return describe(stored) if stored is not None else None


def hold(instance: models.Model) -> None:
    """Lock the stored row until the transaction ends: others who would change it wait."""
    list(_stored(instance).select_for_update(of=("self",), no_key=True).values_list("pk"))


def save(instance: models.Model, actor: str, many: Mapping[str, Sequence[models.Model]] | None = None) -> Change | None:
    """Store a row and its many-to-many links, and record what changed. None: nothing did."""
    with ledger.transaction():
        was = before(instance)
        instance.save()
        _hold_groups(many or {})
        for name, items in (many or {}).items():
            getattr(instance, name).set(items)
        return record_change(instance, was, actor)


def naming(group: Group) -> list[models.Model]:
    """The rules, requests, channels and tools that name a group. Without the group they would mean everybody."""
    return [*group.rule_set.all(), *group.approval_set.all()[:20], *group.channel_set.all(), *group.tool_set.all()]


def delete(instance: models.Model, actor: str) -> list[Change]:
    """Remove a row and the rows that go with it, and record what each was.

    Raises ProtectedError if something that must stay refers to it.
    """
    with ledger.transaction():
        # Others who would refer to this row wait for this lock, and then the row is gone.
        list(_stored(instance).select_for_update(of=("self",)).values_list("pk"))
        if isinstance(instance, Group) and (rows := naming(instance)):
            raise ProtectedError(f"{instance} is named by {rows[0]}, which would be open to everybody.", set(rows))
        changes = [
            Change(row._meta.label, str(row.pk), str(row), describe(row), None)
            for row in [instance, *_going_with(instance)]
        ]
        instance.delete()
        for change in changes:
            _record(change, actor)
    return changes


def record_change(instance: models.Model, was: dict[str, Any] | None, actor: str) -> Change | None:
    """Record how the stored row differs from what it was. None: it does not, and nothing is recorded."""
    with ledger.transaction():
        now = describe(_stored(instance).get())
        changed = [name for name in now if was is None or was.get(name) != now[name]]
        if not changed:
            return None
        # A writer that sets the version itself has already counted.
        if was is not None and _counts_versions(instance) and now["version"] <= was["version"]:
            now["version"] = was["version"] + 1
            _stored(instance).update(version=now["version"])
            instance.version = now["version"]  # type: ignore[attr-defined]
            changed.append("version")
            changed = list(dict.fromkeys(changed))
        change = Change(
            table=instance._meta.label,
            key=str(instance.pk),
            name=str(instance),
            before=None if was is None else {name: was.get(name) for name in changed},
            after={name: now[name] for name in changed},
        )
        _record(change, actor)
    return change


def _counts_versions(instance: models.Model) -> bool:
    """Whether a row has a version that grows with each change."""
    return any(
        field.name == "version" and isinstance(field, models.IntegerField) for field in instance._meta.concrete_fields
    )


def _with_owners(linked: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Rows with the rows they belong to, from which the text of many is made."""
    owners = [field.name for field in linked.model._meta.concrete_fields if field.many_to_one and not field.null]
    return linked.select_related(*owners) if owners else linked


def _record(change: Change, actor: str) -> None:
    data = {"table": change.table, "key": change.key, "name": change.name, "before": change.before}
    if change.after is not None:
        data["after"] = change.after
    ledger.record(ledger.CONFIGURATION, change.event_type, data, actor)


def _going_with(instance: models.Model) -> list[models.Model]:
    """The rows that a deletion takes along, except those that only link two others."""
    collector = NestedObjects(using=router.db_for_write(type(instance)), origin=instance)
    collector.collect([instance])
    return [
        row
        for model, rows in collector.data.items()
        if not model._meta.auto_created
        for row in rows
        if (type(row), row.pk) != (type(instance), instance.pk)
    ]


def _hold_groups(many: Mapping[str, Sequence[models.Model]]) -> None:
    """Keep groups from being deleted until the rows that name them are stored.

    References are checked at commit, under the chain's lock. A deletion that held the group and wanted the chain would
    end one of the two as a deadlock.
    """
    groups = [item.pk for items in many.values() for item in items if isinstance(item, Group)]
    if groups:
        list(Group.objects.select_for_update(no_key=True).filter(pk__in=groups).order_by("pk").values_list("pk"))


def _stored(instance: models.Model) -> models.QuerySet[Any]:
    return type(instance)._default_manager.filter(pk=instance.pk)
