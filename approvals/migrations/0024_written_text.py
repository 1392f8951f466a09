"""Indexes that find by its words what people wrote about requests: the ledger holds no more than a digest of it.

And one that finds among the events of a type those that took so long.
"""
from typing import Any

from django.db import migrations, models
from django.db.models import Q

from approvals import append_only

TEXTS = {
    "approvals_decision": "message",
    "approvals_question": "text || ' ' || answer",
    "approvals_comment": "text",
    "approvals_claim": "note",
}


def make(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table, text in TEXTS.items():
            index = f"CREATE INDEX {table}_text ON {table} USING gin (to_tsvector('simple', {text}))"
            schema_editor.execute(index, None)


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table in TEXTS:
            schema_editor.execute(f"DROP INDEX {table}_text")


def guard(apps: Any, schema_editor: Any) -> None:
    append_only.install(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0023_salts_and_marks")]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                fields=["type", "took_ms"], condition=Q(took_ms__isnull=False), name="event_took_of_type"
            ),
        ),
        migrations.RunPython(make, drop),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
