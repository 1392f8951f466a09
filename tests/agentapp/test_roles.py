"""Groups made from roles before a permission existed: what they lack, and how they get it."""

from importlib import import_module
from io import StringIO

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from agentapp import roles as role_groups
from approvals.models import Approval, Event
from tests.conftest import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def before(roles: dict[str, Group]) -> Group:
    """The approvers of an installation older than two permissions, who also have one of their own."""
    group = Group.objects.get(name="approver")
    group.permissions.remove(*Permission.objects.filter(codename__in=["reveal_pii", "undo_call"]))
    group.permissions.add(Permission.objects.get(codename="view_event"))
    return group


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("roles", *arguments, stdout=out)
    return out.getvalue()


def names(group: Group) -> set[str]:
    return {f"{each.content_type.app_label}.{each.codename}" for each in group.permissions.all()}


def warned() -> list[str]:
    found = run_checks(databases=["default"])
    return [message.msg for message in found if message.id == "countersign.W011"]


def test_what_new_groups_have_lacks_nothing(roles: dict[str, Group]) -> None:
    assert said() == said("--check") == "The groups of the roles lack nothing.\n"
    assert warned() == []


def test_what_a_group_lacks_is_said_and_nothing_is_changed(before: Group) -> None:
    had, events = names(before), Event.objects.count()
    assert said() == "approver lacks: approvals.reveal_pii, agentapp.undo_call\n"
    with pytest.raises(CommandError, match="lack permissions"):
        said("--check")
    assert len(warned()) == 1
    assert "approvals.reveal_pii, agentapp.undo_call" in warned()[0]
    assert (names(before), Event.objects.count()) == (had, events)


def test_a_group_is_given_what_it_lacks_on_record_and_keeps_what_it_has(before: Group) -> None:
    assert said("--update") == "approver was given: approvals.reveal_pii, agentapp.undo_call\n"
    assert names(before) == {*role_groups.ROLES["approver"], "approvals.view_event"}
    event = Event.objects.get(type="configuration.changed")
    assert (event.actor, event.data["name"]) == ("system", "approver")
    gained = {*event.data["after"]["permissions"]} - {*event.data["before"]["permissions"]}
    assert len(gained) == 2
    assert said("--update") == "They lacked nothing.\n"
    assert Event.objects.filter(type="configuration.changed").count() == 1


def test_only_the_roles_that_are_named_are_given_anything(before: Group) -> None:
    assert said("--update", "manager") == "They lacked nothing.\n"
    assert "approvals.reveal_pii" not in names(before)
    with pytest.raises(CommandError, match="No role is named approvers"):
        said("--update", "approvers")


def test_a_role_without_a_group_is_not_made(before: Group) -> None:
    Group.objects.filter(name="viewer").delete()
    said("--update")
    assert not Group.objects.filter(name="viewer").exists()


def test_whoever_may_decide_when_seeing_secrets_becomes_a_right_is_given_it(roles, db) -> None:
    """The installation's own groups and individual people too; nobody else."""
    Permission.objects.filter(codename="reveal_secret").delete()
    decide = Permission.objects.get(codename="decide_approval")
    team = Group.objects.create(name="payments")
    team.permissions.add(decide)
    alone, other = make_user("Alone Decider"), make_user("Otto Other", "viewer")
    alone.user_permissions.add(decide)

    import_module("approvals.migrations.0029_reveal_secret").give(apps, None)

    [reveal] = Permission.objects.filter(codename="reveal_secret")
    assert set(reveal.group_set.values_list("name", flat=True)) == {"approver", "payments"}
    assert set(reveal.user_set.all()) == {alone}
    assert not other.has_perm("approvals.reveal_secret")
    assert reveal.name == dict(Approval._meta.permissions)["reveal_secret"]
