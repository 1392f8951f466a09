"""The last check of every answer: typed values stay where they were, and marked values are masked in every form."""

import html
import json
import re
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.http import HttpResponse
from django.test import Client

from agentapp import actions, auth, cards, discretion, preferences
from agentapp.models import Tool, ToolExecution
from agentapp.tools.base import tool
from approvals import notify
from approvals.models import Approval, Notification
from tests.conftest import call, calls, make_user, says
from tests.grants import grant_from, let_grant
from tests.teams import Team, child_of

NAME = 'Mirabel "Mim" M\u00fcller'
MASK = "\u2022" * 6


@pytest.fixture
def manager(roles) -> User:
    """Sees every request, decides none, and may not see personal data."""
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


def told_by_api(user: User, *paths: str) -> str:
    _, secret = auth.issue_token(user, "reading", [s for s in auth.SCOPES if s.endswith(":read")], "test")
    answers = [Client().get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {secret}"}) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return "\n".join(answer.content.decode() for answer in answers)


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


@pytest.mark.parametrize(
    "looks",
    [
        {"snapshot": lambda: {"holder": NAME}, "title": "Close the account of {snapshot.holder}"},
        {"preview": lambda: [{"name": "holder", "before": NAME, "after": "Mirabel"}]},
        {"preview": lambda: [{"name": "holder", "before": "Mim", "after": 12}]},
    ],
)
def test_what_was_looked_up_for_a_request_is_masked_like_what_it_asks_for(client, manager, clerk, offer, looks):
    @tool(effect="compensable", pii=("holder",), **looks)
    def close(account: str) -> str:
        """Close an account."""
        return "closed"

    offer(close)
    [approval] = clerk.open(clerk.run(calls(call("c", "close", account="ana")), says("done")))
    client.force_login(manager)
    page, listed = (shown(client.get(url)) for url in (f"/approvals/{approval.pk}/", "/inbox/"))
    told = told_by_api(manager, f"approvals/{approval.pk}", "approvals")
    assert ("close" in told, "ana" in page, approval.reference in listed) == (True, True, True)
    assert [part for part in (NAME, "Mirabel", "Mim") if part in told + page + listed] == []
    assert "preview" not in looks or f'"after":"{MASK}"' in told


def test_what_was_looked_up_for_a_request_stands_in_no_mail(clerk, offer, dana):
    @tool(
        effect="compensable", title="Close the account of {snapshot.holder}", pii=("holder",),
        snapshot=lambda: {"holder": NAME},
    )  # fmt: skip
    def close(account: str) -> str:
        """Close an account."""
        return "closed"

    offer(close)
    preferences.set_notifications(dana, {Notification.Kind.WAITING: ["mail"]}, None, True, "low")
    clerk.run(calls(call("c", "close", account="ana")), says("done"))
    for key in notify.due_ids(50):
        notify.send(key)
    [message] = mail.outbox
    assert leaks(message.subject + message.body) == []


def test_what_has_changed_since_a_request_is_masked_like_what_it_asks_for(client, manager, clerk, offer, dana):
    world = {"holder": NAME}

    @tool(effect="compensable", pii=("holder",), snapshot=lambda: dict(world))
    def close(account: str) -> str:
        """Close an account."""
        return "closed"

    offer(close)
    run = clerk.run(calls(call("c", "close", account="ana")), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    world["holder"] = "Mim"
    clerk.drive(run)
    [again] = clerk.open(run)
    assert again.difference == [{"name": "holder", "was": NAME, "now": "Mim"}]
    client.force_login(manager)
    page, told = shown(client.get(f"/approvals/{again.pk}/")), told_by_api(manager, f"approvals/{again.pk}")
    assert json.loads(told)["difference"] == [{"name": "holder", "was": MASK, "now": MASK}]
    assert "things have changed since" in page
    assert [part for part in (NAME, "Mirabel", "Mim") if part in told + page] == []


def test_a_value_is_masked_in_each_spelling_and_where_it_is_a_number(client, manager, about_her, clerk):
    Tool.objects.filter(name="pay").update(pii_fields=["memo", "amount"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=7771993, memo="x"), text="It is 7771993."))
    client.force_login(manager)
    pages = [
        f"/runs/{each}/{more}" for each in (about_her.run_id, run.pk) for more in ("", "?step=1", "?step=1&call=0")
    ]
    answers = [client.get(url) for url in pages]
    assert {answer.status_code for answer in answers} == {200}
    asked = [f"tool-executions/{each.pk}/result" for each in ToolExecution.objects.all()]
    asked += [f"runs/{each}{more}" for each in (about_her.run_id, run.pk) for more in ("", "/trace")]
    told = told_by_api(manager, *asked, f"approvals/{about_her.pk}", "approvals", "runs")
    text = "\n".join([told, *map(shown, answers)])
    assert ("wrote" in text, "It is" in text, MASK in text) == (True, True, True)
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


def test_a_short_value_leaves_forms_and_links_working(manager, rf, monkeypatch):
    run = "0198ab10-10ef-7aaa-8bbb-1010cafe1010"
    html = '<form action="/runs/{}/"><input type="hidden" name="csrfmiddlewaretoken" value="aa1010bb">{}</form>'
    monkeypatch.setattr(discretion, "_marked", lambda through: {"1010"})
    request = rf.get("/runs/")
    request.user = manager
    answer = discretion.middleware(lambda request: HttpResponse(html.format(run, "1010 Vienna")))(request)
    assert answer.content.decode() == html.format(run, f"{MASK} Vienna")


@pytest.mark.parametrize("word", ["Grant", "Rule", "Reason", "Console", "2026", "4711", "Approval"])
def test_a_word_that_is_marked_tears_no_link_and_no_field_of_the_api(client, manager, clerk, word):
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    said = f"{word}, as I said."
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo=word), text=said))
    [approval] = clerk.open(run)
    # What is made here may hold it anywhere.
    Approval.objects.update(created_at=datetime(2026, 11, 29, 11, 59, 35, 471123, UTC))
    client.force_login(manager)
    for path in ("/inbox/", f"/approvals/{approval.pk}/", f"/runs/{run.pk}/"):
        page = client.get(path).content.decode()
        links = re.findall(r'(?:href|src|hx-[a-z]+|data-release)="([^"]*)"', page)
        assert [link for link in links if MASK in link] == []
    told = json.loads(told_by_api(manager, f"approvals/{approval.pk}"))
    assert told["explanation"] == f"{MASK}, as I said."
    assert {"rule", "reason", "approvals_needed", "explanation"} <= set(told)
    assert datetime.fromisoformat(told["created_at"]).microsecond == 471123


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


