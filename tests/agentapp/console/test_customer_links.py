"""Links for customers, as staff make and revoke them."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.models import CustomerLink, Run
from tests.conftest import Clerk, says
from tests.rows import events


@pytest.fixture
def run(clerk: Clerk) -> Run:
    return clerk.run(says("Hello."), conversation="ticket-7", customer="Ana")


def page(run: Run) -> str:
    return f"/runs/{run.pk}/chat/links/"


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_link_is_shown_once_and_opens_the_conversation_for_anybody(run: Run, sam: User) -> None:
    client = as_(sam)
    assert "No link opens this conversation now." in client.get(page(run)).text
    made = client.post(page(run), {"hours": "24"}).text
    address = re.search(r'value="http://testserver(/talk/[^"]+)"', made)
    assert address is not None
    assert "Hello." in Client().get(address[1]).text
    again = client.get(page(run)).text
    assert "/talk/" not in again
    assert "Sam Operator" in again
    assert "conversation.link_made" in events(f"conversation:{run.conversation_id}")


def test_a_link_is_taken_back(run: Run, sam: User) -> None:
    client = as_(sam)
    client.post(page(run), {"hours": "1"})
    link = CustomerLink.objects.get()
    assert client.post(page(run), {"revoke": str(link.pk)}).status_code == 302
    assert client.post(page(run), {"revoke": "x"}).status_code == 404
    link.refresh_from_db()
    assert link.revoked_at is not None
    assert "No link opens this conversation now." in client.get(page(run)).text


@pytest.mark.parametrize("hours", ["0", "100000", "x", ""])
def test_a_link_is_good_for_a_while_and_not_for_ever(run: Run, sam: User, hours: str) -> None:
    refused = as_(sam).post(page(run), {"hours": hours})
    assert (refused.status_code, CustomerLink.objects.count()) == (422, 0)


def test_who_may_not_speak_there_makes_none(run: Run, mia: User, otto: User) -> None:
    assert "Make a link" not in as_(mia).get(page(run)).text
    assert as_(mia).post(page(run), {"hours": "1"}).status_code == 403
    assert as_(otto).get(page(run)).status_code == 404
    assert CustomerLink.objects.count() == 0


def test_the_conversations_page_leads_there(run: Run, sam: User) -> None:
    assert page(run) in as_(sam).get(f"/runs/{run.pk}/chat/").text
