"""A run is forked at one of its calls: the call is proposed again with other arguments, and asks like any other."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import actions, contracts
from agentapp.compilers import compile_messages, load_earlier
from agentapp.messages import AssistantMessage, ToolMessage, UserMessage
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.base import tool
from agentapp.transcript import load_steps
from approvals.models import Rule
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says
from tests.forks import BOTH, DONE, LOOK, PAY, fork, sent
from tests.teams import Team


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    """Looked up, paid, and said so."""
    run = clerk.run(LOOK, PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == Run.State.SUCCEEDED
    return run


def test_a_call_is_proposed_anew_with_other_arguments_and_asks(clerk, paid, sam, dana):
    forked = clerk.drive(fork(paid, sam, 2, call=0, arguments={"account": "ana", "amount": 7}))
    (asked,) = clerk.open(forked)
    assert (asked.tool, asked.title) == ("pay", "Pay $7.00 to Ana")
    assert len(clerk_tools.effects_of("pay")) == 1
    clerk.decide(asked, dana)
    assert clerk.drive(forked).answer == "Paid."
    assert clerk_tools.effects_of("pay")[1:] == [{"account": "ana", "amount": 7.0}]
    step = forked.steps.get(number=1)
    assert (step.text, step.model, step.input_tokens) == ("I pay.", "", 0), "no model was asked for it"


def test_of_its_step_the_calls_before_it_are_kept_and_those_behind_it_are_not(clerk, sam, dana):
    three = calls(*BOTH["tool_calls"], call("c", "label", text="x"), text="Three things.")
    run = clerk.run(three, DONE)
    for asked in clerk.open(run):
        clerk.decide(asked, dana)
        clerk.drive(run)
    assert run.state == Run.State.SUCCEEDED
    forked = clerk.drive(fork(run, sam, 1, call=1, arguments={"account": "bob", "amount": 5}))
    assert (forked.steps_kept, forked.calls_kept) == (0, 1)
    told = sent_so_far(forked)
    kinds = [type(message) for message in told]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage]
    assert [c.name for m in told if isinstance(m, AssistantMessage) for c in m.tool_calls] == ["look_up", "pay"]
    assert [m.text for m in told if isinstance(m, AssistantMessage)] == ["Three things.", ""]
    (asked,) = clerk.open(forked)
    clerk.decide(asked, dana)
    assert clerk.drive(forked).answer == "Paid.", "its script goes on behind the step"
    assert clerk_tools.effects_of("look_up") == [{"what": "cup"}]
    assert clerk_tools.effects_of("label") == [{"text": "x"}]


def sent_so_far(run: Run) -> list[Any]:
    return list(compile_messages(run, load_earlier(run), load_steps(run), under_way=True))[:4]


def test_a_fork_of_such_a_fork_keeps_what_both_kept(clerk, sam, dana):
    run = clerk.run(LOOK, BOTH, DONE)
    clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
    clerk.drive(run)
    first = clerk.drive(fork(run, sam, 2, call=1, arguments={"account": "bob", "amount": 5}))
    clerk.decide(clerk.open(first)[0], dana)
    assert clerk.drive(first).state == Run.State.SUCCEEDED
    second = clerk.drive(fork(first, sam, 2))
    names = [c.name for m in sent(second) if isinstance(m, AssistantMessage) for c in m.tool_calls]
    assert names == ["look_up", "look_up", "pay"]
    assert second.answer == "Paid."
    assert [name for name, *_ in clerk_tools.EFFECTS] == ["look_up", "look_up", "pay"]


def test_the_values_somebody_typed_came_from_a_person_and_the_others_from_where_they_did(clerk, paid, sam):
    forked = clerk.drive(fork(paid, sam, 2, call=0, arguments={"account": "zoe.berg", "amount": 5}))
    (asked,) = clerk.open(forked)
    whose = {origin["path"]: (origin["origin"], origin.get("source", "")) for origin in asked.provenance}
    assert whose["account"] == ("staff", "Filled in by the person who forked the run")
    assert whose["amount"][0] != "staff"


def test_whoever_fills_it_in_cannot_decide_even_where_a_rule_lets_starters(clerk, paid, dana):
    Rule.objects.create(name="says", tool="pay", verdict="ask", starter_excluded=False)
    olga = User.objects.create_superuser("olga")
    forked = clerk.drive(fork(paid, olga, 2, call=0, arguments={"account": "eve", "amount": 900}))
    (asked,) = clerk.open(forked)
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(asked, User.objects.get(pk=olga.pk))
    assert refused.value.code == "starter"
    clerk.decide(asked, dana)
    assert clerk.drive(forked).state == Run.State.SUCCEEDED


@pytest.fixture
def vault(offer) -> Tool:
    @tool(effect="irreversible")
    def open_vault(name: str, pin: str) -> str:
        """Open a vault."""
        clerk_tools.note("open_vault", name=name)
        return "open"

    row = offer(open_vault)["open_vault"]
    Tool.objects.filter(pk=row.pk).update(secret_fields=["pin"])
    return Tool.objects.get(pk=row.pk)


def test_a_secret_argument_is_asked_for_anew(clerk, vault, sam):
    run = clerk.run(calls(call("v", "open_vault", name="left", pin="4711-secret")), DONE)
    actions.cancel_run(run.pk, sam)
    with pytest.raises(actions.Refused) as refused:
        fork(run, sam, 1, call=0, arguments={"name": "right"})
    assert (refused.value.code, refused.value.field) == ("invalid_arguments", "pin")
    forked = clerk.drive(fork(run, sam, 1, call=0, arguments={"name": "right", "pin": "0815-secret"}))
    (asked,) = clerk.open(forked)
    assert "4711" not in asked.arguments_text
    assert ToolExecution.objects.get(run=forked).args == {"name": "right", "pin": "0815-secret"}


def test_a_tool_that_changed_since_is_asked_about_as_it_is_now(clerk, paid, sam, offer, monkeypatch):
    before = Tool.objects.get(name="pay").version
    changed = replace(clerk_tools.pay, description="Pays in another way.")
    monkeypatch.setattr(clerk_tools, "pay", changed)
    offer()  # its code is read again, as by a process that has just started
    Tool.objects.filter(name="pay").update(**contracts.contract_columns(changed))
    forked = clerk.drive(fork(paid, sam, 2, call=0, arguments={"account": "ana", "amount": 7}))
    (asked,) = clerk.open(forked)
    assert asked.tool_version == changed.version != before
    Tool.objects.filter(name="pay").update(enabled=False)
    with pytest.raises(actions.Refused) as refused:
        fork(paid, sam, 2, call=0, arguments={"account": "ana", "amount": 8})
    assert "This agent can no longer call" in refused.value.message


# --- Other agents -----------------------------------------------------------------------------


def test_what_another_agent_answered_before_is_kept_and_it_is_asked_anew_behind(clerk, sam):
    team = Team(clerk)
    team.may_ask("finder", says("In the attic."))
    ask = calls(call("q", "ask_finder", input="Where?"))
    run = team.run(LOOK, ask, DONE)
    (child,) = run.children.all()
    forked = team.drive_all(fork(run, sam, 3))
    assert (forked.state, forked.children.count()) == (Run.State.SUCCEEDED, 0)
    assert any("In the attic." in m.text for m in sent(forked) if isinstance(m, ToolMessage))
    forked = team.drive_all(fork(run, sam, 2))
    assert (forked.state, forked.children.count()) == (Run.State.SUCCEEDED, 1)
    with pytest.raises(actions.Refused) as refused:
        fork(child, sam)
    assert "Try that one again" in refused.value.message


def test_a_question_to_another_agent_is_put_in_other_words(clerk, sam):
    team = Team(clerk)
    team.may_ask("finder", says("In the attic."))
    run = team.run(calls(call("q", "ask_finder", input="Where?")), DONE)
    forked = team.drive_all(fork(run, sam, 1, call=0, arguments={"input": "Where is it?"}))
    assert (forked.state, forked.children.get().input) == (Run.State.SUCCEEDED, "Where is it?")


@pytest.mark.parametrize("words", ["Label it.", "Label it, please."])
def test_what_an_agent_did_that_was_asked_then_is_not_done_again_by_one_that_is_asked_anew(clerk, sam, words):
    Rule.objects.create(name="labels", tool="label", verdict="allow", order=1)
    team = Team(clerk)
    team.may_ask("labeller", calls(call("x", "label", text="fragile")), DONE)
    run = team.run(LOOK, calls(call("q", "ask_labeller", input="Label it.")), DONE)
    forked = team.drive_all(fork(run, sam, 2, call=0, arguments={"input": words}))
    again = ToolExecution.objects.get(run__parent=forked, name="label")
    assert (again.result_status, again.reason) == ("refused", "idempotency_key_consumed")
    assert len(clerk_tools.effects_of("label")) == 1


def test_what_an_agent_did_that_was_asked_then_is_not_done_again_by_the_fork_itself(clerk, sam):
    Rule.objects.create(name="labels", tool="label", verdict="allow", order=1)
    team = Team(clerk)
    team.may_ask("labeller", calls(call("x", "label", text="fragile")), DONE)
    ask, stick = calls(call("q", "ask_labeller", input="Label it.")), calls(call("s", "label", text="fragile"))
    run = team.run(LOOK, ask, DONE)
    for step, script in ((1, [stick, DONE]), (3, [LOOK, ask, stick, DONE])):
        Run.objects.filter(pk=run.pk).update(script=script)
        forked = team.drive_all(fork(run, sam, step))
        assert forked.executions.get(name="label").reason == "idempotency_key_consumed"
    assert len(clerk_tools.effects_of("label")) == 1
