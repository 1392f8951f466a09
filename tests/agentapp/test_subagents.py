"""An agent asks an agent: what the model is told, and how the run that answers begins, is waited for and ends."""

import dataclasses
import uuid
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import actions, agent_tools, executions, guidance_facts, lineage, loop, runs, waiting
from agentapp.answers import answer
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.messages import StopRun, StopSignal, ToolResult
from agentapp.models import Agent, Route, Run, Tool, ToolExecution
from agentapp.sweep import sweep
from agentapp.transcript import load_steps
from approvals import decisions, ledger
from approvals.models import Approval, Event, Rule
from tests import clerk_hooks
from tests.clerk_hooks import DO
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.races import few_tries, race, tries
from tests.teams import Team, child_of


@pytest.fixture
def team(clerk) -> Team:
    return Team(clerk)


def types_of(run: Run) -> list[str]:
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    return list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("type", flat=True))


def told(run: Run, call_id: str = "a") -> str:
    """What the model read about one of its calls."""
    [execution] = [e for rows in load_steps(run) for e in rows.executions if e.call_id == call_id]
    return answer(execution).text


def expire_lease(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


# --- Being asked ---------------------------------------------------------------------------------


def test_an_agent_is_answered_by_the_run_of_another_and_reads_only_its_last_answer(team):
    team.may_ask("refunds", calls(call("x", "look_up", what="secret"), text="I look."), says("Refund it."))
    run = team.run(calls(call("a", "ask_refunds", input="May we refund?")), says("done"))
    child = child_of(run)
    assert (run.state, run.answer, child.state, child.answer) == ("succeeded", "done", "succeeded", "Refund it.")
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.trust) == ("ok", "untrusted_content")
    assert "Refund it." in told(run)
    assert "untrusted content from ask_refunds" in told(run)
    assert "secret" not in told(run)
    assert "I look." not in told(run)


def test_the_run_that_answers_has_the_starter_and_the_customer_and_no_conversation(team, sam):
    team.may_ask("refunds", says("yes"))
    run = team.run(
        calls(call("a", "ask_refunds", input="May we?\nPlease.")),
        says("done"),
        customer="cus_1",
        conversation="ticket-1",
        metadata={"tenant": "t1"},
    )
    child = child_of(run)
    assert (child.parent, child.depth, child.starter, child.customer) == (run, 1, sam, "cus_1")
    assert (child.conversation, child.script, child.input) == (None, None, "May we?\nPlease.")
    assert (child.title, child.metadata) == ("ask_refunds: May we?", {"tenant": "t1"})
    assert child.agent_snapshot["name"] == "refunds"
    assert [message.role for message in run.conversation.messages.all()] == ["user", "assistant"]


def test_asking_and_being_answered_are_events_of_both_chains(team):
    team.may_ask("refunds", says("yes"))
    run = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"))
    child = child_of(run)
    journey = [type for type in types_of(run) if type.startswith(("subagent", "tool_call", "run.w"))]
    assert journey == [
        "tool_call.proposed",
        "tool_call.started",
        "subagent.spawned",
        "run.waiting",
        "tool_call.completed",
        "subagent.completed",
    ]
    assert types_of(child)[:2] == ["run.queued", "subagent.spawned"]
    spawned = Event.objects.get(run_id=run.pk, type="subagent.spawned").data
    assert (spawned["run"], spawned["agent"], spawned["depth"]) == (str(child.pk), "refunds", 1)


def test_the_model_is_told_the_agents_it_may_ask_with_their_descriptions_and_routes(team, monkeypatch):
    refunds = team.may_ask("refund-desk", says("yes"), description="Knows all about refunds.")
    Route.objects.create(agent=refunds, name="urgent")
    agent_tools.sync("test")
    seen = []
    real = ScriptedDriver.next_step

    def noting(self, state):
        seen.append({spec.name: spec for spec in state.tools})
        return real(self, state)

    monkeypatch.setattr(ScriptedDriver, "next_step", noting)
    run = team.run(calls(call("a", "ask_refund_desk", input="?", route="urgent")), says("done"))
    spec = seen[0]["ask_refund_desk"]
    assert spec.description == "Knows all about refunds."
    assert spec.input_schema["required"] == ["input"]
    assert spec.input_schema["properties"]["route"]["enum"] == ["urgent"]
    assert child_of(run).route == "urgent"
    # No agent is offered itself; an agent that lists nobody is offered nobody.
    assert "ask_clerk" not in seen[0]
    assert not [name for name in seen[1] if name.startswith("ask_")]


