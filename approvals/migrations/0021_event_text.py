"""Indexes that find events by the words in them, by what only their texts tell, and by how long they took.

The text of an event is canonical JSON and is indexed as the plain text it is: a cast to jsonb would refuse what the
ledger must take. What is cut off, and the events that hold no words of anybody, are not searched.
"""

from typing import Any

from django.db import migrations, models
from django.db.models import Q

from approvals import append_only

EVENTS = (
    "CREATE INDEX approvals_event_text ON approvals_event USING gin "
    "(to_tsvector('simple', replace(replace(left(body, 100000), '\\n', ' '), '\\r', ' '))) "
    "WHERE NOT (type IN ('run.claimed', 'run.released', 'run.waiting', 'run.succeeded', 'step.recorded', "
    "'tool_call.proposed', 'tool_call.started', 'tool_call.completed', 'approval.used'))"
)
TITLES = (
    "CREATE INDEX approvals_approval_text ON approvals_approval USING gin "
    "(to_tsvector('simple', title || ' ' || final_title))"
)
# What is rare among the events of its type would be looked for in all of them.
_LATEST = "ON approvals_event (at DESC, id DESC) WHERE"
_COMPLETED = "type = 'tool_call.completed'"
RARE = (
    f"CREATE INDEX event_edited {_LATEST} type IN ('approval.approved', 'approval.changed') "
    """AND body LIKE '%"type":"edit"%'""",
    f"""CREATE INDEX event_refused {_LATEST} {_COMPLETED} AND body LIKE '%"status":"refused"%'""",
    f"CREATE INDEX event_failed {_LATEST} {_COMPLETED} "
    """AND NOT body LIKE '%"status":"ok"%' AND NOT body LIKE '%"status":"refused"%'""",
    f"CREATE INDEX event_by_token {_LATEST} actor LIKE '% (token %'",
    f"CREATE INDEX event_by_api {_LATEST} actor LIKE '% (api %'",
)
NAMES = ("approvals_event_text", "approvals_approval_text", "event_edited", "event_refused", "event_failed",
         "event_by_token", "event_by_api")  # fmt: skip


def make(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in (EVENTS, TITLES, *RARE):
            schema_editor.execute(statement, None)


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for name in NAMES:
            schema_editor.execute(f"DROP INDEX {name}")


def guard(apps: Any, schema_editor: Any) -> None:
    append_only.install(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0020_ended")]

    operations = [
        migrations.AddIndex(
            model_name="approval", index=models.Index(fields=["rule", "-created_at"], name="approval_of_rule")
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["took_ms"], condition=Q(took_ms__isnull=False), name="event_took"),
        ),
        migrations.RunPython(make, drop),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
