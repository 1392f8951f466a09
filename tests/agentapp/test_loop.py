"""What a run does next: limits, errors of the model, leases, endings."""

import threading
import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from celery.signals import worker_shutting_down
from django.utils import timezone

from agentapp import actions, concluding, draining, executions, loop, runs, tasks
from agentapp.drivers.base import ModelError
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.history import BrokenHistory
from agentapp.models import Agent, Run, Spending, Tool
from agentapp.sweep import sweep
from agentapp.tools.base import tool
from approvals.clock import Now
from approvals.models import Approval, Event, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of, note
from tests.conftest import call, calls, says


def test_a_second_nudge_finds_nothing_to_do(clerk):
    run = clerk.run(says("done"))
    events = Event.objects.filter(run_id=run.pk).count()
    assert loop.drive(run.pk) is None
    assert Event.objects.filter(run_id=run.pk).count() == events


def test_a_nudge_for_a_run_that_is_not_there_does_nothing(clerk):
    assert loop.drive(uuid.uuid4()) is None


def test_a_run_held_by_a_live_lease_is_left_alone(clerk):
    run = clerk.start(says("done"))
    assert runs.claim(run.pk) is not None
    assert loop.drive(run.pk) is None


def test_a_run_whose_lease_ran_out_is_taken_over(clerk):
    run = clerk.start(says("done"))
    runs.claim(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert run.pk in sweep()
    assert clerk.drive(run).state == "succeeded"


def test_a_run_stops_at_its_step_limit_and_says_so(clerk):
    Agent.objects.update(max_steps=2)
    steps = [calls(call(f"c{n}", "look_up", what=str(n))) for n in range(5)]
    run = clerk.run(*steps)
    assert (run.state, run.stop_reason, run.step_count) == ("stopped", "steps_limit", 2)
    assert "2/2" in run.stop_message


def test_a_run_stops_at_its_token_limit(clerk):
    Agent.objects.update(max_tokens=25)
    run = clerk.run(*[calls(call(f"c{n}", "look_up", what=str(n))) for n in range(5)])
    assert (run.state, run.stop_reason) == ("stopped", "token_limit")


def test_a_run_stops_before_a_step_that_would_pass_its_cost_limit(clerk):
    Agent.objects.update(max_cost=Decimal("0.02"))
    dear = [{**calls(call(f"c{n}", "look_up", what=str(n))), "usage": {"cost": 0.015}} for n in range(5)]
    run = clerk.run(*dear)
    assert (run.state, run.stop_reason, run.cost) == ("stopped", "cost_limit", Decimal("0.015"))


def test_a_run_keeps_the_configuration_it_was_started_with(clerk):
    run = clerk.start(says("done"))
    Agent.objects.update(max_steps=0, instructions="Be careless.")
    assert clerk.drive(run).state == "succeeded"
    run.refresh_from_db()
    assert run.agent_snapshot["instructions"] == "Be exact."


def test_a_model_that_says_nothing_fails_the_run(clerk):
    run = clerk.run(says("  "))
    assert (run.state, run.stop_reason) == ("failed", "error")


def test_a_script_that_is_too_short_fails_the_run_and_says_where(clerk):
    run = clerk.run(calls(call("a", "look_up", what="x")))
    assert run.state == "failed"
    assert "step 2" in run.stop_message


def test_a_model_error_that_may_pass_is_tried_again_from_the_queue(clerk, monkeypatch):
    run = clerk.start(says("done"))
    real = ScriptedDriver.next_step
    failures = [ModelError("busy", retryable=True, retry_after=0)]

    def sometimes(self, state):
        if failures:
            raise failures.pop()
        return real(self, state)

    monkeypatch.setattr(ScriptedDriver, "next_step", sometimes)
    assert loop.drive(run.pk) == loop.Again(0)
    run.refresh_from_db()
    assert (run.state, run.model_failures) == ("queued", 1)
    assert clerk.drive(run).state == "succeeded"
    assert run.model_failures == 0


def test_a_model_that_keeps_failing_fails_the_run_after_the_last_attempt(clerk, monkeypatch, settings):
    settings.MODEL_ATTEMPTS = 2

    def never(self, state):
        raise ModelError("busy", retryable=True, retry_after=0)

    monkeypatch.setattr(ScriptedDriver, "next_step", never)
    run = clerk.run(says("done"))
    assert (run.state, run.stop_reason, run.stop_source) == ("failed", "retry_limit", "model")
    assert run.stop_message == "Retry limit reached: 2/2 attempts at the model failed. busy"
    ended = Event.objects.get(run_id=run.pk, type="run.failed")
    assert ended.data["context"] == {"code": "error", "current": 2, "max": 2}


def test_a_model_error_that_will_not_pass_fails_the_run_at_once(clerk, monkeypatch):
    def never(self, state):
        raise ModelError("no such model", retryable=False)

    monkeypatch.setattr(ScriptedDriver, "next_step", never)
    run = clerk.run(says("done"))
    assert (run.state, run.stop_reason, run.stop_message) == ("failed", "error", "no such model")


@pytest.mark.parametrize(("ask", "state"), [("cancel_run", "cancelled"), ("pause_run", "paused")])
def test_what_a_person_asks_for_while_the_model_fails_does_not_wait_for_the_next_attempt(
    clerk, sam, monkeypatch, ask, state
):
    run = clerk.start(says("never said"))

    def asked_meanwhile(self, request):
        getattr(actions, ask)(run.pk, sam)
        raise ModelError("busy", retryable=True, retry_after=600)

    monkeypatch.setattr(ScriptedDriver, "next_step", asked_meanwhile)
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.lease_token) == (state, None)
    assert run.answer == ""


