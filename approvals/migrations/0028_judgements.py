"""What is said afterwards of decisions; and an index that finds it by its words."""

from typing import Any

import approvals.ids
import approvals.sealed
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def index(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        text = "to_tsvector('simple', reason)"
        schema_editor.execute(f"CREATE INDEX approvals_judgement_text ON approvals_judgement USING gin ({text})", None)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0027_mocked_runs'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Judgement',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(help_text='From 1, for each decision. The highest counts.')),
                ('mark', models.CharField(choices=[('good', 'Good'), ('wrong', 'Wrong'), ('harmful', 'Harmful')], max_length=7)),
                ('reason', models.TextField()),
                ('salt', models.CharField(blank=True, default=approvals.sealed.new_salt, editable=False, help_text='Of what the ledger says of its reason.', max_length=32)),
                ('event', models.UUIDField(db_index=True, help_text='The event that tells of the decision.', null=True)),
                ('at', models.DateTimeField()),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='judgements', to='approvals.approval')),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='judgements', to='approvals.decision')),
                ('judge', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['decision', 'number'],
                'permissions': [('judge_decision', 'Can say afterwards whether a decision was good')],
                'constraints': [models.UniqueConstraint(fields=('decision', 'number'), name='judgement_one_counts', violation_error_message='Of the judgements of a decision one is the last.'), models.CheckConstraint(condition=models.Q(('mark__in', ['good', 'wrong', 'harmful'])), name='judgement_mark_is_known', violation_error_message='A decision was good, wrong or harmful.'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='judgement_has_reason', violation_error_message='A judgement says why.')],
            },
        ),
        migrations.RunPython(index, migrations.RunPython.noop),
    ]
