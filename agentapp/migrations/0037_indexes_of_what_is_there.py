import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentapp", "0036_rules_of_evals"),
        ("approvals", "0029_reveal_secret"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="run",
            name="run_of_conversation",
        ),
        migrations.AlterField(
            model_name="run",
            name="asked_in",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The conversation in which the run it comes from was asked. It is told of it and says nothing there.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="branches",
                to="agentapp.conversation",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="conversation",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="agentapp.conversation",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="parent",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The run whose agent asked this one for help.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="children",
                to="agentapp.run",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="retry_of",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The run that this one tries again.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="retries",
                to="agentapp.run",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="starter",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="taken_over_by",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The person who speaks in the agent's place until they hand back.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="token",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="agentapp.apitoken",
            ),
        ),
        migrations.AlterField(
            model_name="step",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="steps", to="agentapp.run"
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="evaluation",
            field=models.ForeignKey(
                db_index=False,
                help_text="Why it was proposed, where guidelines decide.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to="agentapp.toolevaluation",
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="grant",
            field=models.ForeignKey(
                db_index=False,
                help_text="The grant it ran under.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to="approvals.grant",
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="replay_of",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="replays",
                to="agentapp.toolexecution",
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="run",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to="agentapp.run",
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="step",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="executions",
                to="agentapp.step",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("conversation__isnull", False)),
                fields=["conversation", "created_at"],
                name="run_of_conversation",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(condition=models.Q(("parent__isnull", False)), fields=["parent"], name="run_parent"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("retry_of__isnull", False)), fields=["retry_of"], name="run_retry_of"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("asked_in__isnull", False)), fields=["asked_in"], name="run_asked_in"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(condition=models.Q(("token__isnull", False)), fields=["token"], name="run_token"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("taken_over_by__isnull", False)), fields=["taken_over_by"], name="run_taken_over_by"
            ),
        ),
        migrations.AddIndex(
            model_name="toolexecution",
            index=models.Index(condition=models.Q(("grant__isnull", False)), fields=["grant"], name="execution_grant"),
        ),
        migrations.AddIndex(
            model_name="toolexecution",
            index=models.Index(
                condition=models.Q(("evaluation__isnull", False)), fields=["evaluation"], name="execution_evaluation"
            ),
        ),
        migrations.AddIndex(
            model_name="toolexecution",
            index=models.Index(
                condition=models.Q(("replay_of__isnull", False)), fields=["replay_of"], name="execution_replay_of"
            ),
        ),
    ]
