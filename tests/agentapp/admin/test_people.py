"""Changes to people and groups are events without passwords; nobody can raise their own rights."""

from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission, User
from django.db.models import ProtectedError
from django.test import Client

from agentapp import account_changes, nudges
from approvals import configuration, ledger, rule_versions
from approvals.models import Event, Rule
from tests.admin_pages import address, configuration_events, errors_of, renew, save, shown_in, submit

pytestmark = pytest.mark.django_db
PASSWORD = "a long and new one"


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    renew(client)
    return client


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    renew(client)
    return client


def test_a_new_person_is_an_event_without_a_password(staff: Client) -> None:
    save(staff, address(User, "add"), username="zoe", password1=PASSWORD, password2=PASSWORD)
    zoe = User.objects.get(username="zoe")
    assert zoe.check_password(PASSWORD)
    [event] = configuration_events()
    assert (event.type, event.data["name"]) == ("configuration.created", "zoe")
    assert "password" not in event.data["after"]
    assert zoe.password not in event.body


def test_nobody_gets_a_name_that_somebody_has_but_for_capitals(staff: Client, sam: User, dana: User) -> None:
    url = address(User, "change", dana.pk)
    assert "Somebody already has this name" in errors_of(submit(staff, url, username="SAM"))
    save(staff, url, username="Dana")
    dana.refresh_from_db()
    assert dana.username == "Dana"


def test_an_address_that_an_administrator_changes_is_told_to_the_one_that_was(
    staff: Client, sam: User, django_capture_on_commit_callbacks: Any
) -> None:
    url = address(User, "change", sam.pk)
    with django_capture_on_commit_callbacks() as due:
        save(staff, url, last_name="Reed")
        save(staff, url, email="sam@elsewhere.example")
    calls = [call.args[:3] for call in due if getattr(call, "func", None) is nudges.account_changed]
    assert calls == [(sam.pk, account_changes.ADDRESS_CHANGED, "sam@example.test")]


def test_of_two_who_have_one_name_but_for_capitals_each_can_be_changed(staff: Client, sam: User) -> None:
    other = User.objects.create_user("Sam")
    save(staff, address(User, "change", other.pk), last_name="Other")
    save(staff, address(User, "change", other.pk), username="samuel")


def test_joining_a_group_is_an_event(staff: Client, sam: User, roles: dict[str, Group]) -> None:
    groups = [roles["operator"].pk, roles["approver"].pk]
    save(staff, address(User, "change", sam.pk), groups=groups)
    [event] = configuration_events()
    assert event.data["before"] == {"groups": ["operator"]}
    assert event.data["after"] == {"groups": ["approver", "operator"]}


def test_a_new_password_is_an_event_that_does_not_hold_it(staff: Client, sam: User) -> None:
    url = f"/admin/auth/user/{sam.pk}/password/"
    fields = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert staff.post(url, {**fields, "password2": "different"}).status_code == 200
    assert configuration_events() == []
    staff.post(url, fields)
    sam.refresh_from_db()
    assert sam.check_password(PASSWORD)
    [event] = configuration_events()
    assert (event.type, event.data) == ("user.password_changed", {"user": sam.pk, "name": "sam", "usable": True})
    assert sam.password not in event.body


def test_an_admin_cannot_make_or_touch_a_superuser(staff: Client, ada: User, sam: User) -> None:
    root = User.objects.create_superuser("root")
    save(staff, address(User, "change", ada.pk), is_superuser="on", user_permissions=["1"])
    ada.refresh_from_db()
    assert not ada.is_superuser
    assert not ada.user_permissions.exists()
    url = address(User, "change", root.pk)
    assert staff.post(url, {"username": "mine"}).status_code == 403
    assert staff.post(f"/admin/auth/user/{root.pk}/password/", {"password1": PASSWORD}).status_code == 403
    root.refresh_from_db()
    assert root.username == "root"


def test_a_superuser_can_make_another(root: Client, sam: User) -> None:
    save(root, address(User, "change", sam.pk), is_superuser="on")
    sam.refresh_from_db()
    assert sam.is_superuser


def test_a_groups_permissions_are_recorded_by_name(root: Client) -> None:
    permission = Permission.objects.get(codename="decide_approval")
    save(root, address(Group, "add"), name="leads", permissions=[permission.pk])
    [event] = configuration_events()
    assert event.data["after"]["permissions"] == [str(permission)]
    assert ledger.verify()[1] is None


def test_whoever_looks_at_a_group_reads_one_permission_in_each_line(staff: Client, roles: dict[str, Group]) -> None:
    page = staff.get(address(Group, "change", roles["operator"].pk)).content.decode()
    names = sorted(roles["operator"].permissions.values_list("name", flat=True))
    assert len(names) > 2
    assert "<br>".join(names) in page
    assert "Agents | run |" not in page


def test_a_group_that_a_rule_names_cannot_be_deleted(root: Client, roles: dict[str, Group]) -> None:
    """Its rule would be left without a group, and so open to everybody who may decide."""
    Rule.objects.create(name="refunds", verdict="ask").groups.add(roles["approver"])
    url = address(Group, "delete", roles["approver"].pk)
    assert "rule refunds" in root.get(url).content.decode()
    root.post(url, {"post": "yes"})
    assert Group.objects.filter(name="approver").exists()
    with pytest.raises(ProtectedError):
        configuration.delete(roles["approver"], "user:1:root")


def test_a_group_that_nothing_names_can_be_deleted(root: Client) -> None:
    group = Group.objects.create(name="leavers")
    root.post(address(Group, "delete", group.pk), {"post": "yes"})
    assert not Group.objects.filter(name="leavers").exists()