def test_what_a_model_took_counts_though_its_run_was_cancelled_while_it_thought(clerk, sam, monkeypatch):
    Agent.objects.update(max_daily_cost=5)
    run = clerk.start({"text": "never said", "usage": {"input_tokens": 7, "cost": 0.015}})
    real = ScriptedDriver.next_step

    def cancelled_meanwhile(self, request):
        actions.cancel_run(run.pk, sam)
        return real(self, request)

    monkeypatch.setattr(ScriptedDriver, "next_step", cancelled_meanwhile)
    run = clerk.drive(run)
    assert (run.state, run.step_count, run.input_tokens, run.cost) == ("cancelled", 0, 7, Decimal("0.015"))
    assert Spending.objects.get().cost == Decimal("0.015")


def test_a_bug_in_the_runtime_ends_the_run_and_keeps_its_details_in_the_log(clerk, monkeypatch, caplog):
    def broken(self, state):
        raise KeyError("secret detail")

    monkeypatch.setattr(ScriptedDriver, "next_step", broken)
    run = clerk.run(says("done"))
    assert run.state == "failed"
    assert "secret detail" not in run.stop_message
    assert "secret detail" in caplog.text


def test_a_run_that_no_worker_can_even_read_fails_instead_of_being_claimed_for_ever(clerk, sam):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)))
    broken = {name: value for name, value in run.agent_snapshot.items() if name != "tools"}
    Run.objects.filter(pk=run.pk).update(agent_snapshot=broken, wake_at=Now())
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.stop_reason, run.lease_token) == ("failed", "error", None)
    assert "KeyError" in run.stop_message
    assert (clerk.execution(run, "a").state, clerk.open(run)) == ("cancelled", [])


@pytest.mark.parametrize("error", [KeyError("a bug"), BrokenHistory("out of order")])
def test_a_worker_that_fails_after_it_has_lost_the_run_stops_quietly(clerk, monkeypatch, caplog, error):
    run = clerk.start(says("never said"))
    other = uuid.uuid4()

    def lost_meanwhile(state):
        Run.objects.filter(pk=run.pk).update(lease_token=other)
        raise error

    monkeypatch.setattr(loop, "admit_agent", lost_meanwhile)
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.lease_token) == ("running", other)
    assert f"Stopped driving {run.pk}" in caplog.text


def test_a_time_slice_that_is_used_up_gives_the_worker_back(clerk, settings):
    settings.TIME_SLICE_SECONDS = 0
    run = clerk.start(calls(call("a", "look_up", what="x")), says("done"))
    assert loop.drive(run.pk) == loop.Again()
    run.refresh_from_db()
    assert (run.state, run.lease_token) == ("queued", None)