@pytest.mark.parametrize(
    ("allowed", "denied", "offered"),
    [
        ([], [], set()),
        (["refunds"], [], {"ask_refunds"}),
        (["*"], [], {"ask_refunds", "ask_billing"}),
        (["*"], ["billing"], {"ask_refunds"}),
        (["refunds"], ["refunds"], set()),
        (["*"], ["*"], set()),
        (["clerk", "nobody"], [], set()),
    ],
)
def test_the_list_of_denied_agents_beats_the_list_of_allowed_ones(team, allowed, denied, offered):
    team.may_ask("refunds", says("yes"))
    team.may_ask("billing", says("yes"))
    Agent.objects.filter(name="clerk").update(subagents=allowed, denied_subagents=denied)
    run = team.run(says("done"))
    assert {name for name in run.steps.get().disclosed_tools if name.startswith("ask_")} == offered


def test_an_agent_that_is_switched_off_or_whose_tool_is_is_not_offered(team):
    refunds = team.may_ask("refunds", says("yes"))
    team.may_ask("billing", says("yes"))
    Agent.objects.filter(pk=refunds.pk).update(enabled=False)
    Tool.objects.filter(name="ask_billing").update(enabled=False)
    run = team.run(calls(call("a", "ask_refunds", input="?"), call("b", "ask_billing", input="?")), says("done"))
    assert not {"ask_refunds", "ask_billing"} & set(run.steps.first().disclosed_tools)
    reasons = [team.clerk.execution(run, id).reason for id in "ab"]
    assert reasons == ["tool_not_disclosed", "tool_disabled"]
    assert Run.objects.filter(parent=run).count() == 0


def test_a_route_narrows_the_agents_that_may_be_asked_as_it_narrows_the_tools(team):
    team.may_ask("refunds", says("yes"))
    team.may_ask("billing", says("yes"))
    route = Route.objects.create(agent=team.clerk.agent, name="narrow")
    route.tools.set(Tool.objects.filter(name__in=["look_up", "ask_billing"]))
    run = team.run(says("done"), route="narrow")
    assert run.steps.get().disclosed_tools == ["ask_billing", "look_up"]


def test_an_agent_that_is_not_there_is_refused_and_the_others_are_named(team):
    team.may_ask("refunds", says("yes"))
    run = team.run(calls(call("a", "ask_nobody", input="?")), says("done"))
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "tool_not_disclosed")
    assert "Agents you can ask: ask_refunds." in execution.message
    assert run.state == "succeeded"


def test_the_same_question_twice_in_one_reply_is_asked_once(team):
    team.may_ask("refunds", says("yes"))
    twice = [call("a", "ask_refunds", input="?"), call("b", "ask_refunds", input="?")]
    run = team.run(calls(*twice), says("done"))
    assert team.clerk.execution(run, "b").reason == "duplicate_call"
    assert Run.objects.filter(parent=run).count() == 1


def test_a_question_without_words_is_refused_by_its_schema(team):
    team.may_ask("refunds", says("yes"))
    run = team.run(calls(call("a", "ask_refunds", input=""), call("b", "ask_refunds", what="?")), says("done"))
    assert [team.clerk.execution(run, id).result_status for id in "ab"] == ["refused", "refused"]


# --- Waiting -------------------------------------------------------------------------------------


def test_a_run_that_asked_holds_no_worker_and_is_not_due(team):
    team.may_ask("refunds", says("yes"))
    run = team.clerk.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    assert (run.state, run.waiting_for, run.lease_token, run.wake_at) == ("waiting", "subagent", None, None)
    assert sweep() == [child_of(run).pk]
    team.clerk.drive(child_of(run))
    assert sweep() == [run.pk]
    assert team.clerk.drive(run).state == "succeeded"