@tool(effect="read", pii=("holder",))
def find_person(number: int) -> dict[str, str]:
    """Find a person."""
    return {"holder": NAME}


FIND, SEND = calls(call("f", "find_person", number=1)), calls(call("s", "send", to="ann"))


def test_a_call_of_a_tool_that_was_not_disclosed_is_masked_as_one_that_was(client, manager, clerk):
    pay = Tool.objects.get(name="pay")
    Tool.objects.filter(name="pay").update(pii_fields=["account"], secret_fields=["memo"])
    clerk.agent.tools.remove(pay)
    paid = calls(call("p", "pay", account=NAME, amount=5, memo="Zq-90817"), text=f"I pay {NAME} with Zq-90817.")
    run = clerk.run(paid, says("done"))
    execution = clerk.execution(run, "p")
    assert (execution.tool, execution.pii_fields, execution.secret_fields) == (None, ["account"], ["memo"])
    client.force_login(manager)
    pages = [
        client.get(f"/runs/{run.pk}/{more}") for more in ("", "?step=1", "?step=1&call=0", "?step=1&call=0&tab=raw")
    ]
    assert {page.status_code for page in pages} == {200}
    text = "\n".join([told_by_api(manager, f"runs/{run.pk}/trace"), *map(shown, pages)])
    assert (MASK in text, "Zq-90817" in text, leaks(text)) == (True, False, [])


def asks_without_naming_her(reader: User, approval: Approval) -> bool:
    """Whether a request that rests on what was found about her shows a person without the right none of it."""
    assert "Mirabel" in json.dumps([item["body"] for item in approval.evidence])
    client = Client()
    client.force_login(reader)
    pages = [client.get(url) for url in (f"/approvals/{approval.pk}/", f"/runs/{approval.run_id}/")]
    assert [page.status_code for page in pages] == [200, 200]
    told = told_by_api(reader, f"approvals/{approval.pk}", f"runs/{approval.run_id}/trace")
    assert MASK in told
    return leaks("\n".join([told, *map(shown, pages)])) == []


def test_what_was_marked_in_a_run_is_masked_in_what_a_fork_of_its_fork_asks(clerk, offer, manager, sam):
    offer(find_person)
    run = clerk.run(FIND, SEND, says("done"))
    for step in (2, 1):
        actions.cancel_run(run.pk, sam)
        run = clerk.drive(actions.fork_run(run.pk, actions.Fork(step=step), sam))
    [approval] = clerk.open(run)
    assert ToolExecution.objects.filter(run=run).get().name == "send"
    assert asks_without_naming_her(manager, approval)


def test_what_was_marked_in_a_call_is_masked_in_the_request_to_take_it_back(clerk, offer, dana, manager):
    @tool(effect="compensable", title="Take back {number}")
    def unlend(number: int) -> str:
        """Take it back."""
        return "back"

    @tool(effect="compensable", pii=("holder",), undo=lambda number: {"number": number}, undone_by="unlend")
    def lend(number: int, holder: str) -> str:
        """Lend something."""
        return "lent"

    offer(lend, unlend)
    run = clerk.run(calls(call("a", "lend", number=7, holder=NAME)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    undo = clerk.drive(actions.undo_call(clerk.execution(run, "a").pk, "It was a mistake.", dana))
    assert asks_without_naming_her(manager, clerk.open(undo)[0])


def test_what_an_agent_found_is_masked_in_what_those_ask_who_are_told_of_it(clerk, offer, manager):
    offer(find_person)
    team = Team(clerk)
    team.may_ask("finder", FIND, says(f"It is {NAME}."))
    team.may_ask("sender", SEND, says("sent"))
    asks = [
        calls(call(name[0], f"ask_{name}", input=f"Of {told}?")) for name, told in (("finder", 1), ("sender", NAME))
    ]
    run = team.run(asks[0], asks[1], says("done"))
    [of_child] = clerk.open(child_of(run, "s"))
    assert asks_without_naming_her(manager, of_child)
    run = team.run(asks[0], SEND, says("done"))
    assert asks_without_naming_her(manager, clerk.open(run)[0])
