"""The admin as a whole: grouped, described in words, cheap, and every change recorded with before and after."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client, RequestFactory
from django.urls import reverse

from agentapp import tool_sync
from agentapp.admin import menu
from agentapp.models import Agent, Guideline, KillSwitch, Preferences, Route, Tool, ToolRelation, ToolSource
from approvals.models import Channel, Rule
from tests.admin_pages import address, configuration_events, renew, save
from tests.conftest import Clerk, call, calls, says
from tests.rule_life import activate

pytestmark = pytest.mark.django_db
OURS = [model for model in admin.site._registry if model._meta.app_label in ("agentapp", "approvals", "auth")]


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    renew(client)
    return client


@pytest.fixture
def rows(staff: Client) -> dict[type, Any]:
    agent = Agent.objects.create(name="support")
    return {
        Agent: agent,
        Route: Route.objects.create(agent=agent, name="refunds"),
        Guideline: Guideline.objects.create(agent=agent, name="refunds", condition="they want money back"),
        Tool: Tool.objects.get(name="pay_out"),
        ToolSource: ToolSource.objects.get(),
        Rule: Rule.objects.create(name="r", verdict="ask"),
        Channel: Channel.objects.create(name="desk", kind="memory"),
        User: User.objects.create_user("new"),
        Group: Group.objects.create(name="night"),
    }


@pytest.mark.parametrize(
    ("model", "column", "value"),
    [
        (Agent, "description", "Answers customers."),
        (Route, "description", "Money back."),
        (Guideline, "action", "Ask for the order."),
        (Tool, "owner", "Payments"),
        (ToolSource, "name", "payments"),
        (Rule, "description", "Because."),
        (Channel, "name", "night-desk"),
        (User, "first_name", "Nora"),
        (Group, "name", "day"),
    ],
)
def test_a_change_is_in_the_ledger_and_in_the_rows_history(
    staff: Client, rows: dict[type, Any], model: Any, column: str, value: str
) -> None:
    row = rows[model]
    was = getattr(row, column)
    save(staff, address(model, "change", row.pk), **{column: value})
    if model is Rule:
        activate(staff, row)  # before, it is a draft
    event = configuration_events()[-1]
    assert (event.type, event.data["table"], event.data["key"]) == (
        "configuration.changed",
        model._meta.label,
        str(row.pk),
    )
    assert event.data["before"][column] == was
    assert event.data["after"][column] == value
    assert event.actor.endswith(":ada (admin)")
    page = staff.get(address(model, "history", row.pk)).content.decode()
    assert f"now </span>{value}" in page
    assert "ada (admin)" in page


def test_a_history_begins_with_what_the_row_was_made_of_and_tells_of_no_other_row(staff: Client) -> None:
    for name in ("one", "two"):
        save(staff, address(Channel, "add"), name=name, kind="memory", config="{}")
    page = staff.get(address(Channel, "history", Channel.objects.get(name="one").pk)).content.decode()
    assert "Created" in page
    assert "now </span>one" in page
    assert "now </span>two" not in page


def test_every_table_of_ours_stands_in_a_group(staff: Client, ada: User) -> None:
    request = RequestFactory().get("/admin/")
    request.user = ada
    groups = menu.app_list(admin.site, request)
    assert [group["name"] for group in groups] == list(menu.GROUPS)
    shown = [model["object_name"] for group in groups for model in group["models"]]
    assert sorted(shown) == sorted(model.__name__ for model in admin.site._registry)


@pytest.mark.parametrize("model", OURS)
def test_every_list_says_what_its_rows_are_for(model: Any) -> None:
    assert getattr(admin.site._registry[model], "about", "")


@pytest.mark.parametrize("model", OURS)
@pytest.mark.parametrize("page", ["change", "history"])
def test_a_row_that_is_not_there_is_not_found(staff: Client, model: Any, page: str) -> None:
    answer = staff.get(address(model, page, "0"))
    assert answer.status_code == 404
    assert "There is nothing here" in answer.content.decode()


@pytest.mark.parametrize("model", [model for model in OURS if model not in (User, Group)])
def test_every_setting_says_what_it_means(staff: Client, ada: User, model: Any) -> None:
    request = RequestFactory().get("/admin/")
    request.user = ada
    page = admin.site._registry[model]
    if not page.has_change_permission(request):
        return
    fields = page.get_form(request).base_fields
    assert [name for name, field in fields.items() if not field.help_text] == []


def test_a_list_without_rows_says_what_to_do(staff: Client) -> None:
    assert "No rules yet" in staff.get(address(Rule, "changelist")).content.decode()
    assert "Nothing is stopped" in staff.get(address(KillSwitch, "changelist")).content.decode()
    Rule.objects.create(name="r", verdict="ask")
    found = staff.get(address(Rule, "changelist"), {"q": "nothing like it"}).content.decode()
    assert "Nothing matches" in found
    assert "No rules yet" not in found


@pytest.mark.parametrize("theme", ["light", "dark", "system"])
def test_the_theme_is_the_persons_own(staff: Client, ada: User, theme: str) -> None:
    Preferences.objects.create(user=ada, theme=theme)
    text = staff.get("/admin/").content.decode()
    assert f"look-{theme}" in text
    assert "admin/js/theme.js" not in text


def test_the_header_leads_back_to_the_console(staff: Client) -> None:
    text = staff.get(address(Rule, "changelist")).content.decode()
    for page in ("home", "inbox", "runs", "settings", "logout"):
        assert f'"{reverse(page)}"' in text, page


def test_one_changes_ones_password_in_the_console(staff: Client) -> None:
    response = staff.get("/admin/password_change/")
    assert (response.status_code, response.url) == (302, reverse("settings_security"))


@pytest.mark.django_db(transaction=True)
def test_no_list_costs_more_than_twelve_queries_however_many_rows(
    client: Client, clerk: Clerk, ada: User, django_assert_max_num_queries: Any
) -> None:
    ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    for number in range(3):
        clerk.run(calls(call("1", "look_up", what=str(number)), call("2", "label", text=str(number))), says("Done."))
        Rule.objects.create(name=f"r{number}", verdict="ask").groups.set(Group.objects.all())
        Route.objects.create(agent=clerk.agent, name=f"route-{number}")
        Guideline.objects.create(agent=clerk.agent, name=f"g{number}", action="Be kind.").tools.set(Tool.objects.all())
        tools = Tool.objects.order_by("name")
        ToolRelation.objects.create(source=tools[number], target=tools[number + 1])
        Channel.objects.create(name=f"desk-{number}", kind="memory")
    for model in OURS:
        with django_assert_max_num_queries(12):
            assert client.get(address(model, "changelist")).status_code == 200, model
