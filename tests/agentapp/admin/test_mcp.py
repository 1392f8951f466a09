"""MCP servers in the admin: adding one, checking one, and accepting what one has changed."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import formats, timezone

from agentapp.admin.mcp import in_words
from agentapp.models import SourceHealth, Tool, ToolSource
from agentapp.refreshing import refresh
from tests.admin_pages import address, configuration_events
from tests.mcp_servers import Peer

pytestmark = pytest.mark.django_db

NEW = {"name": "peer", "command": "", "address": "", "credential": ""}


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def source(started: Peer) -> ToolSource:
    made = ToolSource.objects.create(name=started.source.name, kind="mcp", location=started.location)
    refresh(made, "test")
    return made


def told(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def add(client: Client, **fields: str) -> Any:
    return client.post(reverse("admin:toolsource_mcp"), {**NEW, **fields})


# --- Adding -------------------------------------------------------------------------------------


def test_a_command_of_the_settings_is_added_and_asked_at_once(staff: Client, started: Peer) -> None:
    assert b'<option value="peer">' in staff.get(reverse("admin:toolsource_mcp")).content
    response = add(staff, command="peer")
    source = ToolSource.objects.get(name="peer")
    assert response.url == address(ToolSource, "change", source.pk)
    assert (source.kind, source.location) == ("mcp", "stdio:peer")
    assert "peer answers: 16 tools." in told(response)
    assert Tool.objects.filter(source=source).count() == 16
    events = configuration_events()
    assert events
    assert all("ada" in event.actor for event in events)


def test_a_server_at_an_address_is_added(staff: Client, served: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "s3cret-and-long")
    response = add(staff, address=served.location, credential="SHOP")
    assert "16 tools" in told(response)
    assert ToolSource.objects.get(name="peer").credentials == {"bearer": "SHOP"}


def test_a_server_that_does_not_answer_is_added_and_said_so(staff: Client, settings: Any) -> None:
    settings.OUTBOUND_NETWORKS = []
    response = add(staff, address="https://127.0.0.1/mcp")
    assert "not a public address" in told(response)
    page = staff.get(address(ToolSource, "changelist")).content.decode()
    assert "Fails: 127.0.0.1 leads to 127.0.0.1, which is not a public address. (1 in a row)" in page


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Give either a command or an address."),
        ({"command": "peer", "address": "https://a.test/"}, "Give either a command or an address."),
        ({"command": "rm -rf /"}, "rm -rf / is not one of the available choices"),
        ({"address": "stdio:peer"}, "Give an address that starts with https://"),
        ({"address": "https://[::1"}, "Give an address that starts with https://"),
        ({"address": "https://a.test:99999/"}, "Give an address that starts with https://"),
        ({"address": "file:///etc/passwd"}, "Give an address that starts with https://"),
        ({"address": "https://ada:secret@a.test/"}, "The address contains a user name or password"),
        ({"address": "https://a.test/", "credential": "Bearer abc"}, "Enter a valid value"),
        ({"command": "peer", "credential": "SHOP"}, "A command gets its credentials from MCP_COMMANDS."),
        ({"command": "peer", "name": "taken"}, "Another source already has this name."),
    ],
)
def test_what_is_no_server_is_not_added(staff: Client, started: Peer, fields: dict[str, str], message: str) -> None:
    ToolSource.objects.create(name="taken", kind="python", location="shop")
    response = add(staff, **fields)
    assert response.status_code == 200
    assert message in str(response.context["form"].errors)
    assert ToolSource.objects.count() == 1


def test_who_may_not_add_sources_adds_none(client: Client, mia: User, started: Peer) -> None:
    mia.is_staff = True
    mia.save()
    client.force_login(mia)
    assert client.get(reverse("admin:toolsource_mcp")).status_code == 403
    assert add(client, command="peer").status_code == 403
    assert not ToolSource.objects.exists()


# --- Its health ---------------------------------------------------------------------------------


def check(client: Client, *sources: ToolSource) -> Any:
    chosen = {"action": "check_now", "_selected_action": [str(source.pk) for source in sources]}
    return client.post(address(ToolSource, "changelist"), chosen)


def test_a_server_is_checked_when_somebody_says_so(staff: Client, source: ToolSource, started: Peer) -> None:
    started.promise(note={"description": "Write a longer note."}, add=None)
    response = check(staff, source)
    assert "answers: 15 tools." in told(response)
    assert "out of use until accepted: note." in told(response)


def test_what_is_no_server_is_not_checked(staff: Client) -> None:
    python = ToolSource.objects.create(name="shop", kind="python", location="shop")
    assert "shop is not an MCP server" in told(check(staff, python))
    assert not SourceHealth.objects.exists()


def test_the_list_takes_as_many_queries_for_many_sources(staff: Client, source: ToolSource) -> None:
    url = address(ToolSource, "changelist")
    staff.get(url)
    with CaptureQueriesContext(connection) as one:
        staff.get(url)
    for number in range(5):
        other = ToolSource.objects.create(name=f"other-{number}", kind="mcp", location="stdio:peer")
        SourceHealth.objects.create(source=other, ok=True, checked_at=timezone.now())
    with CaptureQueriesContext(connection) as many:
        staff.get(url)
    assert len(many) == len(one)


def test_the_page_of_a_source_says_how_it_fares_and_no_secret(
    staff: Client, source: ToolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "s3cret-and-long")
    page = staff.get(address(ToolSource, "change", source.pk)).content.decode()
    assert "Answers" in page
    assert "A peer" in page
    assert formats.localize(timezone.localtime(source.health.checked_at)) in page
    assert "s3cret" not in page


# --- What it promises ---------------------------------------------------------------------------


def test_what_a_server_says_of_a_tool_is_marked_as_its_words(staff: Client, source: ToolSource) -> None:
    page = staff.get(address(Tool, "change", Tool.objects.get(name="note").pk)).content.decode()
    assert "The server says" in page
    assert "It changes nothing: yes" in page
    assert "A new contract waits" not in page


def test_a_claim_is_shown_whatever_it_is_called() -> None:
    assert in_words({"title": "{x}", "made{up}": 3}) == ["Its title: {x}", "made{up}: 3"]


def test_a_new_contract_is_shown_with_its_difference_and_accepted(
    staff: Client, source: ToolSource, started: Peer
) -> None:
    started.promise(note={"description": "Write a note. <script>alert(1)</script>"})
    refresh(source, "test")
    note = Tool.objects.get(name="note")
    url = address(Tool, "change", note.pk)
    page = staff.get(url).content.decode()
    assert "A new contract waits" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page
    seen = page.partition('name="seen" value="')[2].partition('"')[0]
    response = staff.post(reverse("admin:tool_accept", args=[note.pk]), {"seen": seen})
    assert response.url == url
    assert "The new contract of note holds." in told(response)
    note.refresh_from_db()
    assert note.waiting_contract is None
    assert "alert(1)" in note.description


def test_a_contract_that_changed_once_more_is_not_accepted(staff: Client, source: ToolSource, started: Peer) -> None:
    started.promise(note={"description": "Other."})
    refresh(source, "test")
    note = Tool.objects.get(name="note")
    response = staff.post(reverse("admin:tool_accept", args=[note.pk]), {"seen": "something-else"})
    assert "changed it again in the meantime" in told(response)
    note.refresh_from_db()
    assert note.waiting_contract is not None


def test_nothing_is_accepted_by_looking_or_without_the_right(
    client: Client, mia: User, ada: User, source: ToolSource, started: Peer
) -> None:
    started.promise(note={"description": "Other."})
    refresh(source, "test")
    note = Tool.objects.get(name="note")
    url = reverse("admin:tool_accept", args=[note.pk])
    client.force_login(ada)
    client.get(url)
    mia.is_staff = True
    mia.save()
    client.force_login(mia)
    assert client.post(url, {"seen": "x"}).status_code == 403
    note.refresh_from_db()
    assert note.waiting_contract is not None
