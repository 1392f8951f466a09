from django.db import migrations, models

from approvals import append_only, ledger
from approvals.digest import load

AT_ONCE = 2000


def lift(apps, schema_editor):
    append_only.remove(schema_editor.connection)


def install(apps, schema_editor):
    append_only.install(schema_editor.connection)


def fill(apps, schema_editor):
    """Take what each event is about from its text, which is hashed and stays as it is."""
    Event = apps.get_model("approvals", "Event")
    found, batch = Event.objects.only("pk", "actor", "body").order_by("pk").iterator(AT_ONCE), []
    for event in found:
        for name, value in ledger.about(event.actor, load(event.body)["data"]).items():
            setattr(event, name, value)
        batch.append(event)
        if len(batch) == AT_ONCE:
            _write(Event, batch)
            batch = []
    _write(Event, batch)


def _write(Event, batch):
    names = ["actor_key", "approval_id", "execution_id", "tool", "risk", "took_ms"]
    Event.objects.bulk_update(batch, names)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0018_assurance_of_plans'),
    ]

    operations = [
        migrations.RunPython(lift, install),
        migrations.AddField(
            model_name='event',
            name='actor_key',
            field=models.CharField(default='', editable=False, max_length=200),
        ),
        migrations.AddField(
            model_name='event',
            name='approval_id',
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='event',
            name='execution_id',
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='event',
            name='risk',
            field=models.CharField(blank=True, max_length=10),
        ),
        migrations.AddField(
            model_name='event',
            name='took_ms',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='event',
            name='tool',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(fields=['actor_key', '-at', '-id'], name='event_of_actor'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(fields=['type', '-at', '-id'], name='event_of_type'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('tool', ''), _negated=True), fields=['tool', '-at', '-id'], name='event_of_tool'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('risk', ''), _negated=True), fields=['risk', '-at', '-id'], name='event_of_risk'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('took_ms__isnull', False)), fields=['-at', '-id'], name='event_timed'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('approval_id__isnull', False)), fields=['approval_id'], name='event_of_approval'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('execution_id__isnull', False)), fields=['execution_id'], name='event_of_execution'),
        ),
        migrations.RunPython(install, lift),
    ]
