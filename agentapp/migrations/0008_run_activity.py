from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [('agentapp', '0007_takers')]

    operations = [
        migrations.AddIndex(
            model_name="run", index=models.Index(fields=["-updated_at", "-id"], name="run_last_active")
        ),
    ]
