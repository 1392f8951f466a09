"""Trying a tool: a rehearsal sends nothing; a real try is a run like any other, which its starter cannot decide."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from agentapp import actions, trying
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.tools.base import ToolError, tool
from agentapp.trying import Trial
from approvals.models import Approval, Event, Rule
from tests.clerk_tools import EFFECTS, effects_of, note
from tests.conftest import Clerk


@pytest.fixture
def filled(clerk: Clerk) -> Any:
    """`filled(tool, …)`: a call as a person has filled it in."""

    def make(name: str = "pay", why: str = "To see it work.", **more: Any) -> Trial:
        arguments = more.pop("arguments", {"account": "ana", "amount": 5})
        return Trial(Tool.objects.select_related("source").get(name=name), clerk.agent, arguments, why=why, **more)

    return make


def rehearsed(trial: Trial, user: User, looks: bool = True) -> trying.Rehearsal:
    before = (Run.objects.count(), ToolExecution.objects.count(), Approval.objects.count(), Event.objects.count())
    found = trying.rehearse(trial, user, looks=looks)
    after = (Run.objects.count(), ToolExecution.objects.count(), Approval.objects.count(), Event.objects.count())
    assert before == after, "a rehearsal writes nothing"
    assert EFFECTS == [], "a rehearsal calls nothing"
    return found


def test_a_rehearsal_of_a_write_says_that_people_would_be_asked_and_sends_nothing(filled, sam, dana, marco):
    found = rehearsed(filled(), sam)
    assert (found.verdict, found.people_needed) == ("ask", 1)
    assert found.people == [dana, marco]
    assert "".join(piece["text"] for piece in found.sentence) == "The agent will pay $5.00 to Ana (ana)."


def test_whoever_tries_is_not_among_those_who_could_decide(filled, dana, marco):
    assert rehearsed(filled(), dana).people == [marco]


def test_what_stands_for_something_hidden_is_no_customer(filled, sam):
    Permission.objects.get(codename="try_tool").user_set.add(sam)
    sam = User.objects.get(pk=sam.pk)
    with pytest.raises(actions.Refused, match="still has a masked part"):
        actions.try_tool(filled(customer="\u2022" * 6), sam, uuid.uuid4())
    assert not Run.objects.exists()


def test_a_rehearsal_without_looks_asks_the_tool_nothing(filled, sam):
    found = rehearsed(filled(), sam, looks=False)
    assert "".join(piece["text"] for piece in found.sentence) == "The agent will pay $5.00 to [holder] (ana)."
    assert found.preview_text == ""


def test_a_rehearsal_says_of_each_rule_what_it_makes_of_the_call(filled, sam, roles):
    rules = {
        "small": ("args.amount < 10.0", "allow"),
        "large": ("args.amount > 100.0", "deny"),
        "odd": ("args.x", "ask"),
    }
    for order, (name, (condition, verdict)) in enumerate(rules.items()):
        Rule.objects.create(name=name, tool="pay", condition=condition, verdict=verdict, order=order)
    Rule.objects.create(name="others", tool="pay", agent="somebody", verdict="deny", order=9)
    Rule.objects.create(name="letters", tool="send", verdict="deny", order=10)
    found = rehearsed(filled(), sam)
    outcomes = [(looked.rule.name, looked.outcome) for looked in found.rules]
    assert outcomes == [("small", "fires"), ("large", "rests"), ("odd", "fails"), ("others", "elsewhere")]
    assert (found.verdict, found.ruling.rule) == ("ask", "odd")


@pytest.mark.parametrize(("verdict", "expected"), [("allow", "allow"), ("deny", "deny"), ("ask", "ask")])
def test_a_rehearsal_comes_to_what_the_call_comes_to(clerk, filled, sam, verdict, expected):
    Rule.objects.create(name="says", tool="pay", verdict=verdict)
    trial = filled()
    found = rehearsed(trial, sam)
    run = clerk.drive(actions.try_tool(trial, sam, uuid.uuid4()))
    call = ToolExecution.objects.get(run=run)
    assert found.verdict == expected
    assert call.ruling["verdict"] == expected
    assert len(effects_of("pay")) == (1 if expected == "allow" else 0)


def test_arguments_that_do_not_fit_are_refused_before_anybody_is_asked(filled, sam):
    trial = filled(arguments={"account": "ana", "amount": -1})
    found = rehearsed(trial, sam)
    assert found.verdict == "refused"
    assert "amount" in found.why
    with pytest.raises(actions.Refused, match="amount"):
        actions.try_tool(trial, sam, uuid.uuid4())
    assert not Run.objects.exists()


def test_for_real_it_waits_for_somebody_else_and_runs_once_when_they_approve(clerk, filled, sam, dana):
    key = uuid.uuid4()
    run = actions.try_tool(filled(), sam, key)
    assert actions.try_tool(filled(), sam, key) == run
    run = clerk.drive(run)
    assert (run.state, run.is_trial, effects_of("pay")) == ("waiting", True, [])
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 5}]


def test_whoever_tries_cannot_decide_even_where_a_rule_lets_starters(clerk, filled, roles, sam, dana):
    Rule.objects.create(name="says", tool="pay", verdict="ask", starter_excluded=False)
    sam.groups.add(roles["approver"])
    sam = User.objects.get(pk=sam.pk)
    run = clerk.drive(actions.try_tool(filled(), sam, uuid.uuid4()))
    [approval] = clerk.open(run)
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(approval, sam)
    assert refused.value.code == "starter"
    assert effects_of("pay") == []


def test_whoever_decides_reads_why_and_what_was_filled_in(clerk, filled, sam):
    trial = filled(arguments={"account": "northwind-77", "amount": 5})
    run = clerk.drive(actions.try_tool(trial, sam, uuid.uuid4()))
    [approval] = clerk.open(run)
    assert approval.evidence[0]["body"].startswith("To see it work.\n\nFilled in on the page of pay:\n{")
    assert {row["path"]: row["origin"] for row in approval.provenance}["account"] == "staff"


def test_a_trial_needs_a_reason_where_people_may_be_asked_and_none_for_a_read(filled, sam):
    with pytest.raises(actions.Refused) as refused:
        actions.try_tool(filled(why=" "), sam, uuid.uuid4())
    assert refused.value.code == "message_required"
    assert actions.try_tool(filled("look_up", why="", arguments={"what": "x"}), sam, uuid.uuid4()).is_trial


@pytest.mark.parametrize("who", ["dana", "mia", "otto"])
def test_only_who_may_start_runs_and_try_tools_proposes_a_call(filled, request, who):
    with pytest.raises(actions.Refused) as refused:
        actions.try_tool(filled(), request.getfixturevalue(who), uuid.uuid4())
    assert refused.value.code == "forbidden"
    assert not Run.objects.exists()


def test_no_tool_is_tried_that_is_not_in_use_or_that_the_agent_may_not_call(clerk, filled, sam):
    other = Agent.objects.create(name="other", driver="scripted")
    for change in ({"agent": other}, {"route": "nowhere"}):
        with pytest.raises(actions.Refused, match=r"may not call|does not offer"):
            actions.try_tool(Trial(**{**vars(filled()), **change}), sam, uuid.uuid4())
    Tool.objects.filter(name="pay").update(enabled=False)
    with pytest.raises(actions.Refused, match="not in use"):
        actions.try_tool(filled(), sam, uuid.uuid4())
    assert rehearsed(filled(), sam).verdict == "refused"


def test_a_key_begins_one_call_and_no_other(filled, sam):
    key = uuid.uuid4()
    actions.try_tool(filled(), sam, key)
    with pytest.raises(actions.Refused) as refused:
        actions.try_tool(filled(arguments={"account": "bo", "amount": 5}), sam, key)
    assert refused.value.code == "idempotency_key_reused"
    assert Run.objects.count() == 1


def test_a_trial_is_not_tried_again_as_a_run(clerk, filled, sam, dana):
    run = clerk.drive(actions.try_tool(filled(), sam, uuid.uuid4()))
    clerk.decide(clerk.open(run)[0], dana, type="reject", message="No.")
    run = clerk.drive(run)
    with pytest.raises(actions.Refused, match="page of its tool"):
        actions.retry_run(run.pk, sam)


def test_secret_arguments_are_nowhere_in_what_people_read(clerk, offer, filled, sam):
    @tool("unlock", effect="irreversible", secret=("pin",), sentence="Unlock {door} with {pin}.")
    def unlock(door: str, pin: str) -> str:
        """Unlock a door."""
        note("unlock", door=door)
        return "open"

    offer(unlock)
    trial = filled("unlock", arguments={"door": "cellar", "pin": "493812"})
    found = rehearsed(trial, sam)
    assert "493812" not in str(found)
    run = clerk.drive(actions.try_tool(trial, sam, uuid.uuid4()))
    [approval] = clerk.open(run)
    assert "493812" not in run.input + str(approval.evidence) + str(approval.sentence)
    assert not Event.objects.filter(body__contains="493812").exists()


def test_a_call_that_the_tool_refuses_as_it_looks_is_refused_and_asks_nobody(clerk, offer, filled, sam):
    def there(account: str) -> dict[str, str]:
        if account != "ana":
            raise ToolError(f"There is no account {account}.", refused=True)
        return {"account": account}

    @tool("close_down", effect="irreversible", snapshot=there)
    def close_down(account: str) -> str:
        """Close an account."""
        note("close_down", account=account)
        return "closed"

    offer(close_down)
    found = rehearsed(filled("close_down", arguments={"account": "bob"}), sam)
    assert (found.verdict, found.why, found.people) == ("refused", "There is no account bob.", ())
    assert rehearsed(filled("close_down", arguments={"account": "ana"}), sam).verdict == "ask"
    Rule.objects.create(name="free", tool="close_down", verdict="allow")
    assert rehearsed(filled("close_down", arguments={"account": "bob"}), sam).verdict == "allow"


def test_what_a_tool_foresees_is_looked_up_and_nothing_changes(clerk, offer, filled, sam):
    looks: list[str] = []

    def foresee(door: str) -> list[dict[str, Any]]:
        looks.append(door)
        return [{"name": "Door", "before": "shut", "after": "open"}]

    @tool("open_door", effect="reversible", preview=foresee)
    def open_door(door: str) -> str:
        """Open a door."""
        note("open_door", door=door)
        return "open"

    offer(open_door)
    trial = filled("open_door", arguments={"door": "cellar"})
    assert '"after":"open"' in rehearsed(trial, sam).preview_text
    assert rehearsed(trial, sam, looks=False).preview_text == ""
    assert looks == ["cellar"]
