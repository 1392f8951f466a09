"""Trying a tool on its page: a dry run sends nothing; a real try is a run that somebody else decides about."""

import re
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client

from agentapp import trying
from agentapp.models import Agent, Route, Run, Tool, ToolExecution
from agentapp.tools.base import tool
from approvals.models import Approval, Event, Rule
from tests.clerk_tools import EFFECTS, effects_of, note
from tests.conftest import Clerk, call, calls

PAY = {"shown": ["arg.account", "arg.amount", "arg.memo"], "arg.account": "ana", "arg.amount": "5", "arg.memo": ""}


@pytest.fixture
def sams(clerk: Clerk, client: Client, sam: User) -> Client:
    client.force_login(sam)
    return client


def send(client: Client, act: str = "dry", name: str = "pay", **fields: Any) -> HttpResponse:
    data = {"as": "clerk", "request_key": str(uuid.uuid4()), "why": "To see it work.", "act": act, **PAY, **fields}
    return client.post(f"/tools/{name}/try/", data)


def text_of(response: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def test_a_dry_run_says_what_would_happen_and_sends_nothing(sams, roles, dana):
    rule = Rule.objects.create(name="pays", tool="pay", verdict="ask", risk="high", assurance="passkey")
    rule.groups.add(roles["approver"])
    Rule.objects.create(name="large", tool="pay", verdict="deny", condition="args.amount > 100.0")
    events = Event.objects.count()
    found = send(sams)
    shown = text_of(found)
    assert "Nothing was sent." in shown
    assert "People would be asked" in shown
    assert "1 person of approver. Not you: it would be your call." in shown
    assert "Dana Whitfield" in shown
    assert "a passkey, used within the last five minutes" in shown
    assert "pays (ask) fits" in shown
    assert "large (deny) does not fit: args.amount &gt; 100.0" in shown
    assert "The agent will pay $5.00 to Ana ( ana )." in shown
    assert (EFFECTS, Run.objects.count(), ToolExecution.objects.count(), Event.objects.count()) == ([], 0, 0, events)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"verdict": "allow"}, "It would run"),
        ({"verdict": "deny", "description": "Never <b>pay</b>."}, "A rule would forbid it"),
        ({"verdict": "ask", "agent": "somebody"}, "is for another agent, route or place"),
        ({"verdict": "ask", "condition": "args.nothing == 1"}, "could not be evaluated, so it asks"),
    ],
)
def test_a_dry_run_says_which_rule_would_fire(sams, rule, said):
    Rule.objects.create(name="says", tool="pay", **rule)
    found = send(sams)
    assert said in text_of(found)
    assert "<b>pay</b>" not in found.content.decode()
    assert EFFECTS == []


def test_what_is_typed_is_compared_with_nothing(sams):
    shown = send(sams, **{"arg.memo": "Parcel late"}).content.decode()
    assert "Parcel late" in shown
    assert "word by word" not in shown


def test_arguments_that_do_not_fit_are_marked_at_their_fields(sams):
    found = send(sams, **{"arg.amount": "5000"})
    assert "Nothing was sent." in text_of(found)
    assert 'aria-invalid="true"' in found.content.decode()
    assert "found" not in found.context
    found = send(sams, **{"arg.amount": "1,234"})
    assert "can be read as 1234 and as 1.234" in text_of(found)


def test_for_real_it_begins_a_run_that_its_starter_cannot_decide(sams, clerk, roles, sam, dana):
    key = str(uuid.uuid4())
    begun = [send(sams, "real", request_key=key) for _ in range(2)]
    run = Run.objects.get()
    assert [response["Location"] for response in begun] == [f"/runs/{run.pk}/"] * 2
    assert (run.is_trial, run.starter, run.title) == (True, sam, "Try pay")
    run = clerk.drive(run)
    assert (run.state, EFFECTS) == ("waiting", [])
    sam.groups.add(roles["approver"])
    approval = Approval.objects.get()
    sams.force_login(User.objects.get(pk=sam.pk))
    form = {
        "decision_id": str(uuid.uuid4()), "type": "approve", "version": approval.version,
        "action_digest": approval.action_digest, **PAY,
    }  # fmt: skip
    assert sams.post(f"/approvals/{approval.pk}/decide/", form).status_code == 403
    approval.refresh_from_db()
    assert (approval.state, EFFECTS) == ("pending", [])
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 5}]


def test_without_a_reason_nothing_is_begun_and_nothing_that_was_written_is_lost(sams):
    refused = send(sams, "real", why="")
    assert refused.status_code == 422
    assert "Say why. The people who decide will read it." in text_of(refused)
    assert 'value="ana"' in refused.content.decode()
    assert not Run.objects.exists()


@pytest.mark.parametrize("who", ["dana", "mia"])
def test_who_may_not_try_tools_makes_dry_runs_alone(clerk, client, request, who):
    client.force_login(request.getfixturevalue(who))
    assert "Run for real" not in client.get("/tools/pay/try/").content.decode()
    assert "Nothing was sent." in text_of(send(client))
    refused = send(client, "real")
    assert refused.status_code == 403
    assert "try" in refused.content.decode().lower()
    assert not Run.objects.exists()


