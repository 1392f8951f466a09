"""A running tool learns that nobody waits for it any more."""

import pytest

from agentapp import actions, attempts, runs
from agentapp.cancellation import Cancellation
from agentapp.deadline import start
from agentapp.messages import ToolResult
from agentapp.models import Tool
from agentapp.tools.context import Cancelled
from approvals.models import Event, Rule
from tests import stopping_tools
from tests.conftest import call, calls, says
from tests.stopping_tools import DONE, LEARNT, STARTED

DIG = calls(call("d", "dig", about="x"))


@pytest.fixture(autouse=True)
def _short_leases(settings):
    """The keeper of the lease notices it, and looks three times per lease."""
    settings.LEASE_SECONDS = 1


def cancel_while_running(desk, run, sam):
    """Drive in a thread, cancel as soon as the tool is at work, and wait for the end."""
    driver = start(desk.drive, run)
    assert STARTED.wait(20)
    actions.cancel_run(run.pk, sam)
    driver.result(20)
    run.refresh_from_db()


def test_cancelling_reaches_a_read_that_is_running(desk, sam):
    run = desk.start(DIG, says("done"))
    cancel_while_running(desk, run, sam)
    execution = desk.execution(run, "d")
    assert (run.state, run.stop_reason) == ("cancelled", "user_requested")
    assert (execution.state, execution.reason) == ("finished", "cancelled")
    assert LEARNT.is_set()


def test_a_write_that_stops_when_told_to_says_that_nothing_happened(desk, sam):
    Rule.objects.create(name="wires", tool="wire", verdict="allow")
    run = desk.start(calls(call("w", "wire", about="x", how="stops")), says("done"))
    cancel_while_running(desk, run, sam)
    execution = desk.execution(run, "w")
    assert (run.state, execution.state, execution.reason, DONE) == ("cancelled", "finished", "cancelled", [])


def test_a_write_that_finishes_all_the_same_has_happened(desk, sam):
    Rule.objects.create(name="wires", tool="wire", verdict="allow")
    run = desk.start(calls(call("w", "wire", about="x", how="finishes")), says("done"))
    cancel_while_running(desk, run, sam)
    assert (run.state, desk.execution(run, "w").result_status, DONE) == ("cancelled", "ok", [("wire", "x")])


def test_a_write_that_does_not_know_is_shown_to_a_person(desk, sam):
    Rule.objects.create(name="wires", tool="wire", verdict="allow")
    run = desk.start(calls(call("w", "wire", about="x", how="unknown")), says("done"))
    cancel_while_running(desk, run, sam)
    assert (run.state, desk.execution(run, "w").state) == ("cancelled", "outcome_unknown")


def test_a_call_whose_deadline_has_passed_learns_that_it_was_left_behind(desk):
    Tool.objects.filter(name="dig").update(timeout_seconds=1)
    run = desk.run(DIG, says("done"))
    assert (run.state, desk.execution(run, "d").reason) == ("succeeded", "tool_timeout")
    assert LEARNT.wait(20)


def test_a_write_whose_deadline_has_passed_is_unknown_even_if_it_would_stop(desk):
    Rule.objects.create(name="wires", tool="wire", verdict="allow")
    Tool.objects.filter(name="wire").update(timeout_seconds=1)
    run = desk.run(calls(call("w", "wire", about="x", how="stops")), says("done"))
    assert (run.waiting_for, desk.execution(run, "w").state) == ("outcome", "outcome_unknown")
    assert desk.execution(run, "w").idempotency_key
    assert LEARNT.wait(20)


def test_a_worker_that_has_lost_its_lease_tells_its_tools(desk, monkeypatch):
    run = desk.start(DIG, says("done"))
    monkeypatch.setattr(runs, "renew", lambda run_id, token: False)
    driver = start(desk.drive, run)
    assert LEARNT.wait(20)
    driver.result(20)


def test_a_cancelled_run_makes_no_further_attempt():
    cancellation, made = Cancellation(), []

    def call_once(number):
        made.append(number)
        cancellation.tell()
        return ToolResult(status="retryable_error", message="busy")

    tried = attempts.until_answered(cancellation, range(1, 4), call_once)
    assert (made, tried.attempts) == ([1], 1)


def test_a_call_that_begins_after_the_word_has_it_already():
    cancellation = Cancellation()
    cancellation.tell()
    with cancellation.call() as event:
        assert event.is_set()


def test_what_a_tool_catches_does_not_include_being_told_to_stop():
    assert not issubclass(Cancelled, Exception)


def test_being_cancelled_counts_against_no_breaker(desk, sam):
    run = desk.start(DIG, says("done"))
    cancel_while_running(desk, run, sam)
    assert not Event.objects.filter(type__startswith="breaker.").exists()
    assert stopping_tools.STARTED.is_set()
