from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentapp", "0039_token_issuer"),
    ]

    operations = [
        migrations.AddField(
            model_name="toolexecution",
            name="secret_fields",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Its tool's, or those of the calls of a plan, when it was proposed.",
            ),
        ),
        migrations.AlterField(
            model_name="toolexecution",
            name="pii_fields",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Its tool's, or those of the calls of a plan, when it was proposed.",
            ),
        ),
    ]