def test_what_a_tool_can_look_up_is_told_to_those_alone_who_may_start_runs(clerk, offer, client, sam, mia):
    looks: list[str] = []

    def foresee(door: str) -> list[dict[str, Any]]:
        looks.append(door)
        return [{"name": "Door", "before": "shut", "after": "<i>open</i>"}]

    @tool("open_door", effect="reversible", preview=foresee)
    def open_door(door: str) -> str:
        """Open a door."""
        note("open_door", door=door)
        return "open"

    offer(open_door)
    door = {"shown": ["arg.door"], "arg.door": "cellar"}
    client.force_login(mia)
    assert "It does so for people who may start runs." in text_of(send(client, name="open_door", **door))
    assert looks == []
    client.force_login(sam)
    found = send(client, name="open_door", **door)
    assert "&lt;i&gt;open&lt;/i&gt;" in found.content.decode()
    assert (looks, EFFECTS) == (["cellar"], [])


def test_secret_arguments_are_typed_unseen_and_never_come_back(clerk, offer, client, sam):
    @tool("unlock", effect="irreversible", secret=("pin",), sentence="Unlock {door} with {pin}.")
    def unlock(door: str, pin: str) -> str:
        """Unlock a door."""
        note("unlock", door=door, pin=pin)
        return "open"

    offer(unlock)
    client.force_login(sam)
    form = {"shown": ["arg.door"], "arg.door": "cellar"}
    assert 'type="password"' in client.get("/tools/unlock/try/").content.decode()
    missing = send(client, name="unlock", **form)
    assert "Type it again: it is not kept on the page." in text_of(missing)
    found = send(client, name="unlock", **form, **{"secret.pin": "493812"})
    assert "People would be asked" in text_of(found)
    assert "493812" not in found.content.decode()
    # It does not count if posted under the name of a plain argument.
    sly = send(client, name="unlock", **form | {"shown": ["arg.door", "arg.pin"], "arg.pin": "493812"})
    assert "Type it again" in text_of(sly)
    response = send(client, "real", name="unlock", **form, **{"secret.pin": "493812"})
    run = Run.objects.get()
    assert response["Location"] == f"/runs/{run.pk}/"
    clerk.drive(run)
    assert "493812" not in client.get(f"/runs/{run.pk}/").content.decode()
    assert not Event.objects.filter(body__contains="493812").exists()


def test_the_form_begins_with_the_arguments_of_a_call_that_one_may_see(clerk, client, sam, otto):
    run = clerk.run(calls(call("p", "pay", account="northwind", amount=7)))
    execution = ToolExecution.objects.get(run=run)
    client.force_login(sam)
    assert 'value="northwind"' in client.get(f"/tools/pay/try/?from={execution.pk}").content.decode()
    assert client.get("/tools/pay/try/?from=nonsense").status_code == 200
    otto.user_permissions.add(*Permission.objects.filter(codename__in=["view_tool", "view_toolexecution"]))
    client.force_login(otto)
    assert "northwind" not in client.get(f"/tools/pay/try/?from={execution.pk}").content.decode()


def test_what_is_masked_of_that_call_is_left_empty_and_the_form_says_so(clerk, client, sam):
    Tool.objects.filter(name="pay").update(pii_fields=["account"])
    run = clerk.run(calls(call("p", "pay", account="northwind", amount=7)))
    execution = ToolExecution.objects.get(run=run)
    for group in sam.groups.all():
        group.permissions.remove(*group.permissions.filter(codename="reveal_pii"))
    client.force_login(sam)
    page = client.get(f"/tools/pay/try/?from={execution.pk}").content.decode()
    assert "Left empty, because it is masked for you: account." in page
    assert 'value="7"' in page
    assert "northwind" not in page
    assert "\u2022" * 6 not in page


def test_the_rules_of_a_route_count_where_one_is_chosen(sams, clerk):
    route = Route.objects.create(agent=clerk.agent, name="refunds")
    route.tools.add(Tool.objects.get(name="pay"))
    Rule.objects.create(name="there", tool="pay", route="refunds", verdict="deny")
    assert "People would be asked" in text_of(send(sams))
    assert "A rule would forbid it" in text_of(send(sams, **{"as": "clerk:refunds"}))


def test_a_tool_that_no_agent_has_and_one_that_asks_an_agent_say_so(sams, monkeypatch):
    Agent.objects.get().tools.remove(Tool.objects.get(name="pay"))
    assert "No agent has this tool" in text_of(sams.get("/tools/pay/try/"))
    assert "No agent has this tool" in text_of(send(sams, "real"))
    monkeypatch.setattr(trying, "hindrance", lambda tool: "Not by itself.")
    assert "This tool cannot be tried on its own" in text_of(sams.get("/tools/look_up/try/"))
    assert not Run.objects.exists()


def test_its_own_buttons_change_the_form_alone(clerk, offer, client, sam):
    @tool("pack", effect="reversible")
    def pack(things: list[str]) -> str:
        """Pack things."""
        return "packed"

    offer(pack)
    client.force_login(sam)
    data = {"as": "clerk", "shown": ["arg.things"], "arg.things": ["cup", "pan"], "remove": "arg.things.0"}
    body = client.post("/tools/pack/try/", data, headers={"HX-Request-Type": "partial"}).content.decode()
    assert "<html" not in body
    assert ('value="pan"' in body, 'value="cup"' in body) == (True, False)


def test_hostile_values_are_shown_inert(sams):
    found = send(sams, **{"arg.account": "<script>alert(1)</script>\u202e"})
    assert "<script>alert" not in found.content.decode()
    assert "Contains hidden characters" in text_of(found)


def test_a_dry_run_asks_the_database_as_often_whatever_has_run_before(sams, clerk, django_assert_max_num_queries):
    for n in range(4):
        clerk.run(calls(call("p", "pay", account="ana", amount=n + 1)))
    with django_assert_max_num_queries(30):
        assert send(sams).status_code == 200