def test_several_agents_are_asked_at_once_and_the_other_reads_of_the_step_run_meanwhile(team):
    team.may_ask("refunds", says("r"))
    team.may_ask("billing", says("b"))
    reply = calls(
        call("l1", "look_up", what="1"),
        call("a", "ask_refunds", input="?"),
        call("b", "ask_billing", input="?"),
        call("l2", "look_up", what="2"),
    )
    run = team.clerk.run(reply, says("done"))
    assert run.waiting_for == "subagent"
    assert sorted(effect["what"] for effect in effects_of("look_up")) == ["1", "2"]
    assert {child.agent.name for child in run.children.all()} == {"refunds", "billing"}
    # The second answer comes first; the run looks, stores it, and waits on.
    team.clerk.drive(child_of(run, "b"))
    assert team.clerk.drive(run).waiting_for == "subagent"
    assert team.clerk.execution(run, "b").state == "finished"
    assert team.drive_all(run).state == "succeeded"
    results = [e.call_id for rows in load_steps(run) for e in rows.executions]
    assert results == ["l1", "a", "b", "l2"]


def test_people_are_asked_about_the_rest_of_a_step_while_an_agent_works(team, dana):
    team.may_ask("refunds", says("r"))
    run = team.clerk.run(
        calls(call("a", "ask_refunds", input="?"), call("p", "pay", account="ana", amount=1)), says("done")
    )
    [approval] = team.clerk.open(run)
    team.clerk.decide(approval, dana)
    # The write waits for the answer, which was requested before it.
    assert team.clerk.drive(run).waiting_for == "subagent"
    assert effects_of("pay") == []
    assert team.drive_all(run).state == "succeeded"
    assert len(effects_of("pay")) == 1


def test_an_agent_that_answers_while_cards_are_made_is_not_missed(team, monkeypatch):
    team.may_ask("refunds", says("r"))
    run = team.clerk.start(
        calls(call("a", "ask_refunds", input="?"), call("p", "pay", account="ana", amount=1)), says("done")
    )
    real = decisions.request

    def slow(*arguments):
        # Practically at this moment: the other worker ended the run, which was not waiting at that time.
        Run.objects.filter(parent=run).update(
            state="succeeded", stop_reason="completed", answer="r", finished_at=timezone.now()
        )
        return real(*arguments)

    monkeypatch.setattr(decisions, "request", slow)
    team.clerk.drive(run)
    assert run.pk in sweep()


def test_an_agent_that_answers_just_before_the_asking_run_lets_go_is_not_missed(team, monkeypatch):
    team.may_ask("refunds", says("r"))
    run = team.clerk.start(calls(call("a", "ask_refunds", input="?")), says("done"))
    real = waiting.park

    def late(*arguments):
        loop.drive(child_of(run).pk)
        return real(*arguments)

    monkeypatch.setattr(waiting, "park", late)
    assert team.clerk.drive(run).state == "succeeded"


def test_an_agent_may_ask_only_after_a_person_if_an_admin_says_so(team, dana):
    team.may_ask("refunds", says("r"))
    Tool.objects.filter(name="ask_refunds").update(effect_class="reversible")
    run = team.clerk.run(calls(call("a", "ask_refunds", input="Is it due?")), says("done"))
    [approval] = team.clerk.open(run)
    assert approval.title == "Ask the agent refunds"
    assert "Is it due?" in "".join(piece["text"] for piece in approval.sentence)
    assert Run.objects.filter(parent=run).count() == 0
    team.clerk.decide(approval, dana)
    assert team.drive_all(run).state == "succeeded"
    assert child_of(run).answer == "r"


def test_a_rule_may_deny_or_allow_asking_an_agent(team):
    team.may_ask("refunds", says("r"))
    team.may_ask("billing", says("b"))
    Tool.objects.filter(name="ask_billing").update(effect_class="reversible")
    Rule.objects.create(name="not them", tool="ask_refunds", verdict="deny")
    Rule.objects.create(name="them", tool="ask_billing", verdict="allow")
    run = team.run(calls(call("a", "ask_refunds", input="?"), call("b", "ask_billing", input="?")), says("done"))
    assert team.clerk.execution(run, "a").reason == "policy_denied"
    assert team.clerk.execution(run, "b").allowed_by == "rule:them"
    assert child_of(run, "b").state == "succeeded"


# --- How it ends ---------------------------------------------------------------------------------


