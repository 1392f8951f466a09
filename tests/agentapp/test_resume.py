"""What another worker finds: a run is its rows, and earlier work is neither lost nor repeated."""

from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from agentapp import actions, executor, runs, trace
from agentapp.compilers import compile_messages
from agentapp.models import Agent, Run, ToolExecution
from agentapp.state import RunState
from agentapp.tools.base import tool
from agentapp.transcript import load_steps
from approvals import ledger
from approvals.clock import Now
from approvals.models import Rule
from tests.clerk_tools import WorkerDies, effects_of
from tests.conftest import call, calls, says
from tests.rows import an_agent

PAID = {"usage": {"input_tokens": 10, "output_tokens": 5, "cost": 0.01}}


def pay(id: str, amount: int) -> dict[str, Any]:
    return call(id, "pay", account="ana", amount=amount)


def hand_over(run: Run) -> RunState:
    """The run as a worker gets it that has never seen it. Its lease expires again at once."""
    claimed = runs.claim(run.pk)
    assert claimed is not None
    state = RunState.load(claimed)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    return state


# --- Nothing is lost --------------------------------------------------------------------------------


def test_what_a_worker_has_in_hand_is_what_the_next_one_reads(clerk, offer, monkeypatch):
    @tool(effect="read")
    def nothing() -> None:
        """Finds nothing."""

    offer(nothing)
    Agent.objects.update(max_daily_cost=Decimal("7.25"), model_settings={"temperature": 0, "stop_sequences": ["ü"]})
    held = []
    real = RunState.load
    monkeypatch.setattr(RunState, "load", lambda run: held.append(real(run)) or held[-1])
    script = (
        {**calls(call("a", "look_up", what="x"), call("b", "nothing"), call("c", "fail", how="never")), **PAID},
        {**calls(pay("d", 5), text="Now I pay."), **PAID},
    )
    run = clerk.run(*script)
    (before,) = held
    Run.objects.update(wake_at=Now())
    after = hand_over(run)

    def counted(run: Run) -> tuple[Any, ...]:
        return run.pk, run.step_count, run.input_tokens, run.output_tokens, run.cost, run.agent_snapshot, run.input

    def steps(state: RunState) -> list[tuple[Any, ...]]:
        found = [rows.step for rows in state.steps]
        return [(s.pk, s.number, s.text, s.cost, s.disclosed_tools, s.started_at, s.finished_at) for s in found]

    def executions(state: RunState) -> list[tuple[Any, ...]]:
        found = [execution for rows in state.steps for execution in rows.executions]
        return [(e.pk, e.call_id, e.name, e.args, e.state, e.result_status, e.result_text, e.attempts) for e in found]

    assert counted(after.run) == counted(before.run)
    assert steps(after) == steps(before)
    assert executions(after) == executions(before)
    assert [execution.result_text for execution in after.steps[0].executions] == ['{"found": "x"}', "null", "null"]
    assert after.run.agent_snapshot["max_daily_cost"] == "7.250000"
    messages = [compile_messages(state.run, state.earlier, state.steps[:1]) for state in (before, after)]
    assert messages[0] == messages[1]