def test_a_worker_that_is_told_to_end_finishes_its_step_and_leaves_the_run_to_another(clerk, monkeypatch):
    run = clerk.start(calls(call("a", "look_up", what="x")), calls(call("b", "look_up", what="y")), says("done"))
    finish = executions.finish

    def told_meanwhile(outcomes):
        draining.begun.set()
        finish(outcomes)

    monkeypatch.setattr(draining, "begun", threading.Event())
    monkeypatch.setattr(executions, "finish", told_meanwhile)
    assert loop.drive(run.pk) == loop.Again()
    run.refresh_from_db()
    assert (run.state, run.lease_token, run.step_count) == ("queued", None, 1)
    assert Event.objects.get(type="run.released").data["reason"] == "its worker is told to end"
    draining.begun.clear()
    monkeypatch.setattr(executions, "finish", finish)
    assert clerk.drive(run).state == "succeeded"


@pytest.fixture
def told_to_end(clerk, offer, monkeypatch):
    """A tool, `copy`, in whose first call the worker is told to end. Set once the next worker has the run."""

    @tool(effect="reversible")
    def copy(what: str) -> str:
        """Copy something."""
        note("copy", what=what)
        if len(effects_of("copy")) == 1:
            draining.begun.set()
        return what

    monkeypatch.setattr(draining, "begun", threading.Event())
    offer(copy)
    return draining.begun


@pytest.mark.parametrize("decided_by", ["a rule", "a person"])
def test_a_worker_that_is_told_to_end_in_a_call_begins_no_other_of_the_step(clerk, dana, told_to_end, decided_by):
    if decided_by == "a rule":
        Rule.objects.create(name="copies", tool="copy", verdict="allow")
    run = clerk.start(calls(call("a", "copy", what="x"), call("b", "copy", what="y")), says("done"))
    if decided_by == "a person":
        assert loop.drive(run.pk) is None
        for approval in clerk.open(run):
            clerk.decide(approval, dana)
    assert loop.drive(run.pk) == loop.Again()
    run.refresh_from_db()
    first, second = clerk.execution(run, "a"), clerk.execution(run, "b")
    assert (run.state, run.lease_token, effects_of("copy")) == ("queued", None, [{"what": "x"}])
    assert (first.state, second.state in ("ready", "waiting"), second.attempts) == ("finished", True, 0)
    assert Event.objects.get(run_id=run.pk, type="run.released").data["reason"] == "its worker is told to end"
    told_to_end.clear()
    assert (clerk.drive(run).state, effects_of("copy")) == ("succeeded", [{"what": "x"}, {"what": "y"}])


def test_of_reads_that_run_side_by_side_it_leaves_those_whose_turn_has_not_come(clerk, told_to_end, settings):
    settings.PARALLEL_READS = 1
    Tool.objects.filter(name="copy").update(effect_class="read")
    names = ["x", "y", "z"]
    run = clerk.start(calls(*(call(name, "copy", what=name) for name in names)), says("done"))
    assert loop.drive(run.pk) == loop.Again()
    run.refresh_from_db()
    states = sorted(clerk.execution(run, name).state for name in names)
    assert (run.state, len(effects_of("copy")), states) == ("queued", 1, ["executing", "executing", "finished"])
    told_to_end.clear()
    assert clerk.drive(run).state == "succeeded"
    assert sorted(effect["what"] for effect in effects_of("copy")) == names
    assert {clerk.execution(run, name).result_status for name in names} == {"ok"}


def test_a_worker_that_is_told_to_end_while_a_model_answers_begins_none_of_its_calls(clerk, monkeypatch):
    run = clerk.start(calls(call("a", "look_up", what="x")), says("done"))
    decide = loop.decide

    def told_meanwhile(*args, **more):
        draining.begun.set()
        return decide(*args, **more)

    monkeypatch.setattr(draining, "begun", threading.Event())
    monkeypatch.setattr(loop, "decide", told_meanwhile)
    assert loop.drive(run.pk) == loop.Again()
    run.refresh_from_db()
    assert (run.state, run.step_count, effects_of("look_up")) == ("queued", 1, [])
    draining.begun.clear()
    monkeypatch.setattr(loop, "decide", decide)
    assert (clerk.drive(run).state, effects_of("look_up")) == ("succeeded", [{"what": "x"}])


