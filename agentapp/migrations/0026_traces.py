import agentapp.trace_context
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Cast, Replace


def trace_older_runs(apps, schema_editor):
    """A run of before is in a trace named by its own id; one that another asked for, in that one's."""
    runs = apps.get_model('agentapp', 'Run').objects
    own = Replace(Cast('id', CharField()), Value('-'), Value(''))
    runs.filter(trace_id='', depth=0).update(trace_id=own)
    depth = 1
    above = runs.filter(pk=OuterRef('parent_id')).values('trace_id')[:1]
    while runs.filter(depth=depth).exists():
        runs.filter(trace_id='', depth=depth).update(trace_id=Subquery(above))
        depth += 1


class Migration(migrations.Migration):

    dependencies = [
        ('agentapp', '0025_reach'),
    ]

    operations = [
        migrations.CreateModel(
            name='TraceProgress',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='trace_progress', serialize=False, to='agentapp.run')),
                ('steps', models.PositiveIntegerField(default=0, help_text='How many of its steps, from the first, were exported.')),
                ('is_complete', models.BooleanField(default=False, help_text='The run has ended, and so was its own span.')),
                ('claimed_until', models.DateTimeField(blank=True, help_text='So long one process exports it, and others leave it alone.', null=True)),
            ],
        ),
        migrations.AddField(
            model_name='run',
            name='traceparent',
            field=models.CharField(blank=True, help_text="The caller's place in a trace of theirs, which ours links to.", max_length=55),
        ),
        # One default for all rows would be one trace for all.
        migrations.AddField(
            model_name='run',
            name='trace_id',
            field=models.CharField(blank=True, default='', help_text='Of the W3C trace of the run and of those it asks.', max_length=32),
        ),
        migrations.RunPython(trace_older_runs, migrations.RunPython.noop),
        migrations.AlterField(
            model_name='run',
            name='trace_id',
            field=models.CharField(blank=True, default=agentapp.trace_context.new_trace_id, help_text='Of the W3C trace of the run and of those it asks.', max_length=32),
        ),
    ]
