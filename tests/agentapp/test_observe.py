"""Watching runs: what is delivered, when, to whom; and that watching changes nothing."""

import contextlib
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import loop, observe
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.models import Agent, Run
from approvals import ledger
from approvals.models import Event
from tests import clerk_hooks
from tests.clerk_hooks import DO
from tests.conftest import call, calls, says


@pytest.fixture
def taps():
    """Subscribe within a test; the subscription ends with the test."""
    ends = []

    def tap(type=""):
        seen = []
        ends.append(observe.on_event(type, seen.append) if type else observe.wiretap(seen.append))
        return seen, ends[-1]

    yield tap
    for end in ends:
        end()
    assert not observe.is_watched()
    assert ledger.listeners == []


def names(seen):
    return [observed.type for observed in seen]


def test_a_wiretap_hears_every_event_of_the_ledger_in_its_order(clerk, taps):
    seen, _ = taps()
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    stored = list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("type", flat=True))
    assert [type for type in names(seen) if type in set(stored)] == stored
    assert {observed.run_id for observed in seen} == {str(run.pk)}


def test_it_hears_what_is_never_stored_in_the_order_of_the_loop(clerk, taps):
    seen, _ = taps()
    clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    step = ["step.started", "inference.started", "inference.completed", "tokens.reported"]
    unstored = [type for type in names(seen) if type.split(".")[0] not in ("run", "tool_call")]
    assert [type for type in unstored if type != "step.recorded"] == [
        "execution.started", *step, "step.completed", "continuation.evaluated",
        *step, "step.completed", "continuation.evaluated", "execution.stopped", "execution.completed",
    ]  # fmt: skip


def test_both_events_of_an_inference_carry_one_id_and_what_hooks_made(clerk, taps):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    DO["before_inference_request"] = lambda c: replace(c, request=replace(c.request, instructions="Be brief."))
    DO["after_inference_response"] = lambda c: replace(c, reply=replace(c.reply, text="Short."))
    started, _ = taps("inference.started")
    completed, _ = taps("inference.completed")
    clerk.run(says("A long story."))
    assert started[0].data["inference"] == completed[0].data["inference"] != ""
    assert started[0].data["request"].instructions == "Be brief."
    assert completed[0].data["reply"].text == "Short."


def test_every_hook_that_ran_is_told_with_what_it_changed(clerk, taps):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.ten", "tests.clerk_hooks.Spy"])
    seen, _ = taps("hook.executed")
    clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    at_calls = [observed.data for observed in seen if observed.data["point"] == "before_tool_use"]
    assert [(data["hook"], data["changed"]) for data in at_calls] == [
        ("tests.clerk_hooks.ten", ["arguments"]), ("tests.clerk_hooks.Spy", []),
    ]  # fmt: skip
    assert len(seen) == len(clerk_hooks.SEEN) + 1


def test_a_hook_that_stops_the_run_or_breaks_is_told_too(clerk, taps):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    executed, _ = taps("hook.executed")
    steps = {name: taps(name)[0] for name in ("step.started", "step.completed")}

    def breaks(context):
        raise ValueError

    DO["before_step"] = breaks
    clerk.run(says("done"))
    assert {"point": "before_step", "raised": "HookFailed"}.items() <= executed[1].data.items()
    assert (len(steps["step.started"]), len(steps["step.completed"])) == (1, 0)


def test_a_step_in_which_the_driver_broke_down_is_told_to_be_over_once(clerk, taps, monkeypatch):
    def breaks(self, state):
        raise KeyError

    monkeypatch.setattr(ScriptedDriver, "next_step", breaks)
    steps = {name: taps(name)[0] for name in ("step.started", "step.completed")}
    run = clerk.run(says("done"))
    assert (run.state, run.steps.get().error) == ("failed", "error")
    assert (len(steps["step.started"]), len(steps["step.completed"])) == (1, 1)