def test_an_agent_that_fails_is_an_error_with_its_reason_and_the_asking_one_goes_on(team):
    team.may_ask("refunds", says(" "))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done without"))
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("fatal_error", "tool_failure")
    assert "refunds ended without an answer (error)" in told(run)
    assert (run.state, run.had_tool_errors) == ("succeeded", True)


def test_a_partial_answer_says_that_it_is_one(team):
    team.may_ask("refunds", says("r"))
    run = team.clerk.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    child = child_of(run)
    with ledger.transaction():
        runs.lock_parent(child.pk)
        signal = StopSignal("steps_limit", "Step limit reached: 5/5.")
        runs.finish(runs.lock(child.pk), "stopped", signal, "Half of it.", partial=True)
    assert team.drive_all(run).state == "succeeded"
    assert team.clerk.execution(run, "a").result_status == "ok"
    assert "partial (steps_limit)" in told(run)
    assert "Half of it." in told(run)


def test_a_rejection_that_stops_the_run_of_an_agent_is_a_refusal_to_the_asking_one(team, dana):
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1)), says("paid"))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    [approval] = team.clerk.open(child_of(run))
    team.clerk.decide(approval, dana, "reject", message="No.", stop_run=True)
    assert team.drive_all(run).state == "succeeded"
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "approval_rejected")
    assert "approval_denied" in told(run)


def test_a_request_that_expires_inside_ends_both_as_its_rule_says(team):
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1)), says("paid"))
    Rule.objects.create(name="soon", tool="pay", verdict="ask", on_expiry="stop")
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert team.drive_all(run).state == "succeeded"
    assert child_of(run).stop_reason == "approval_expired"
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "approval_expired")


def test_a_run_that_a_person_stops_takes_the_agents_it_asked_along(team, dana):
    team.may_ask("refunds", says("r"))
    run = team.clerk.run(calls(call("a", "ask_refunds", input="?"), call("p", "pay", account="ana", amount=1)))
    [approval] = team.clerk.open(run)
    team.clerk.decide(approval, dana, "reject", message="Stop this.", stop_run=True)
    assert team.clerk.drive(run).stop_reason == "approval_denied"
    child = child_of(run)
    assert (child.state, child.stop_reason) == ("cancelled", "stop_requested")
    assert "Stop this." in child.stop_message
    assert team.clerk.execution(run, "a").state == "cancelled"
    assert sweep() == []


def test_an_agents_route_that_is_gone_is_no_route_to_ask_for(team):
    refunds = team.may_ask("refunds", says("r"))
    Route.objects.create(agent=refunds, name="urgent")
    agent_tools.sync("test")
    Route.objects.all().delete()
    agent_tools.sync("test")
    run = team.run(calls(call("a", "ask_refunds", input="?", route="urgent")), says("done"))
    assert team.clerk.execution(run, "a").reason == "invalid_arguments"


def test_a_person_may_cancel_only_the_run_that_answers(team, sam):
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1)), says("paid"))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done without"))
    actions.cancel_run(child_of(run).pk, sam)
    assert team.drive_all(run).state == "succeeded"
    execution = team.clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "cancelled")


def test_cancelling_a_run_cancels_the_runs_below_it_with_their_requests(team, sam):
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="Pay")), says("r"), asks=("ledger",))
    team.may_ask("ledger", calls(call("x", "pay", account="ana", amount=1)), says("paid"))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    child = child_of(run)
    grandchild = child_of(child)
    actions.cancel_run(run.pk, sam)
    assert {read.state for read in Run.objects.all()} == {"cancelled"}
    assert Approval.objects.get(run_id=grandchild.pk).state == "withdrawn"
    assert {e.state for e in ToolExecution.objects.filter(call_id="a")} == {"cancelled"}
    assert sweep() == []
    for each in (run, child, grandchild):
        assert types_of(each)[-1] == "run.cancelled"


