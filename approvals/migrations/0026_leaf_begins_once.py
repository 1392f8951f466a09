from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from approvals import append_only


def guard(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """SQLite has made the table anew, without its triggers."""
    append_only.install(schema_editor.connection)


class Migration(migrations.Migration):
    """No event of a chain is covered by two checkpoints."""

    dependencies = [("approvals", "0025_rule_versions_of_requests")]

    operations = [
        migrations.AddConstraint(
            model_name="checkpointleaf",
            constraint=models.UniqueConstraint(fields=["chain", "first"], name="leaf_begins_once"),
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
