"""The last look at every answer: what was typed stays where it was, and what is marked is masked however it is told."""

import html
import json
import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentapp import auth, cards, discretion
from agentapp.models import Tool
from approvals.models import Approval
from tests.conftest import call, calls, make_user, says
from tests.grants import grant_from, let_grant

NAME = 'Mirabel "Mim" M\u00fcller'
MASK = "\u2022" * 6


@pytest.fixture
def manager(roles) -> User:
    """Sees every request, decides about none, and may not see personal data."""
    user = make_user("Max Manager")
    user.groups.add(roles["manager"])
    return user


@pytest.fixture
def about_her(clerk) -> Approval:
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    said = f"{NAME.upper()} wrote {json.dumps(NAME)}."
    [approval] = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=5, memo=NAME), text=said)))
    return approval


def shown(response) -> str:
    return html.unescape(html.unescape(response.content.decode()))


def leaks(text: str) -> list[str]:
    return [part for part in (NAME, NAME.upper(), "Mirabel", "MIRABEL") if part in text]


def test_a_card_that_answers_a_post_is_masked_as_one_that_is_read(client, manager, about_her):
    client.force_login(manager)
    answers = [client.get(f"/approvals/{about_her.pk}/")]
    answers += [client.post(f"/approvals/{about_her.pk}/{part}/") for part in ("draft", "decide", "comments", "ask")]
    assert [leaks(shown(answer)) for answer in answers] == [[]] * 5


def test_what_a_card_cut_in_the_middle_of_a_value_is_masked(client, manager, clerk):
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    said = f"{'She wrote. ' * 750}"[: cards.MAX_EXPLANATION_CHARS - len("Mirabel")] + NAME
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo=NAME), text=said))
    [approval] = clerk.open(run)
    assert approval.explanation.endswith("Mirabel…")
    _, secret = auth.issue_token(manager, "reading", ["approvals:read"], "test")
    token = {"Authorization": f"Bearer {secret}"}
    client.force_login(manager)
    page = shown(client.get(f"/approvals/{approval.pk}/"))
    told = Client().get(f"/api/v1/approvals/{approval.pk}", headers=token).content.decode()
    assert ("She wrote." in page, leaks(page)) == (True, [])
    assert ("She wrote." in told, leaks(told)) == (True, [])


def test_a_value_is_masked_in_each_spelling_and_where_it_is_a_number(client, manager, about_her, clerk):
    Tool.objects.filter(name="pay").update(pii_fields=["memo", "amount"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=7771993, memo="x"), text="It is 7771993."))
    _, secret = auth.issue_token(manager, "reading", [s for s in auth.SCOPES if s.endswith(":read")], "test")
    token = {"Authorization": f"Bearer {secret}"}
    client.force_login(manager)
    for url in (
        f"/runs/{about_her.run_id}/",
        f"/runs/{about_her.run_id}/?step=1",
        f"/runs/{about_her.run_id}/?step=1&call=0",
    ):
        assert leaks(shown(client.get(url))) == []
    for path in (f"runs/{about_her.run_id}", f"runs/{run.pk}/steps", f"approvals/{about_her.pk}", "tool-executions"):
        text = Client().get(f"/api/v1/{path}", headers=token).content.decode()
        assert leaks(text) == []
        assert "7771993" not in text


def test_what_an_address_asks_for_stays_in_its_field_and_in_links_to_it(client, manager):
    client.force_login(manager)
    page = client.get("/audit/?q=%22dana%40example.com%22").content.decode()
    fields = re.findall(r'<(?:input[^>]*name="q"[^>]*|textarea[^>]*name="q".*?</textarea)>', page, re.DOTALL)
    assert fields
    assert [field for field in fields if MASK in field] == []
    assert "dana@example.com" in fields[0]
    assert MASK not in "".join(re.findall(r'href="([^"]*)"', page))


def test_nothing_is_shown_of_what_holds_more_marks_than_can_be_looked_through(client, manager, about_her, monkeypatch):
    monkeypatch.setattr(discretion, "MOST_CHARS", 10)
    client.force_login(manager)
    response = client.get(f"/runs/{about_her.run_id}/")
    assert response.status_code == 403
    assert leaks(shown(response)) == []


def test_bounds_of_a_grant_are_masked_on_pages_and_in_the_api(client, manager, clerk, dana):
    Tool.objects.filter(name="send").update(pii_fields=["to"])
    [approval] = clerk.open(clerk.run(calls(call("s", "send", to=NAME)), says("done")))
    grant = grant_from(approval, let_grant(dana))
    manager.user_permissions.add(*Permission.objects.filter(codename="view_grant"))
    client.force_login(manager)
    pages = [client.get(url) for url in ("/grants/", f"/grants/{grant.pk}/")]
    assert [(page.status_code, leaks(shown(page))) for page in pages] == [(200, [])] * 2
    _, secret = auth.issue_token(manager, "reading", ["configuration:read"], "test")
    text = Client().get(f"/api/v1/grants/{grant.pk}", headers={"Authorization": f"Bearer {secret}"}).content.decode()
    assert (MASK in text, leaks(text)) == (True, [])


def test_the_example_of_a_tool_is_of_a_run_that_its_reader_may_see(client, clerk):
    clerk.run(calls(call("p", "pay", account="ana", amount=7, memo="Top confidential")), says("paid"))
    user = make_user("Nora Nobody")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_tool", "view_toolexecution"]))
    client.force_login(user)
    assert "Top confidential" not in shown(client.get("/tools/pay/"))
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    assert "Top confidential" in shown(client.get("/tools/pay/"))