def test_a_consequential_question_under_way_is_cancelled_and_not_unknown(team, sam):
    team.may_ask("refunds", says("r"))
    Tool.objects.filter(name="ask_refunds").update(effect_class="reversible")
    Rule.objects.create(name="them", tool="ask_refunds", verdict="allow")
    run = team.clerk.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    assert run.waiting_for == "subagent"
    actions.cancel_run(run.pk, sam)
    stopped = team.clerk.execution(run, "a")
    assert stopped.state == "cancelled"
    assert child_of(run).state == "cancelled"
    said = "Error (cancelled): It was stopped after it had begun. What the agent did until then stays done;"
    assert answer(stopped).text.startswith(said)
    assert guidance_facts._stands(stopped)


def test_a_question_that_had_not_begun_is_cancelled_as_not_executed(team, sam):
    team.may_ask("refunds", says("r"))
    asked = (call("p", "pay", account="ana", amount=5), call("a", "ask_refunds", input="?"))
    run = team.clerk.run(calls(*asked), says("done"))
    actions.cancel_run(run.pk, sam)
    stopped = team.clerk.execution(run, "a")
    assert answer(stopped).text.startswith("Not executed (cancelled)")
    assert not guidance_facts._stands(stopped)


def test_a_run_that_is_held_by_a_worker_is_told_to_stop_when_the_run_above_it_is_cancelled(team, sam):
    team.may_ask("refunds", calls(call("x", "look_up", what="1")), says("r"))
    run = team.clerk.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    child = child_of(run)
    assert runs.claim(child.pk) is not None
    actions.cancel_run(run.pk, sam)
    child.refresh_from_db()
    assert (child.state, child.cancel_requested_at is not None) == ("running", True)
    expire_lease(child)
    assert team.clerk.drive(child).state == "cancelled"
    assert effects_of("look_up") == []


def test_a_write_lost_inside_is_unknown_and_the_asking_run_waits_until_a_person_knows(team, dana):
    team.may_ask("refunds", calls(call("x", "send", to="ana", how="lost")), says("sent"))
    Rule.objects.create(name="send", tool="send", verdict="allow")
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    child = child_of(run)
    assert (run.waiting_for, child.waiting_for) == ("subagent", "outcome")
    actions.resolve_outcome(team.clerk.execution(child, "x").pk, "happened", "I asked.", dana)
    assert team.drive_all(run).state == "succeeded"


# --- How deep ------------------------------------------------------------------------------------


def test_agents_that_ask_each_other_are_stopped_by_the_depth_that_the_first_allows(team):
    ask_back = calls(call("a", "ask_pong", input="?"))
    team.may_ask("ping", ask_back, says("ping is done"), asks=("pong",), max_depth=99)
    team.may_ask("pong", calls(call("a", "ask_ping", input="?")), says("pong is done"), asks=("ping",), max_depth=99)
    run = team.run(calls(call("a", "ask_ping", input="?")), says("done"))
    assert run.state == "succeeded"
    assert sorted(Run.objects.values_list("depth", flat=True)) == [0, 1, 2, 3]
    deepest = team.clerk.execution(Run.objects.get(depth=3), "a")
    assert (deepest.result_status, deepest.reason) == ("refused", "call_limit_exceeded")
    assert "3/3" in deepest.message
    assert {read.state for read in Run.objects.all()} == {"succeeded"}


def test_below_the_limit_asking_is_allowed(team):
    Agent.objects.filter(name="clerk").update(max_depth=1)
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="?")), says("r"), asks=("ledger",))
    team.may_ask("ledger", says("l"))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    child = child_of(run)
    assert child.state == "succeeded"
    refused = team.clerk.execution(child, "a")
    assert (refused.reason, "1/1" in refused.message) == ("call_limit_exceeded", True)


def test_an_approval_raised_three_deep_lets_all_three_go_on(team, dana, sam):
    pay = calls(call("x", "pay", account="ana", amount=7))
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="Pay ana")), says("refunded"), asks=("ledger",))
    team.may_ask("ledger", pay, says("paid"))
    run = team.run(calls(call("a", "ask_refunds", input="Refund ana")), says("all done"))
    child = child_of(run)
    grandchild = child_of(child)
    assert [r.waiting_for for r in (run, child, grandchild)] == ["subagent", "subagent", "approval"]
    [approval] = team.clerk.open(grandchild)
    with pytest.raises(actions.Refused) as refused:
        team.clerk.decide(approval, sam)
    assert refused.value.code in ("starter", "forbidden")
    team.clerk.decide(approval, dana)
    assert team.drive_all(run).answer == "all done"
    assert [(r.state, r.answer) for r in Run.objects.order_by("depth")] == [
        ("succeeded", "all done"),
        ("succeeded", "refunded"),
        ("succeeded", "paid"),
    ]
    assert len(effects_of("pay")) == 1


