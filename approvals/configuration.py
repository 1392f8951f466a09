"""Changes to configuration, each an event with what was there before and after.

Admin pages, commands and the API all change configuration through here. The height of the
configuration chain is therefore the version of the configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models

from approvals import ledger
from approvals.models import Rule

# Never written to an event, whatever table they stand in.
SECRET_FIELDS = frozenset({"password", "digest", "secret"})


def describe(instance: models.Model) -> dict[str, Any]:
    """A row as plain JSON values. Related rows are named by their text, secrets are left out."""
    described: dict[str, Any] = {}
    for field in instance._meta.concrete_fields:
        if field.name in SECRET_FIELDS:
            continue
        value = getattr(instance, field.attname)
        described[field.name] = (
            value if isinstance(value, bool | int | float | str | list | dict | None) else str(value)
        )
    for many in instance._meta.many_to_many:
        if instance.pk is not None and not instance._state.adding:
            described[many.name] = sorted(str(item) for item in getattr(instance, many.name).all())
    return described


def before(instance: models.Model) -> dict[str, Any] | None:
    """The stored state of a row that is about to change. None: it is new."""
    stored = type(instance)._default_manager.filter(pk=instance.pk).first()
    return describe(stored) if stored is not None else None


def save(
    instance: models.Model, actor: str, many: Mapping[str, Sequence[models.Model]] | None = None
) -> dict[str, Any]:
    """Store a row and its many-to-many links, and record what changed. Returns the changed fields."""
    with ledger.transaction():
        was = before(instance)
        if isinstance(instance, Rule) and was is not None:
            instance.version += 1
        instance.save()
        for name, items in (many or {}).items():
            getattr(instance, name).set(items)
        return record_change(instance, was, actor)


def delete(instance: models.Model, actor: str) -> None:
    """Remove a row and record what it was."""
    with ledger.transaction():
        was = describe(instance)
        name, label, key = str(instance), instance._meta.label, str(instance.pk)
        instance.delete()
        data = {"table": label, "key": key, "name": name, "before": was}
        ledger.record(ledger.CONFIGURATION, "configuration.deleted", data, actor)


def record_change(instance: models.Model, was: dict[str, Any] | None, actor: str) -> dict[str, Any]:
    """Record the difference between a row and what it was. Nothing is recorded when nothing changed."""
    now = describe(instance)
    changed = {name: now[name] for name in now if was is None or was.get(name) != now[name]}
    changed.pop("version", None) if was is not None and set(changed) == {"version"} else None
    if not changed:
        return {}
    data = {
        "table": instance._meta.label,
        "key": str(instance.pk),
        "name": str(instance),
        "before": None if was is None else {name: was.get(name) for name in changed},
        "after": changed,
    }
    what = "configuration.created" if was is None else "configuration.changed"
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, what, data, actor)
    return changed
