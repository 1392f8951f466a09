"""How often a call is tried, how long the waits between tries are, and what the record keeps of it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agentapp import actions, attempts, loop
from agentapp.answers import answer
from agentapp.cancellation import Cancellation
from agentapp.configuration_file import loading
from agentapp.messages import ToolResult
from agentapp.models import Agent, Breaker, Run, Tool, ToolExecution
from agentapp.tools.base import OutcomeUnknown, ToolContext, ToolError, tool
from approvals.models import Event, Rule
from tests import stopping_tools
from tests.clerk_tools import WorkerDies
from tests.conftest import call, calls, says

BUSY = ToolResult(status="retryable_error", message="busy", retry_after=0)


def trying(*results: ToolResult, most: int = 3) -> attempts.Tried:
    left = list(results)
    return attempts.until_answered(Cancellation(), range(1, most + 1), lambda number: left.pop(0))


def test_a_call_that_fails_twice_and_then_works_took_three_attempts():
    tried = trying(BUSY, BUSY, ToolResult(data=1))
    assert (tried.result.data, tried.attempts, len(tried.failures)) == (1, 3, 2)


def test_a_call_that_always_fails_says_how_often_it_was_tried():
    tried = trying(BUSY, BUSY, BUSY)
    assert (tried.attempts, tried.result.message) == (3, "It failed after 3 attempts. busy")


@pytest.mark.parametrize("status", ["fatal_error", "refused", "ok"])
def test_only_what_may_pass_is_tried_again(status):
    assert trying(ToolResult(status=status)).attempts == 1


def test_the_pause_doubles_from_one_second_to_a_minute_give_or_take_a_quarter():
    for failures, planned in [(1, 1), (2, 2), (3, 4), (6, 32)]:
        pauses = [attempts.pause(failures, None) for _ in range(200)]
        assert planned * 0.75 <= min(pauses) < planned < max(pauses) <= planned * 1.25
    assert max(attempts.pause(40, None) for _ in range(200)) == 60


@pytest.mark.parametrize(("asked", "seconds"), [(0, 0), (17, 17), (3600, 60), (-1, 0)])
def test_a_tool_that_says_when_is_heard_within_a_minute(asked, seconds):
    assert attempts.pause(1, asked) == seconds


def test_a_read_that_fails_once_is_answered_at_its_second_attempt(clerk, offer):
    made = []

    @tool(effect="read", trust="trusted_system", max_attempts=2)
    def flaky() -> str:
        """Works the second time."""
        made.append(len(made))
        if len(made) == 1:
            raise ToolError("busy", retryable=True, retry_after=0)
        return "here"

    offer(flaky)
    run = clerk.run(calls(call("a", "flaky")), says("done"))
    execution = clerk.execution(run, "a")
    assert (execution.result_status, execution.attempts, len(made)) == ("ok", 2, 2)
    assert answer(execution).text == "here"
    assert not run.had_tool_errors


def test_every_attempt_that_failed_is_an_event(clerk):
    run = clerk.run(calls(call("a", "fail", how="later")), says("done"))
    failed = Event.objects.filter(run_id=run.pk, type="tool_call.attempt_failed").order_by("seq")
    assert [event.data["attempt"] for event in failed] == [1, 2, 3]
    assert {event.data["reason"] for event in failed} == {"tool_failure"}
    assert "3 attempts" in answer(clerk.execution(run, "a")).text


def test_attempts_with_a_key_are_recorded_too(clerk):
    Rule.objects.create(name="syncs", tool="sync", verdict="allow")
    run = clerk.run(calls(call("a", "sync", text="x")), says("done"))
    failed = Event.objects.filter(run_id=run.pk, type="tool_call.attempt_failed").order_by("seq")
    assert [event.data["attempt"] for event in failed] == [1, 2]
    assert clerk.execution(run, "a").attempts == 3


def test_a_write_without_a_key_is_tried_once_however_often_it_may_be(desk):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    Tool.objects.filter(name="write").update(max_attempts=3)
    stopping_tools.BROKEN["write"] = stopping_tools.failing(retryable=True)
    run = desk.run(calls(call("a", "write", about="x")), says("done"))
    assert desk.execution(run, "a").attempts == 1


def approved_read(clerk, offer, dana, error):
    """A read that a rule has people approve, which fails once: how often it was tried, and its row."""
    made = []

    @tool(effect="read", trust="trusted_system", max_attempts=3)
    def flaky() -> str:
        """Works the second time."""
        made.append(len(made))
        if len(made) == 1:
            raise error
        return "here"

    offer(flaky)
    Rule.objects.create(name="looks", tool="flaky", verdict="ask")
    run = clerk.run(calls(call("a", "flaky")), says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    return len(made), clerk.execution(run, "a")


def test_a_read_that_people_approved_is_tried_as_often_as_any_read(clerk, offer, dana):
    tried, execution = approved_read(clerk, offer, dana, ToolError("busy", retryable=True, retry_after=0))
    assert (tried, execution.attempts, execution.result_status) == (2, 2, "ok")
    assert execution.approval.state == "used"


def test_an_approved_read_of_which_nobody_knows_what_happened_is_not_tried_again(clerk, offer, dana):
    tried, execution = approved_read(clerk, offer, dana, OutcomeUnknown("It went silent."))
    assert (tried, execution.attempts, execution.state) == (1, 1, "outcome_unknown")


STOPS = {
    "cancelled": lambda run, sam, mia: actions.cancel_run(run.pk, sam),
    "everything": lambda run, sam, mia: actions.engage_switch("all", "", "It does harm.", mia),
    "agent": lambda run, sam, mia: actions.engage_switch("agent", "clerk", "It does harm.", mia),
    "tool": lambda run, sam, mia: actions.engage_switch("tool", "insist", "It does harm.", mia),
}


def insisting(offer, effect, told):
    """A tool that fails every time it is called; `told` is called during the first."""
    made = []

    @tool(effect=effect, trust="trusted_system", idempotency="key", max_attempts=3)
    def insist(context: ToolContext) -> str:
        """Fail, until somebody is told."""
        made.append(context.attempt)
        if len(made) == 1:
            told()
        raise ToolError("busy", retryable=True, retry_after=0)

    offer(insist)
    Rule.objects.create(name="insists", tool="insist", verdict="allow")
    return made


@pytest.mark.parametrize("effect", ["read", "reversible"])
@pytest.mark.parametrize("how", STOPS)
def test_what_is_stopped_while_a_call_is_under_way_is_not_tried_again(clerk, offer, sam, mia, effect, how):
    made = insisting(offer, effect, lambda: STOPS[how](run, sam, mia))
    run = clerk.start(calls(call("a", "insist")), says("done"))
    run = clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (made, execution.attempts, execution.result_status) == ([1], 1, "retryable_error")


@pytest.mark.parametrize(("scope", "key"), [("agent", "other"), ("tool", "look_up")])
def test_what_stops_others_stops_no_attempt(clerk, offer, mia, scope, key):
    Agent.objects.create(name="other", model="scripted")
    made = insisting(offer, "reversible", lambda: actions.engage_switch(scope, key, "It does harm.", mia))
    clerk.run(calls(call("a", "insist")), says("done"))
    assert made == [1, 2, 3]


def test_whether_a_call_may_be_tried_again_is_asked_once_for_each_repeat_and_never_before_the_first():
    asked = []
    left = [BUSY, BUSY, ToolResult(data=1)]
    numbers = range(1, 4)
    attempts.until_answered(
        Cancellation(), numbers, lambda number: left.pop(0), stopped=lambda: bool(asked.append(len(left)))
    )
    assert asked == [2, 1]


# --- Of several attempts, one may have acted -----------------------------------------------------

WIRE = calls(call("a", "wire", account="ana"))

DID_NOTHING = {
    "busy": ToolError("nothing was sent", retryable=True, retry_after=0),
    "failed": ToolError("nothing was sent"),
    "refused": ToolError("nothing was sent", refused=True),
}


def wiring(offer, monkeypatch, *ends, effect="irreversible", **more):
    """A tool each of whose attempts ends as given, with an exception or a receipt. Returns the keys it receives."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_SECONDS", 0)
    left, keys = list(ends), []

    @tool(effect=effect, **{"idempotency": "key", "max_attempts": 3, "business_key": "wire {account}", **more})
    def wire(account: str, context: ToolContext) -> str:
        """Wire money."""
        keys.append(context.idempotency_key)
        if left and (end := left.pop(0)) is not None:
            raise end
        return "receipt"

    offer(wire)
    Rule.objects.create(name="wires", tool="wire", verdict="allow")
    return keys