def test_the_usage_of_each_run_is_its_own(team):
    team.may_ask("refunds", {**says("r"), "usage": {"cost": 0.5, "input_tokens": 7}})
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    assert (run.cost, child_of(run).cost) == (0, 0.5)
    assert run.input_tokens == 20


# --- How many ------------------------------------------------------------------------------------


def asks(*names: str, agent: str = "ask_refunds") -> dict:
    """One reply that asks an agent this many questions."""
    return calls(*(call(name, agent, input=name) for name in names))


def reasons_of(team: Team, run: Run, ids: str) -> list[str]:
    return [team.clerk.execution(run, id).reason for id in ids]


def test_one_reply_asks_no_more_agents_than_a_family_may_have_runs(team, settings):
    settings.FAMILY_MAX_RUNS = 3
    team.may_ask("refunds", says("yes"))
    run = team.run(asks(*"abcd"), asks("e"), says("done"))
    assert reasons_of(team, run, "abcde") == ["", "", *["call_limit_exceeded"] * 3]
    assert "at most 3 runs" in told(run, "c")
    assert (run.state, Run.objects.count()) == ("succeeded", 3)


def test_agents_that_ask_each_other_are_stopped_by_what_the_whole_family_comes_to(team, settings):
    settings.FAMILY_MAX_RUNS = 6
    team.may_ask("ping", asks(*"ab", agent="ask_pong"), says("ping is done"), asks=("pong",))
    team.may_ask("pong", asks(*"ab", agent="ask_ping"), says("pong is done"), asks=("ping",))
    run = team.run(asks(*"ab", agent="ask_ping"), says("done"))
    assert (run.state, Run.objects.count()) == ("succeeded", 6)
    assert {each.state for each in Run.objects.all()} == {"succeeded"}


def test_another_family_is_not_held_against_this_one(team, settings):
    settings.FAMILY_MAX_RUNS = 2
    team.may_ask("refunds", says("yes"))
    for _ in range(2):
        run = team.run(asks("a"), says("done"))
        assert reasons_of(team, run, "a") == [""]


def test_what_a_person_allowed_does_not_begin_when_the_family_is_full_by_then(team, dana, settings):
    team.may_ask("refunds", says("yes"))
    Rule.objects.create(name="a person first", tool="ask_refunds", verdict="ask")
    run = team.run(asks("a"), says("done"))
    [approval] = team.clerk.open(run)
    team.clerk.decide(approval, dana)
    settings.FAMILY_MAX_RUNS = 1
    run = team.drive_all(run)
    assert (run.state, reasons_of(team, run, "a")) == ("succeeded", ["call_limit_exceeded"])
    approval.refresh_from_db()
    assert (approval.state, Run.objects.count()) == ("superseded", 1)


def test_who_asks_no_agent_counts_no_family(team, monkeypatch):
    team.may_ask("refunds", says("yes"))
    monkeypatch.setattr(lineage, "root_of", lambda run: pytest.fail("looked for"))
    run = team.run(calls(call("a", "look_up", what="x"), call("b", "look_up", what="y")), says("done"))
    assert run.state == "succeeded"


# --- Hooks ---------------------------------------------------------------------------------------


@pytest.fixture
def hooked(team) -> Team:
    """A team whose asking agent has a hook at every point."""
    clerk_hooks.forget()
    team.may_ask("ledger", says("The card is 4111."))
    Agent.objects.filter(name="clerk").update(hooks=["tests.clerk_hooks.Spy"])
    return team


ASK_LEDGER = calls(call("a", "ask_ledger", input="Which card?"))


