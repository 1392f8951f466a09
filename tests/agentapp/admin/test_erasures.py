"""The page that erases: it erases what its preview showed, and nothing else."""

import html
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentapp import conversations
from agentapp.models import Conversation, Erasure, Run
from approvals import ledger
from tests.conftest import Clerk, call, calls, says

PATH = "/admin/agentapp/erasure/erase/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def a_run(clerk: Clerk, **more: Any) -> Run:
    return clerk.run(calls(call("l", "look_up", what="shelf")), says("Done."), **more)


def form(scope: str, subject: object) -> dict[str, Any]:
    return {"scope": scope, "subject": str(subject), "reason": "Ticket 12"}


def shown(page: Client, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What the page says of a form, and the form as a browser would send it from there."""
    response = page.post(PATH, fields)
    assert response.status_code == 200
    sent = {name: response.context["form"][name].value() for name in ("scope", "subject", "reason", "seen")}
    return " ".join(html.unescape(response.content.decode()).split()), sent


def test_another_run_with_as_much_in_it_is_shown_before_it_is_erased(page: Client, clerk: Clerk) -> None:
    first, second = a_run(clerk, title="The first"), a_run(clerk, title="The second")
    text, sent = shown(page, form("run", first.pk))
    assert f"What will be erased: {first.reference}, “The first”" in text

    text, sent = shown(page, {**sent, "subject": str(second.pk)})
    assert f"What will be erased: {second.reference}, “The second”" in text
    assert not Run.objects.exclude(erased_at=None).exists()

    assert page.post(PATH, sent).status_code == 302
    assert list(Run.objects.exclude(erased_at=None)) == [second]


def test_another_scope_with_as_much_in_it_is_shown_before_it_is_erased(page: Client, clerk: Clerk) -> None:
    run = a_run(clerk)
    a_run(clerk, customer=str(run.pk))
    _, sent = shown(page, form("run", run.pk))
    text, _ = shown(page, {**sent, "scope": "customer"})
    assert f"What will be erased: the customer “{run.pk}”" in text
    assert not Erasure.objects.exists()


def test_a_run_may_be_named_in_another_way_once_its_preview_was_shown(page: Client, clerk: Clerk) -> None:
    run = a_run(clerk)
    _, sent = shown(page, form("run", run.reference))
    assert page.post(PATH, {**sent, "subject": f" {run.pk} "}).status_code == 302
    assert list(Run.objects.exclude(erased_at=None)) == [run]


def test_what_was_added_since_the_preview_is_shown_before_it_is_erased(page: Client, clerk: Clerk) -> None:
    a_run(clerk, customer="40117")
    _, sent = shown(page, form("customer", "40117"))
    a_run(clerk, customer="40117")
    text, sent = shown(page, sent)
    assert "<li>2 runs</li>" in text
    assert not Erasure.objects.exists()
    assert page.post(PATH, sent).status_code == 302


def test_a_conversation_is_named_as_its_own_page_names_it(page: Client, clerk: Clerk) -> None:
    a_run(clerk, conversation="ticket-<7>", customer="40117")
    talk = Conversation.objects.get()
    response = page.post(PATH, form("conversation", talk.pk)).content.decode()
    assert "What will be erased: the conversation “ticket-&lt;7&gt;” of clerk with “40117”" in response
    with ledger.transaction():
        other = conversations.find_or_open(clerk.agent, "ticket-8", "")
    text, _ = shown(page, form("conversation", other.pk))
    assert "What will be erased: the conversation “ticket-8” of clerk<" in text


def test_a_title_is_shown_only_to_those_who_may_see_the_run(client: Client, clerk: Clerk, mia: User) -> None:
    run = a_run(clerk, title="The first <b>", conversation="ticket-7")
    mia.is_staff = True
    mia.save()
    mia.groups.clear()
    mia.user_permissions.set(Permission.objects.filter(codename__in=["view_erasure", "erase_content"]))
    client.force_login(mia)
    text, _ = shown(client, form("run", run.pk))
    assert f"What will be erased: {run.reference}<" in text
    assert "The first" not in text
    text, _ = shown(client, form("conversation", Conversation.objects.get().pk))
    assert "What will be erased: the conversation with this id<" in text
    assert "ticket-7" not in text


def test_one_of_a_kind_is_told_as_one(page: Client, clerk: Clerk) -> None:
    text, _ = shown(page, form("run", a_run(clerk).pk))
    for line in ("1 run", "1 call", "0 requests", "0 conversations"):
        assert f"<li>{line}</li>" in text


def test_when_a_run_that_mentions_a_customer_began_is_told_in_utc(page: Client, clerk: Clerk, settings: Any) -> None:
    run = a_run(clerk, input="Ana asks for her money.")
    Run.objects.filter(pk=run.pk).update(created_at=datetime(2025, 12, 31, 23, 30, tzinfo=UTC))
    settings.TIME_ZONE = "Europe/Berlin"
    text, _ = shown(page, form("customer", "Ana"))
    assert f"Erase {run.reference}</a>, of 31 Dec 2025, 23:30:00.000 UTC (" in text
