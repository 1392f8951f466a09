import uuid

from django.db import migrations, models


def this_is_the_one(apps, schema_editor):
    from agentapp.continuity import tables_of

    apps.get_model("agentapp", "Continuity").objects.create(tables=tables_of(schema_editor.connection))


class Migration(migrations.Migration):

    dependencies = [
        ("agentapp", "0034_judged_cases"),
    ]

    operations = [
        migrations.CreateModel(
            name="Continuity",
            fields=[
                ("name", models.CharField(default="here", max_length=4, primary_key=True, serialize=False)),
                ("mark", models.UUIDField(default=uuid.uuid4, help_text="Of this installation; a copy has the same.")),
                ("tables", models.CharField(help_text="Which tables these are, by what a copy cannot have.", max_length=80)),
                ("sweeps", models.PositiveBigIntegerField(default=0, help_text="How often it was swept; only ever grows.")),
            ],
            options={"verbose_name_plural": "continuity"},
        ),
        migrations.RunPython(this_is_the_one, migrations.RunPython.noop),
    ]
