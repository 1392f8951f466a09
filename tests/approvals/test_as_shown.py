"""A form opened before somebody else's change does not undo it: it says what changed, and is submitted again."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client

from agentapp.models import Agent, Route
from approvals import as_shown, rule_versions
from approvals.models import Rule
from tests.admin_pages import address, configuration_events, errors_of, renew, save, shown_in
from tests.agentapp.console.conftest import make_agent, make_tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    renew(client)
    return client


@pytest.fixture
def other(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    renew(client)
    return client


def opened(client: Client, row: Model) -> tuple[str, dict[str, Any]]:
    url = address(type(row), "change", row.pk)
    return url, shown_in(client.get(url))


def test_somebody_who_was_switched_off_meanwhile_stays_so(staff: Client, other: Client, sam: User) -> None:
    url, old = opened(other, sam)
    save(staff, url, is_active=None, groups=None)
    refused = other.post(url, {**old, "last_name": "Maiden"})
    assert "changed this meanwhile: Active (now no), Groups (now none)" in errors_of(refused)
    sam.refresh_from_db()
    assert (sam.is_active, sam.last_name == "Maiden", list(sam.groups.all())) == (False, False, [])


def test_what_was_typed_is_kept_and_goes_through_once_it_was_looked_at(staff: Client, other: Client, sam: User) -> None:
    url, old = opened(other, sam)
    save(staff, url, first_name="Samuel")
    refused = other.post(url, {**old, "last_name": "Maiden"})
    again = shown_in(refused)
    assert (again["first_name"], again["last_name"]) == (old["first_name"], "Maiden")
    page = refused.content.decode()
    assert f'value="{again[as_shown.NAME]}"' in page
    assert "Somebody changed this meanwhile" in page
    assert other.post(url, {**again, "first_name": "Samuel"}).status_code == 302
    sam.refresh_from_db()
    assert (sam.first_name, sam.last_name) == ("Samuel", "Maiden")


def test_another_change_after_the_error_is_an_error_again(staff: Client, other: Client, sam: User) -> None:
    url, old = opened(other, sam)
    save(staff, url, first_name="Samuel")
    again = shown_in(other.post(url, old))
    save(staff, url, email="samuel@desk.example")
    assert "Email address (now samuel@desk.example)" in errors_of(other.post(url, again))


def test_signing_in_meanwhile_is_no_change(staff: Client, sam: User) -> None:
    url, old = opened(staff, sam)
    Client().force_login(sam)
    assert staff.post(url, {**old, "last_name": "Maiden"}).status_code == 302


def test_a_tool_that_was_made_stricter_meanwhile_stays_so(staff: Client, other: Client) -> None:
    tool = make_tool()
    url, old = opened(other, tool)
    save(staff, url, approval_mode="always", secret_fields=["note"])
    said = errors_of(other.post(url, {**old, "owner": "Pay"}))
    assert "Approval mode (now always), Secret fields (now note)" in said
    tool.refresh_from_db()
    assert (tool.approval_mode, tool.secret_fields, tool.owner) == ("always", ["note"], "")


def test_an_agent_that_was_switched_off_meanwhile_stays_so(staff: Client, other: Client) -> None:
    agent = make_agent(make_tool())
    url, old = opened(other, agent)
    save(staff, url, enabled=None)
    before = len(configuration_events())
    assert "Enabled (now no)" in errors_of(other.post(url, {**old, "description": "New words"}))
    agent.refresh_from_db()
    assert not agent.enabled
    assert len(configuration_events()) == before


def test_a_route_that_was_changed_on_its_own_page_is_not_put_back_from_its_agents(staff: Client, other: Client) -> None:
    agent = make_agent(make_tool())
    route = Route.objects.create(agent=agent, name="refunds", description="Refunds.")
    url, old = opened(other, agent)
    save(staff, address(Route, "change", route.pk), description="Small refunds.")
    assert "changed this meanwhile: Routes" in errors_of(other.post(url, {**old, "description": "New words"}))
    route.refresh_from_db()
    assert route.description == "Small refunds."
    assert Agent.objects.get(pk=agent.pk).description == agent.description


def test_a_draft_that_was_made_stricter_meanwhile_stays_so(staff: Client, other: Client) -> None:
    make_tool()
    rule = Rule.objects.create(name="r1", tool="refund_payment", verdict="ask", active=True, approvals_needed=2)
    for needed in (3, 4):  # the first change makes the draft, the second changes it
        url, old = opened(other, rule)
        save(staff, url, approvals_needed=needed)
        assert f"Approvals needed (now {needed})" in errors_of(other.post(url, {**old, "description": "x"}))
        draft = rule_versions.draft_of(Rule.objects.get(pk=rule.pk))
        assert draft is not None
        assert draft.terms["approvals_needed"] == needed


@pytest.mark.parametrize("sent", [None, "", "made up", "\0"])
def test_a_form_that_does_not_say_what_it_was_made_from_is_shown_again(
    staff: Client, sam: User, sent: str | None
) -> None:
    url, old = opened(staff, sam)
    data = {**old, "last_name": "Maiden", as_shown.NAME: sent}
    refused = staff.post(url, {name: value for name, value in data.items() if value is not None})
    assert "Somebody changed this meanwhile." in errors_of(refused)
    assert staff.post(url, shown_in(refused)).status_code == 302
    sam.refresh_from_db()
    assert sam.last_name == "Maiden"


def test_a_new_row_was_made_from_nothing(staff: Client) -> None:
    page = staff.get(address(Agent, "add"))
    assert as_shown.NAME not in shown_in(page)
    assert as_shown.NAME not in page.content.decode()