def test_a_contract_that_was_broken_is_told(clerk, taps):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    DO["before_step"] = lambda c: replace(c, step=9)
    seen, _ = taps("hook.contract_violated")
    clerk.run(says("done"))
    assert [dict(observed.data) for observed in seen] == [
        {"hook": "tests.clerk_hooks.Spy", "point": "before_step", "field": "step"}
    ]


@pytest.mark.parametrize(("reply", "state"), [("done", "succeeded"), ("", "failed")])
def test_the_end_is_told_once_with_the_final_state(clerk, taps, reply, state):
    stopped, _ = taps("execution.stopped")
    completed, _ = taps("execution.completed")
    failed, _ = taps("execution.failed")
    clerk.run(says(reply))
    assert [observed.data["state"] for observed in completed] == [state]
    assert len(stopped) == 1
    assert len(failed) == (state == "failed")


def test_the_start_and_the_end_of_a_tool_have_other_names_too_and_come_in_pairs(clerk, taps):
    starts, _ = taps("tool_start")
    ends, _ = taps("tool_end")
    run = clerk.run(calls(call("a", "look_up", what="x"), call("b", "fail", how="never")), says("done"))
    assert names(starts) == ["tool_call.started"] * 2
    assert names(ends) == ["tool_call.completed"] * 2
    executions = {str(clerk.execution(run, id).pk) for id in "ab"}
    assert {observed.data["execution"] for observed in starts} == executions
    assert {observed.data["execution"] for observed in ends} == executions


def test_a_blocked_call_is_told(clerk, taps):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    DO["before_tool_use"] = lambda c: replace(c, blocked=True)
    blocked, _ = taps("tool_call.blocked")
    starts, _ = taps("tool_start")
    clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    assert (len(blocked), len(starts)) == (1, 0)


def test_after_another_takes_over_only_the_other_hears(clerk, taps):
    first, end = taps()
    clerk.run(says("one"))
    heard = len(first)
    end()
    second, _ = taps()
    clerk.run(calls(call("a", "look_up", what="x")), says("two"))
    assert len(first) == heard
    assert {"tool_call.started", "tool_call.completed"} <= set(names(second))


def test_one_who_ends_twice_or_subscribes_twice_disturbs_nobody(clerk):
    seen = []
    ends = [observe.on_event("run.queued", seen.append) for _ in range(2)]
    ends[0]()
    ends[0]()
    clerk.start(says("done"))
    ends[1]()
    assert len(seen) == 1


def test_an_event_is_delivered_when_its_transaction_has_committed_and_not_before(clerk, taps):
    def stored(observed):
        found.append(Event.objects.filter(run_id=observed.run_id, type=observed.type).exists())

    found = []
    end = observe.on_event("run.queued", stored)
    clerk.start(says("done"))
    end()
    assert found == [True]


def test_what_was_rolled_back_is_never_told(clerk, taps):
    run = clerk.start(says("done"))
    seen, _ = taps()
    with contextlib.suppress(ZeroDivisionError), ledger.transaction():
        ledger.record(ledger.run_chain(run.pk), "run.imagined")
        raise ZeroDivisionError
    assert seen == []


def test_a_subscriber_that_raises_is_logged_and_changes_nothing(clerk, taps, caplog):
    def raises(observed):
        raise RuntimeError("the disk is full")

    end = observe.wiretap(raises)
    seen, _ = taps()
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    end()
    assert run.state == "succeeded"
    assert "run.succeeded" in names(seen)
    assert "the disk is full" in caplog.text


def test_what_a_subscriber_records_is_kept(clerk, taps):
    def records(observed):
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "watcher.heard", {"of": observed.type})

    end = observe.on_event("run.queued", records)
    clerk.start(says("done"))
    end()
    assert Event.objects.filter(type="watcher.heard").count() == 1


def test_watching_asks_the_database_nothing(clerk, taps):
    def statements():
        run = clerk.start(calls(call("a", "look_up", what="x")), says("done"))
        with CaptureQueriesContext(connection) as captured:
            loop.drive(run.pk)
        assert Run.objects.get(pk=run.pk).state == "succeeded"
        return len(captured)

    unwatched = statements()
    taps()
    assert statements() == unwatched