def test_nor_does_it_begin_a_run_that_waited_for_one_of_its_threads(clerk, monkeypatch):
    run, nudged = clerk.start(says("done")), []
    monkeypatch.setattr(tasks, "nudge", lambda run_id, *_: nudged.append(run_id))
    monkeypatch.setattr(draining, "begun", threading.Event())
    worker_shutting_down.send(sender="a worker", sig="SIGTERM", how="Warm", exitcode=0)
    tasks.drive_run(str(run.pk))
    run.refresh_from_db()
    assert (run.state, run.started_at, nudged) == ("queued", None, [run.pk])


def test_an_expired_request_is_answered_with_no_one_decided(clerk):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)), says("ok"))
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run.pk in sweep()
    assert clerk.drive(run).state == "succeeded"
    execution = clerk.execution(run, "a")
    assert (execution.reason, effects_of("pay")) == ("approval_expired", [])
    assert "No one decided" in execution.message


def test_a_waiting_run_holds_no_lease_and_is_not_due(clerk):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)))
    assert (run.lease_token, run.wake_at) == (None, None)
    assert run.pk not in sweep()


def test_runs_of_one_conversation_see_what_was_said_before(clerk):
    first = clerk.run(says("Your order is on its way."), input="Where is my order?", conversation="ticket-1")
    second = clerk.run(says("Yes."), input="Are you sure?", conversation="ticket-1")
    assert first.conversation == second.conversation
    said = list(first.conversation.messages.order_by("seq").values_list("role", "content"))
    assert said == [
        ("user", "Where is my order?"),
        ("assistant", "Your order is on its way."),
        ("user", "Are you sure?"),
        ("assistant", "Yes."),
    ]


def test_an_answer_at_once_is_a_run_of_one_step(clerk):
    run = clerk.run(says("done"))
    assert (run.state, run.stop_reason, run.answer, run.step_count) == ("succeeded", "completed", "done", 1)
    assert not run.steps.get().executions.exists()


def test_a_run_that_is_cancelled_before_it_begins_asks_no_model(clerk, sam, monkeypatch):
    monkeypatch.setattr(ScriptedDriver, "next_step", lambda self, state: pytest.fail("was asked"))
    run = clerk.start(says("done"))
    actions.cancel_run(run.pk, sam)
    run = clerk.drive(run)
    assert (run.state, run.stop_reason, run.step_count) == ("cancelled", "user_requested", 0)


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_a_run_that_has_ended_cannot_be_cancelled(clerk, sam, state):
    run = clerk.run(says("done") if state == "succeeded" else says(""))
    actions.cancel_run(run.pk, sam)
    run.refresh_from_db()
    assert run.state == state


@pytest.mark.parametrize(
    ("reply", "ended"),
    [(says("done"), ("succeeded", "done")), ({"text": ""}, ("failed", ""))],
    ids=["an answer", "nothing"],
)
def test_a_worker_that_dies_behind_the_last_step_leaves_a_run_that_ends_by_it(clerk, monkeypatch, reply, ended):
    run = clerk.start(reply)
    with monkeypatch.context() as patched:
        patched.setattr(concluding, "end_with_step", lambda state: None)
        patched.setattr(concluding, "end", lambda *_, **__: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert ((run.state, run.answer), run.step_count) == (ended, 1)


def test_an_answer_and_the_end_of_its_run_are_stored_together_or_not_at_all(clerk, monkeypatch):
    run = clerk.start(says("done"))
    with monkeypatch.context() as patched:
        patched.setattr(runs, "finish", lambda *_, **__: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    run.refresh_from_db()
    assert (run.state, run.step_count, run.steps.count()) == ("running", 0, 0)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert (run.state, run.answer, run.step_count) == ("succeeded", "done", 1)


def test_a_worker_that_dies_behind_the_last_round_leaves_its_partial_answer(clerk, monkeypatch):
    Agent.objects.update(max_iterations=1)
    run = clerk.start(calls(call("c", "look_up", what="x")), says("As far as I got."))
    with monkeypatch.context() as patched:
        patched.setattr(concluding, "end", lambda *_, **__: (_ for _ in ()).throw(clerk_tools.WorkerDies))
        with pytest.raises(clerk_tools.WorkerDies):
            clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert (run.state, run.answer, run.answer_is_partial, run.step_count) == ("stopped", "As far as I got.", True, 2)