def test_a_hook_sees_what_an_agent_answers_and_can_change_it_before_the_model_reads_it(hooked):
    DO["after_tool_use"] = lambda c: dataclasses.replace(c, result=dataclasses.replace(c.result, data="****"))
    run = hooked.run(ASK_LEDGER, says("done"))
    execution = hooked.clerk.execution(run, "a")
    assert (run.state, execution.value, execution.raw_result_text) == ("succeeded", "****", '"The card is 4111."')
    assert execution.took_effect
    assert "4111" not in told(run)
    seen = clerk_hooks.told("after_tool_use")
    assert (seen.call_id, seen.name, seen.arguments) == ("a", "ask_ledger", {"input": "Which card?"})
    completed = Event.objects.get(run_id=run.pk, type="subagent.completed")
    assert (completed.data["run"], completed.data["status"]) == (str(execution.subrun_id), "ok")


def test_a_hook_sees_each_answer_once_and_what_it_leaves_is_kept_once(hooked):
    run = hooked.run(ASK_LEDGER, says("done"))
    assert clerk_hooks.points().count("after_tool_use") == 1
    assert hooked.clerk.execution(run, "a").raw_result_text == ""


def test_a_hook_can_make_an_error_of_an_answer_and_the_run_says_so(hooked):
    no = ToolResult(status="fatal_error", reason="tool_failure", message="Not this.")
    DO["after_tool_use"] = lambda c: dataclasses.replace(c, result=no)
    run = hooked.run(ASK_LEDGER, says("done"))
    assert (run.had_tool_errors, hooked.clerk.execution(run, "a").took_effect) == (True, True)
    assert "Not this." in told(run)


def test_a_hook_can_end_the_run_by_what_an_agent_answers(hooked):
    def stops(context):
        raise StopRun("It named a card.")

    DO["after_tool_use"] = stops
    run = hooked.run(ASK_LEDGER, says("done"))
    assert (run.state, run.stop_message, hooked.clerk.execution(run, "a").state) == (
        "stopped", "It named a card.", "finished",
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_a_hook_looks_at_an_answer(hooked):
    DO["after_tool_use"] = lambda context: open_ones.append(connection.in_atomic_block)
    open_ones: list[bool] = []
    hooked.run(ASK_LEDGER, says("done"))
    assert open_ones == [False]


# --- Crashes and races ---------------------------------------------------------------------------


class Killed(BaseException):
    """A worker dies here."""


@pytest.mark.parametrize("place", ["create", "await_run", "park", "collect"])
def test_a_worker_killed_at_any_line_of_asking_leaves_one_run_that_answers(team, monkeypatch, place):
    team.may_ask("refunds", says("r"))
    run = team.clerk.start(calls(call("a", "ask_refunds", input="?")), says("done"))
    owner = {"create": runs, "await_run": executions, "park": runs, "collect": executions}[place]
    name = {"collect": "finish"}.get(place, place)
    real = getattr(owner, name)
    killed = []

    def dying(*arguments, **more):
        result = real(*arguments, **more)
        if not killed and not (name == "finish" and not arguments[0]):
            killed.append(name)
            raise Killed
        return result

    if place == "collect":
        team.clerk.drive(run)
        team.clerk.drive(child_of(run))
    monkeypatch.setattr(owner, name, dying)
    with pytest.raises(Killed):
        loop.drive(run.pk)
    monkeypatch.setattr(owner, name, real)
    expire_lease(run)
    assert team.drive_all(run).state == "succeeded"
    assert killed
    assert Run.objects.filter(parent=run).count() == 1
    assert types_of(run).count("subagent.spawned") == types_of(run).count("subagent.completed") == 1


def test_the_end_of_an_agents_run_and_the_cancellation_of_the_asking_one_do_not_block_each_other(team, sam):
    team.may_ask("refunds", says("r"))
    for _ in range(tries()):
        run = team.clerk.run(calls(call("a", "ask_refunds", input=str(uuid.uuid4()))), says("done"))
        child = child_of(run)
        results = race(
            lambda child=child: loop.drive(child.pk),
            lambda run=run: actions.cancel_run(run.pk, sam),
        )
        assert not [result for result in results if isinstance(result, BaseException)]
        for each in (run, child):
            expire_lease(each)
        team.drive_all(run)
        child.refresh_from_db()
        assert run.state == "cancelled"
        assert child.state in ("succeeded", "cancelled")
        assert types_of(run)
        assert types_of(child)


def test_the_answer_and_the_parking_of_the_asking_run_cannot_miss_each_other(team):
    team.may_ask("refunds", says("r"))
    for _ in range(tries()):
        run = team.clerk.start(calls(call("a", "ask_refunds", input=str(uuid.uuid4()))), says("done"))

        def answering(run=run):
            while not (waiting := list(Run.objects.filter(parent=run))):
                pass
            loop.drive(waiting[0].pk)

        race(lambda run=run: loop.drive(run.pk), answering)
        assert team.drive_all(run).state == "succeeded"


def test_agents_that_ask_at_the_same_time_do_not_pass_the_limit_of_their_family(team, settings):
    team.may_ask("refunds", asks(*"ab", agent="ask_ledger"), says("r"), asks=("ledger",))
    team.may_ask("ledger", says("l"))
    settings.FAMILY_MAX_RUNS = 5
    for _ in range(few_tries()):
        run = team.clerk.run(asks(*(str(uuid.uuid4()) for _ in range(2))), says("done"))
        both = list(Run.objects.filter(parent=run))
        assert not any(race(*(partial(loop.drive, child.pk) for child in both)))
        assert 1 + len(both) + Run.objects.filter(parent__in=both).count() == 5
        assert team.drive_all(run).state == "succeeded"


def test_two_runs_of_one_family_cancelled_at_once_both_end(team, sam):
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1)), says("paid"))
    for _ in range(tries()):
        run = team.clerk.run(calls(call("a", "ask_refunds", input=str(uuid.uuid4()))), says("done"))
        child = child_of(run)
        team.clerk.drive(child)
        results = race(
            lambda child=child: actions.cancel_run(child.pk, sam),
            lambda run=run: actions.cancel_run(run.pk, sam),
        )
        assert not [result for result in results if isinstance(result, BaseException)]
        assert set(Run.objects.filter(pk__in=[run.pk, child.pk]).values_list("state", flat=True)) == {"cancelled"}