def test_whoever_lost_their_device_comes_in_again_and_others_are_out(staff: Client, dana: User) -> None:
    open_elsewhere = Client()
    open_elsewhere.post("/login/", {"username": "dana", "password": "correct horse battery"})
    Authenticator.objects.create(user=dana, type="totp", data={"secret": "A" * 32})

    staff.post(address(User, "changelist"), {"action": "forget_factors", "_selected_action": [dana.pk]})

    assert not Authenticator.objects.exists()
    assert open_elsewhere.get("/inbox/").status_code == 302
    event = Event.objects.get(type="signin.factors_forgotten")
    assert event.data == {"user": "dana", "kinds": ["totp"]}


def test_an_admin_does_not_take_the_factors_of_a_superuser(staff: Client) -> None:
    root = User.objects.create_superuser("root")
    Authenticator.objects.create(user=root, type="totp", data={"secret": "A" * 32})

    staff.post(address(User, "changelist"), {"action": "forget_factors", "_selected_action": [root.pk]})

    assert Authenticator.objects.filter(user=root).exists()


def test_secrets_and_sessions_of_people_have_no_page(root: Client) -> None:
    page = root.get("/admin/").content.decode()
    for words in ("Authenticator", "Social", "Email address", "User session"):
        assert words not in page


@pytest.mark.parametrize(
    "terms",
    [{"escalation": [{"after": 60, "group": "second line"}]}, {"thresholds": [{"approve": 1, "group": "second line"}]}],
)
def test_a_group_that_rules_know_by_name_keeps_it_and_stays(root: Client, terms: dict[str, Any]) -> None:
    group = Group.objects.create(name="second line")
    rule = Rule.objects.create(name="refunds", verdict="ask", **terms)
    page = submit(root, address(Group, "change", group.pk), name="third line")
    assert "refer to this group by name: refunds" in page.content.decode()
    assert "rule refunds" in root.get(address(Group, "delete", group.pk)).content.decode()
    Rule.objects.filter(pk=rule.pk).update(escalation=[], thresholds=[])
    submit(root, address(Group, "change", group.pk), name="third line")
    group.refresh_from_db()
    assert group.name == "third line"


def test_a_group_that_a_draft_names_keeps_its_name(root: Client, ada: User) -> None:
    group = Group.objects.create(name="second line")
    drafted = Rule(name="refunds", verdict="ask")
    rule_versions.draft_new(drafted, [group], ada, "user:ada")
    page = submit(root, address(Group, "change", group.pk), name="third line")
    assert "refer to this group by name: refunds" in page.content.decode()


LATER = 600
SHOWN = {"password": "correct horse battery"}


def test_giving_somebody_a_group_asks_who_one_is_and_goes_on_with_what_was_filled_in(
    staff: Client, sam: User, roles: dict[str, Group]
) -> None:
    url = address(User, "change", sam.pk)
    form = {**shown_in(staff.get(url)), "groups": [roles["operator"].pk, roles["approver"].pk]}
    renew(staff, LATER)
    assert staff.get(url).status_code == 200
    asked = staff.post(f"{url}?_changelist_filters=is_staff", {name: value for name, value in form.items() if value})
    assert unquote(asked["Location"]) == f"/reauthenticate/?next={url}"
    assert set(sam.groups.all()) == {roles["operator"]}

    staff.post("/reauthenticate/", {**SHOWN, "next": url})

    assert set(sam.groups.all()) == {roles["operator"], roles["approver"]}


def test_giving_a_group_rights_asks_who_one_is(staff: Client, ada: User, roles: dict[str, Group]) -> None:
    ada.is_superuser = True
    ada.save()
    url = address(Group, "change", roles["operator"].pk)
    before = set(roles["operator"].permissions.all())
    form = {**shown_in(staff.get(url)), "permissions": [Permission.objects.get(codename="decide_approval").pk]}
    renew(staff, LATER)
    assert unquote(staff.post(url, form)["Location"]) == f"/reauthenticate/?next={url}"
    assert set(roles["operator"].permissions.all()) == before


@pytest.mark.parametrize("page", ["password", "add"])
def test_a_password_for_somebody_asks_who_one_is_and_is_not_kept_until_then(
    staff: Client, sam: User, page: str
) -> None:
    url = address(User, "add") if page == "add" else f"/admin/auth/user/{sam.pk}/password/"
    form = {"username": "zoe", "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    renew(staff, LATER)
    for asked in (staff.get(url), staff.post(url, form)):
        assert unquote(asked["Location"]) == f"/reauthenticate/?next={url}"
    assert PASSWORD not in unquote_plus(str(dict(staff.session)))

    assert staff.post("/reauthenticate/", {**SHOWN, "next": url})["Location"] == url

    assert not User.objects.get(pk=sam.pk).check_password(PASSWORD)
    assert not User.objects.filter(username="zoe").exists()
    assert staff.get(url).status_code == 200


@pytest.mark.parametrize("page", ["changelist", "change"])
def test_removing_second_factors_asks_who_one_is_and_goes_on_with_whom_it_was_about(
    staff: Client, dana: User, page: str
) -> None:
    Authenticator.objects.create(user=dana, type="totp", data={"secret": "A" * 32})
    url = address(User, page, *([dana.pk] if page == "change" else []))
    prefix = "CHANGE_FORM-" if page == "change" else ""
    renew(staff, LATER)
    asked = staff.post(url, {f"{prefix}action": "forget_factors", "_selected_action": [str(dana.pk)]})
    assert unquote(asked["Location"]) == f"/reauthenticate/?next={url}"
    assert Authenticator.objects.filter(user=dana).exists()

    staff.post("/reauthenticate/", {**SHOWN, "next": url})

    assert not Authenticator.objects.filter(user=dana).exists()