def assert_nobody_knows(clerk, run, keys):
    """A person is asked, and neither this run nor another makes the call under a second key."""
    execution = clerk.execution(run, "a")
    assert (run.waiting_for, execution.state, execution.result_status) == ("outcome", "outcome_unknown", "")
    made = len(keys)
    other = clerk.run(WIRE, says("done"))
    assert clerk.execution(other, "a").reason == "idempotency_key_consumed"
    assert "nobody knows" in answer(clerk.execution(other, "a")).text
    assert (len(keys), len(set(keys))) == (made, 1)
    return execution


@pytest.mark.parametrize("how", DID_NOTHING)
def test_that_the_last_attempt_did_nothing_says_nothing_of_one_before_it_of_which_nobody_knows(
    clerk, offer, monkeypatch, how
):
    last = DID_NOTHING[how]
    keys = wiring(offer, monkeypatch, OutcomeUnknown("no answer came"), last, last)
    run = clerk.run(WIRE, WIRE, says("done"))
    execution = assert_nobody_knows(clerk, run, keys)
    assert execution.attempts == len(keys) == (3 if how == "busy" else 2)
    said = [(failure["reason"], failure["message"]) for failure in execution.failures]
    assert said[0] == ("outcome_unknown", "no answer came")
    assert all(reason != "outcome_unknown" and "nothing was sent" in message for reason, message in said[1:])
    assert Event.objects.filter(run_id=run.pk, type="tool_call.attempt_failed").count() == len(keys) == len(said)
    assert execution.broke_with == "no answer came"


