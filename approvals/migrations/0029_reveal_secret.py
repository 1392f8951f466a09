"""Seeing a masked argument is a right of its own. Whoever could decide until now could see them, and still can."""

from typing import Any

from django.db import migrations

NAME = "Can see masked arguments of requests they may decide"


def give(apps: Any, schema_editor: Any) -> None:
    """To the groups and people that have the right to decide. Permissions are made after migrations, so this one is."""
    Permission = apps.get_model("auth", "Permission")
    for decide in Permission.objects.filter(content_type__app_label="approvals", codename="decide_approval"):
        reveal, _ = Permission.objects.get_or_create(
            content_type=decide.content_type, codename="reveal_secret", defaults={"name": NAME}
        )
        for group in decide.group_set.all():
            group.permissions.add(reveal)
        for user in decide.user_set.all():
            user.user_permissions.add(reveal)


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("approvals", "0028_judgements"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="approval",
            options={
                "ordering": ["-created_at"],
                "permissions": [
                    ("decide_approval", "Can decide approvals"),
                    ("reveal_pii", "Can see personal data on every page"),
                    ("reveal_secret", NAME),
                ],
            },
        ),
        migrations.RunPython(give, migrations.RunPython.noop, elidable=True),
    ]