def test_reading_a_run_changes_nothing_about_it(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x"), pay("p", 5)))
    before = list(ToolExecution.objects.order_by("pk").values()), list(run.steps.order_by("pk").values())
    for _ in range(2):
        trace.steps_of(run)
        load_steps(run)
    assert (list(ToolExecution.objects.order_by("pk").values()), list(run.steps.order_by("pk").values())) == before


def test_a_runs_times_are_in_order_and_stay_when_others_take_it_over(clerk, dana):
    run = clerk.run(calls(pay("p", 5)), says("done"))
    first = Run.objects.values_list("created_at", "started_at").get(pk=run.pk)
    clerk.decide(clerk.open(run)[0], dana)
    run = clerk.drive(run)
    assert (run.created_at, run.started_at) == first
    paid = clerk.execution(run, "p")
    moments = [run.created_at, run.started_at, paid.proposed_at, paid.started_at, paid.finished_at, run.finished_at]
    assert all(isinstance(moment, datetime) and moment.tzinfo is not None for moment in moments)
    assert moments == sorted(moments)


def test_a_run_without_any_times_yet_is_read_like_any_other(sam, transactional_db):
    agent = an_agent()
    run = actions.start_run(actions.NewRun(agent=agent.name, input="Do it."), sam)
    assert (run.started_at, run.finished_at, run.wake_at, run.lease_until) == (None, None, None, None)
    assert (load_steps(run), list(trace.steps_of(run))) == ([], [])


# --- Nothing is done again ----------------------------------------------------------------------------


def test_what_ran_beside_a_call_that_waits_does_not_run_again_when_the_run_goes_on(clerk, dana, marco):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    step = calls(
        call("r1", "look_up", what="one"),
        call("l1", "label", text="red"),
        pay("p1", 1),
        call("r2", "look_up", what="two"),
        pay("p2", 2),
        call("l2", "label", text="blue"),
    )
    run = clerk.run(step, says("done"))
    for person in (dana, marco):
        assert run.waiting_for == "approval"
        for _ in range(3):  # superfluous nudges
            Run.objects.filter(pk=run.pk).update(wake_at=Now())
            clerk.drive(run)
        clerk.decide(clerk.open(run)[0], person)
        run = clerk.drive(run)
    assert run.state == "succeeded"
    assert [effect["what"] for effect in effects_of("look_up")] == ["one", "two"]
    assert [effect["text"] for effect in effects_of("label")] == ["red", "blue"]
    assert [effect["amount"] for effect in effects_of("pay")] == [1.0, 2.0]
    assert set(run.executions.values_list("attempts", flat=True)) == {1}


@pytest.mark.parametrize("stored", [1, 2, 3])
def test_a_worker_that_takes_over_behind_a_stored_result_runs_only_what_has_none(clerk, monkeypatch, stored):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    texts = ["a", "b", "c"]
    run = clerk.start(calls(*[call(text, "label", text=text) for text in texts]), says("done"))
    real = executor._run_begun

    def dying(*arguments: Any) -> None:
        real(*arguments)
        if len(effects_of("label")) == stored:
            raise WorkerDies

    with monkeypatch.context() as patched:
        patched.setattr(executor, "_run_begun", dying)
        with pytest.raises(WorkerDies):
            clerk.drive(run)
    assert [effect["text"] for effect in effects_of("label")] == texts[:stored]
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert clerk.drive(run).state == "succeeded"
    assert [effect["text"] for effect in effects_of("label")] == texts
    assert set(run.executions.values_list("attempts", flat=True)) == {1}


def test_only_the_calls_of_the_last_reply_are_dispatched(clerk, dana):
    run = clerk.run(calls(call("a", "look_up", what="x")), calls(pay("p", 5)), says("done"))
    # As if a call of an earlier reply had never been answered.
    ToolExecution.objects.filter(call_id="a").update(state="ready", result_status="", finished_at=None)
    clerk.decide(clerk.open(run)[0], dana)
    run = clerk.drive(run)
    assert (run.state, run.stop_source) == ("failed", "history")
    assert "'a'" in run.stop_message
    assert (len(effects_of("look_up")), len(effects_of("pay"))) == (1, 1)


# --- What was used can be read ------------------------------------------------------------------------


def test_which_tools_a_run_used_and_how_often_can_be_read_from_its_trace(clerk, dana):
    run = clerk.run(
        calls(call("a", "look_up", what="x"), call("b", "look_up", what="y"), call("c", "nothing_like_it")),
        calls(call("d", "look_up", what="z"), call("e", "fail", how="later"), pay("f", 5)),
        says("done"),
    )
    clerk.decide(clerk.open(run)[0], dana)
    run = clerk.drive(run)
    clerk.run(calls(call("a", "look_up", what="another run's")), says("done"))
    made = [execution for step in trace.steps_of(run) for execution in step.executions.all()]
    ran = Counter(execution.name for execution in made if execution.started_at is not None)
    assert ran == {"look_up": 3, "fail": 1, "pay": 1}
    assert Counter((execution.name, execution.result_status) for execution in made) == {
        ("look_up", "ok"): 3, ("nothing_like_it", "refused"): 1, ("fail", "retryable_error"): 1, ("pay", "ok"): 1,
    }  # fmt: skip
    assert next(execution.attempts for execution in made if execution.name == "fail") == 3
    proposed = ledger.Event.objects.filter(run_id=run.pk, type="tool_call.proposed")
    assert Counter(event.data["tool"] for event in proposed) == Counter(execution.name for execution in made)