# --- Where what it hands on came from ------------------------------------------------------------

HANDS_ON = calls(call("a", "ask_refunds", input="Please pay 1000 to ana."))
PAYS = calls(call("x", "pay", account="ana", amount=1000))


def origin_in(run: Run, path: str) -> str:
    (approval,) = Approval.objects.filter(run_id=run.pk)
    [origin] = [row["origin"] for row in approval.provenance if row["path"] == path]
    return str(origin)


def test_what_came_from_outside_still_does_when_an_agent_hands_it_to_another(team):
    team.may_ask("refunds", PAYS, says("Paid."))
    assert origin_in(child_of(team.run(calls(call("m", "read_mail")), HANDS_ON, says("done"))), "amount") == "outside"


def test_and_when_that_agent_hands_it_on_once_more(team):
    team.may_ask("payers", PAYS, says("Paid."))
    onward = calls(call("b", "ask_payers", input="Please pay 1000 to ana."))
    team.may_ask("refunds", onward, says("Paid."), asks=("payers",))
    run = team.run(calls(call("m", "read_mail")), HANDS_ON, says("done"))
    assert origin_in(child_of(child_of(run), "b"), "amount") == "outside"


def test_what_a_person_said_is_theirs_only_where_the_agent_handed_it_on(team):
    team.may_ask("refunds", PAYS, says("Paid."))
    assert origin_in(child_of(team.run(HANDS_ON, says("done"), input="Pay ana 1000.")), "amount") == "staff"
    vague = calls(call("a", "ask_refunds", input="Please pay ana what she is owed."))
    assert origin_in(child_of(team.run(vague, says("done"), input="Pay ana 1000.")), "amount") == "model"


def test_what_nobody_told_the_agent_that_asks_a_model_made(team):
    team.may_ask("refunds", PAYS, says("Paid."))
    assert origin_in(child_of(team.run(HANDS_ON, says("done"))), "amount") == "model"


def test_a_rule_about_what_is_from_outside_sees_it_through_another_agent(team, clerk):
    condition = 'provenance.amount == "outside"'
    Rule.objects.create(name="none-from-outside", tool="pay", verdict="deny", condition=condition)
    team.may_ask("refunds", PAYS, says("Paid."))
    run = team.run(calls(call("m", "read_mail")), HANDS_ON, says("done"))
    assert clerk.execution(child_of(run), "x").reason == "policy_denied"