def test_a_later_attempt_that_acts_answers_those_before_it(clerk, offer, monkeypatch):
    keys = wiring(offer, monkeypatch, OutcomeUnknown("no answer came"), DID_NOTHING["busy"])
    run = clerk.run(WIRE, says("done"))
    assert (run.state, clerk.execution(run, "a").value, len(keys)) == ("succeeded", "receipt", 3)


def test_where_every_attempt_did_nothing_the_act_is_free(clerk, offer, monkeypatch):
    keys = wiring(offer, monkeypatch, *[DID_NOTHING["busy"]] * 3)
    run = clerk.run(WIRE, says("done"))
    assert clerk.execution(run, "a").result_status == "retryable_error"
    assert clerk.execution(clerk.run(WIRE, says("done")), "a").value == "receipt"
    assert len(set(keys)) == 2


@pytest.mark.parametrize("how", DID_NOTHING)
def test_that_an_attempt_did_nothing_says_nothing_of_one_in_which_a_worker_died(clerk, offer, monkeypatch, how):
    keys = wiring(offer, monkeypatch, WorkerDies(), *[DID_NOTHING[how]] * 3)
    run = clerk.start(WIRE, WIRE, says("done"))
    with pytest.raises(WorkerDies):
        loop.drive(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    execution = assert_nobody_knows(clerk, clerk.drive(run), keys)
    assert (execution.attempts, execution.broke_with) == (len(keys), "")


def test_that_an_attempt_which_a_person_wanted_did_nothing_says_nothing_of_the_one_that_was_lost(
    clerk, offer, monkeypatch, dana
):
    gone = OutcomeUnknown("no answer came")
    keys = wiring(offer, monkeypatch, gone, DID_NOTHING["failed"], idempotency="none")
    run = clerk.run(WIRE, WIRE, says("done"))
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "I do not know.", dana)
    clerk.drive(run)
    clerk.decide(clerk.open(run)[0], dana)
    execution = assert_nobody_knows(clerk, clerk.drive(run), keys)
    assert len(keys) == 2
    actions.resolve_outcome(execution.pk, "did_not_happen", "I asked the bank.", dana)
    assert clerk.drive(run).state == "succeeded"


def test_an_approved_read_that_failed_has_failed_whatever_came_of_its_attempts_before(clerk, offer, monkeypatch, dana):
    wiring(offer, monkeypatch, OutcomeUnknown("It went silent."), DID_NOTHING["failed"], effect="read", business_key="")
    Rule.objects.filter(name="wires").update(verdict="ask")
    run = clerk.run(WIRE, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    run = clerk.drive(run)
    assert (run.state, clerk.execution(run, "a").result_status) == ("succeeded", "fatal_error")


def test_one_that_a_person_wanted_again_is_repeated_like_any_other_when_its_worker_dies(
    clerk, offer, monkeypatch, dana
):
    gone = OutcomeUnknown("no answer came")
    keys = wiring(offer, monkeypatch, gone, gone, gone, WorkerDies())
    run = clerk.run(WIRE, says("done"))
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "I do not know.", dana)
    clerk.drive(run)
    clerk.decide(clerk.open(run)[0], dana)
    with pytest.raises(WorkerDies):
        clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run = clerk.drive(run)
    assert (run.state, clerk.execution(run, "a").value, len(keys)) == ("succeeded", "receipt", 5)


