"""What a run may use up, and what then becomes of it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db.models import F

from agentapp import runs
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Agent, Run, ToolExecution
from approvals.models import Event
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def look(number: int):
    return calls(call(f"c{number}", "look_up", what=str(number)))


def test_an_agent_has_five_rounds_unless_told_otherwise(db):
    agent = Agent(name="new")
    assert (agent.max_iterations, agent.max_steps, agent.max_tokens, agent.max_seconds) == (5, 20, 32_768, 300)
    assert (agent.on_limit, agent.on_reject, agent.on_budget) == ("final_answer", "continue", "stop")


def test_out_of_rounds_the_model_answers_with_what_it_has_and_the_answer_is_marked(clerk):
    Agent.objects.update(max_iterations=2)
    run = clerk.run(look(1), look(2), says("As far as I got: two."))
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "steps_limit", "max_iterations")
    assert (run.answer, run.answer_is_partial) == ("As far as I got: two.", True)
    assert "2/2" in run.stop_message


def test_the_last_answer_is_asked_for_without_a_choice_of_tools(clerk, monkeypatch):
    Agent.objects.update(max_iterations=1)
    seen = []
    real = ScriptedDriver.next_step
    monkeypatch.setattr(ScriptedDriver, "next_step", lambda self, state: seen.append(state) or real(self, state))
    clerk.run(look(1), says("One."))
    assert [state.tool_choice for state in seen] == ["auto", "none"]


def test_calls_beyond_the_last_round_run_nothing_and_leave_no_answer(clerk):
    Agent.objects.update(max_iterations=1)
    run = clerk.run(look(1), look(2))
    assert (run.state, run.stop_reason, run.answer, run.answer_is_partial) == ("stopped", "steps_limit", "", False)
    assert list(ToolExecution.objects.values_list("reason", flat=True)) == ["", "tool_not_disclosed"]


def test_an_agent_may_be_told_to_stop_without_an_answer(clerk):
    Agent.objects.update(max_iterations=2, on_limit="stop")
    run = clerk.run(look(1), look(2), says("Never asked for."))
    assert (run.state, run.stop_reason, run.answer, run.step_count) == ("stopped", "steps_limit", "", 2)
    assert effects_of("look_up") == [{"what": "1"}, {"what": "2"}]


def test_an_answer_within_the_rounds_is_whole(clerk):
    Agent.objects.update(max_iterations=2)
    run = clerk.run(look(1), says("One."))
    assert (run.state, run.answer_is_partial) == ("succeeded", False)


def test_no_steps_allowed_means_that_no_model_is_asked(clerk, monkeypatch):
    Agent.objects.update(max_steps=0)
    monkeypatch.setattr(ScriptedDriver, "next_step", lambda self, state: pytest.fail("was asked"))
    run = clerk.run(says("done"))
    assert (run.state, run.stop_reason, run.step_count) == ("stopped", "steps_limit", 0)
    assert run.stop_source == "max_steps"


@pytest.mark.parametrize(("limit", "ended"), [(2, "stopped"), (3, "succeeded")])
def test_the_step_limit_counts_the_steps_that_were_taken(clerk, limit, ended):
    Agent.objects.update(max_steps=limit)
    assert clerk.run(look(1), look(2), says("done")).state == ended


@pytest.mark.parametrize("limit", ["max_steps", "max_iterations"])
def test_the_record_of_a_limit_says_what_was_used_and_how_much_there_is(clerk, limit):
    Agent.objects.update(**{limit: 2}, on_limit="stop")
    run = clerk.run(look(1), look(2), says("Never asked for."))
    ended = Event.objects.get(run_id=run.pk, type="run.stopped")
    assert ended.data["context"] == {"current": 2, "max": 2}


def test_a_finish_reason_can_stop_the_run(clerk):
    Agent.objects.update(finish_reasons=["tool_call"])
    run = clerk.run(look(1), says("done"))
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "finish_reason", "finish_reasons")
    assert ToolExecution.objects.get().result_status == "ok"


def test_a_run_stops_when_its_time_is_used_up(clerk):
    Agent.objects.update(max_seconds=100)
    run = clerk.start(says("done"))
    Run.objects.update(worked_seconds=100)
    run = clerk.drive(run)
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "time_limit", "max_seconds")


def test_waiting_for_people_takes_no_time(clerk, dana):
    Agent.objects.update(max_seconds=3600)
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    worked = run.worked_seconds
    Run.objects.update(claimed_at=F("claimed_at") - timedelta(days=1))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    assert run.state == "succeeded"
    assert worked <= run.worked_seconds < 3600


def test_the_time_of_every_worker_that_held_a_run_is_added_up(clerk):
    run = clerk.start(says("done"))
    for _ in range(2):
        claimed = runs.claim(run.pk)
        Run.objects.update(claimed_at=F("claimed_at") - timedelta(seconds=100))
        runs.release(claimed, claimed.lease_token, "its time slice is over")
    run.refresh_from_db()
    assert 200 <= run.worked_seconds < 260


def test_the_cost_of_a_run_is_looked_at_before_the_act(clerk):
    Agent.objects.update(max_cost=Decimal("0.025"))
    run = clerk.run(*[{**look(n), "usage": {"cost": 0.01}} for n in range(5)])
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "cost_limit", "max_cost")
    assert run.cost == Decimal("0.02")
    assert "would cost about $0.0100" in run.stop_message


def test_an_answer_that_was_cut_off_is_kept_as_a_partial_one(clerk):
    Agent.objects.update(finish_reasons=["stop"])
    run = clerk.run(says("As far as the reply went"))
    assert (run.state, run.stop_reason) == ("stopped", "finish_reason")
    assert (run.answer, run.answer_is_partial) == ("As far as the reply went", True)