def test_one_that_a_person_wanted_again_has_all_its_attempts_where_workers_died_in_every_one_before(
    clerk, offer, monkeypatch, dana
):
    keys = wiring(offer, monkeypatch, *[WorkerDies()] * 6)
    run = clerk.start(WIRE, says("done"))

    def die_and_be_found():
        with pytest.raises(WorkerDies):
            clerk.drive(run)
        Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))

    for _ in range(4):
        die_and_be_found()
    assert (clerk.drive(run).waiting_for, clerk.execution(run, "a").attempts) == ("outcome", 4)
    actions.resolve_outcome(clerk.execution(run, "a").pk, "retry", "The bank does not say.", dana)
    clerk.drive(run)
    clerk.decide(clerk.open(run)[0], dana)
    for _ in range(2):
        die_and_be_found()
    assert clerk.drive(run).state == "succeeded"
    execution = clerk.execution(run, "a")
    assert (execution.value, execution.attempts, len(set(keys))) == ("receipt", 7, 1)
    assert [(failure["attempt"], failure["reason"]) for failure in execution.failures] == [(4, "outcome_unknown")]


def cut_off(clerk, offer, monkeypatch, **options) -> tuple[Run, list[str]]:
    """A run whose worker died in the middle of a wire, with the keys that the bank received."""
    keys = wiring(offer, monkeypatch, WorkerDies(), **options)
    run = clerk.start(WIRE, says("done"))
    with pytest.raises(WorkerDies):
        loop.drive(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    return run, keys


def promise(idempotency: str) -> None:
    loading.load(f"tools:\n  wire: {{idempotency: {idempotency}}}\n", "user:ada")


def test_a_write_that_was_cut_off_before_its_tool_promised_anything_is_not_made_again(clerk, offer, monkeypatch):
    run, keys = cut_off(clerk, offer, monkeypatch, idempotency="none")
    promise("key")
    run = clerk.drive(run)
    assert (clerk.execution(run, "a").state, run.waiting_for, len(keys)) == ("outcome_unknown", "outcome", 1)


@pytest.mark.parametrize("by_older_release", [False, True])
def test_nor_is_one_whose_tool_has_taken_its_promise_back(clerk, offer, monkeypatch, by_older_release):
    run, keys = cut_off(clerk, offer, monkeypatch)
    if by_older_release:
        ToolExecution.objects.update(with_key=None)
    promise("none")
    run = clerk.drive(run)
    assert (clerk.execution(run, "a").state, len(keys)) == ("outcome_unknown", 1)


def test_nor_is_one_whose_tool_takes_it_back_before_the_next_attempt(clerk, offer, monkeypatch):
    keys = wiring(offer, monkeypatch, OutcomeUnknown("no answer came"))
    monkeypatch.setattr(attempts, "pause", lambda *given: promise("none") or 0)
    run = clerk.run(WIRE, says("done"))
    assert (clerk.execution(run, "a").state, len(keys)) == ("outcome_unknown", 1)


@pytest.mark.parametrize("promised_anew", [False, True])
def test_one_that_an_older_release_began_is_made_again_unless_its_tool_may_have_promised_otherwise(
    clerk, offer, monkeypatch, promised_anew
):
    run, keys = cut_off(clerk, offer, monkeypatch)
    ToolExecution.objects.update(with_key=None)
    if promised_anew:
        promise("none")
        promise("key")
    run = clerk.drive(run)
    state = "outcome_unknown" if promised_anew else "finished"
    assert (clerk.execution(run, "a").state, len(set(keys)), len(keys)) == (state, 1, 1 if promised_anew else 2)


@pytest.mark.parametrize(("hours", "repeated"), [(1, True), (23, True), (25, False), (24 * 30, False)])
def test_one_that_began_longer_ago_than_services_remember_keys_is_not_made_again(
    clerk, offer, monkeypatch, hours, repeated
):
    run, keys = cut_off(clerk, offer, monkeypatch)
    ToolExecution.objects.update(started_at=timezone.now() - timedelta(hours=hours))
    run = clerk.drive(run)
    assert (run.state, run.waiting_for, len(keys)) == (("succeeded", "", 2) if repeated else ("waiting", "outcome", 1))


def test_how_long_they_remember_them_is_a_setting(clerk, offer, monkeypatch, settings):
    settings.KEY_HOLDS_HOURS = 0
    run, keys = cut_off(clerk, offer, monkeypatch)
    assert (clerk.drive(run).waiting_for, len(keys)) == ("outcome", 1)


def test_a_tool_that_refuses_is_well_whatever_came_of_an_attempt_before(clerk, offer, monkeypatch):
    wiring(offer, monkeypatch, OutcomeUnknown("no answer came"), DID_NOTHING["refused"])
    run = clerk.run(WIRE, says("done"))
    assert clerk.execution(run, "a").state == "outcome_unknown"
    assert not Breaker.objects.filter(failures__gt=0).exists()
