"""An act is done once, whichever run proposes it."""

import dataclasses
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import actions, business_keys, loop
from agentapp.answers import answer
from agentapp.messages import ToolResult
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.sweep import sweep
from approvals.models import Approval, Rule
from tests import clerk_hooks, stopping_tools
from tests.clerk_hooks import DO
from tests.conftest import call, calls, says
from tests.races import race, tries
from tests.stopping_tools import DONE

REFUND = calls(call("r", "refund", order={"id": 1001}))


@pytest.fixture
def free(desk):
    """The desk, with a rule that lets it refund."""
    Rule.objects.create(name="refunds", tool="refund", verdict="allow")
    return desk


def told(run: Run, desk, call_id: str = "r") -> str:
    return answer(desk.execution(run, call_id)).text


def test_a_second_run_is_told_that_it_was_done_and_what_came_of_it(free):
    first = free.run(REFUND, says("done"))
    second = free.run(calls(call("r", "refund", order={"id": 1001}, memo="again")), says("done"))
    replay = free.execution(second, "r")
    assert (replay.result_status, replay.reason) == ("refused", "idempotency_key_consumed")
    assert replay.replay_of == free.execution(first, "r")
    assert DONE == [("refund", "1001")]
    assert "done before" in told(second, free)
    assert "refund 1001" in told(second, free)


def test_a_result_from_outside_stays_marked_as_such_when_it_is_told_again(free):
    free.run(REFUND, says("done"))
    second = free.run(REFUND, says("done"))
    assert "untrusted content from refund" in told(second, free)


def test_another_order_is_another_act(free):
    free.run(REFUND, says("done"))
    free.run(calls(call("r", "refund", order={"id": 1002})), says("done"))
    assert DONE == [("refund", "1001"), ("refund", "1002")]


def test_nobody_is_asked_about_what_was_done_before(desk, dana):
    run = desk.run(REFUND, says("done"))
    desk.decide(desk.open(run)[0], dana)
    desk.drive(run)
    again = desk.run(REFUND, says("done"))
    assert (again.state, desk.open(again)) == ("succeeded", [])


def test_of_two_runs_that_wait_for_the_same_act_one_does_it(desk, dana, marco):
    one, other = desk.run(REFUND, says("done")), desk.run(REFUND, says("done"))
    for run, person in ((one, dana), (other, marco)):
        desk.decide(desk.open(run)[0], person)
        desk.drive(run)
    assert DONE == [("refund", "1001")]
    replay = desk.execution(other, "r")
    assert (replay.reason, replay.replay_of) == ("idempotency_key_consumed", desk.execution(one, "r"))


def test_an_attempt_of_which_nothing_came_frees_the_act(free):
    stopping_tools.BROKEN["refund"] = stopping_tools.failing("the till is closed")
    failed = free.run(REFUND, says("done"))
    assert free.execution(failed, "r").result_status == "fatal_error"
    stopping_tools.BROKEN.clear()
    assert free.execution(free.run(REFUND, says("done")), "r").result_status == "ok"
    assert free.execution(free.run(REFUND, says("done")), "r").reason == "idempotency_key_consumed"
    assert DONE == [("refund", "1001")]


def test_an_unknown_outcome_keeps_the_act_until_a_person_says_that_it_did_not_happen(free, dana):
    stopping_tools.BROKEN["refund"] = RuntimeError("gone")
    lost = free.run(REFUND, says("done"))
    assert lost.waiting_for == "outcome"
    stopping_tools.BROKEN.clear()
    second = free.run(REFUND, says("done"))
    assert "nobody knows yet" in told(second, free)
    assert DONE == []
    actions.resolve_outcome(free.execution(lost, "r").pk, "did_not_happen", "I looked.", dana)
    assert free.execution(free.run(REFUND, says("done")), "r").result_status == "ok"


def test_a_call_that_a_person_wants_tried_again_runs_under_its_own_key(free, dana):
    stopping_tools.BROKEN["refund"] = RuntimeError("gone")
    run = free.run(REFUND, says("done"))
    key = free.execution(run, "r").idempotency_key
    stopping_tools.BROKEN.clear()
    actions.resolve_outcome(free.execution(run, "r").pk, "retry", "It did not arrive.", dana)
    free.drive(run)
    if free.open(run):
        free.decide(free.open(run)[0], dana)
        free.drive(run)
    assert (free.execution(run, "r").idempotency_key, DONE) == (key, [("refund", "1001")])


@pytest.mark.parametrize("how", ["reject", "nobody decides", "cancel"])
def test_an_unknown_act_that_was_to_be_tried_again_and_was_not_stays_taken(free, dana, sam, how):
    """That people did not want it again does not tell whether it happened the first time."""
    stopping_tools.BROKEN["refund"] = RuntimeError("gone")
    run = free.run(REFUND, REFUND, says("done"))
    stopping_tools.BROKEN.clear()
    actions.resolve_outcome(free.execution(run, "r").pk, "retry", "I do not know.", dana)
    (approval,) = free.open(free.drive(run))
    if how == "reject":
        free.decide(approval, dana, "reject", message="It is in their books already.")
    elif how == "cancel":
        actions.cancel_run(run.pk, sam)
    else:
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        sweep()
    free.drive(run)
    said = answer(run.executions.order_by("proposed_at")[0]).text
    assert "It is not known whether this happened" in said
    assert "It was not tried again (" in said
    assert not [wrong for wrong in ("did not run", "not executed", "propose it again if") if wrong in said.lower()]
    second = free.run(REFUND, says("done"))
    assert (free.execution(second, "r").reason, DONE) == ("idempotency_key_consumed", [])
    assert "nobody knows" in told(second, free)


def test_an_unknown_act_that_is_to_be_tried_again_cannot_be_changed_into_another(free, dana):
    """The key, and with it what is known of the first attempt, belongs to these arguments."""
    stopping_tools.BROKEN["refund"] = RuntimeError("gone")
    run = free.run(REFUND, says("done"))
    stopping_tools.BROKEN.clear()
    actions.resolve_outcome(free.execution(run, "r").pk, "retry", "I do not know.", dana)
    (approval,) = free.open(free.drive(run))
    assert approval.allowed_decisions == ["approve", "reject", "respond"]
    with pytest.raises(actions.Refused) as refused:
        free.decide(approval, dana, "edit", arguments_text='{"memo": "", "order": {"id": 1002}}')
    assert refused.value.code == "not_allowed"
    second = free.run(REFUND, says("done"))
    assert (free.execution(second, "r").reason, DONE) == ("idempotency_key_consumed", [])


def test_an_unknown_write_that_was_to_be_tried_again_and_was_not_is_not_begun_anew_in_its_run(desk, dana):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    stopping_tools.BROKEN["write"] = RuntimeError("gone")
    run = desk.run(*[calls(call(id, "write", about="x")) for id in "ab"], says("done"))
    stopping_tools.BROKEN.clear()
    actions.resolve_outcome(desk.execution(run, "a").pk, "retry", "I do not know.", dana)
    desk.drive(run)
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    sweep()
    assert desk.drive(run).state == "succeeded"
    assert (desk.execution(run, "b").reason, DONE) == ("idempotency_key_consumed", [])


@pytest.mark.parametrize("order", [{}, {"id": None}, {"id": ""}, {"id": "  "}, {"number": 1001}])
def test_a_call_that_does_not_say_which_act_it_is_is_refused(free, order):
    run = free.run(calls(call("r", "refund", order=order)), says("done"))
    assert (run.state, free.execution(run, "r").reason, DONE) == ("succeeded", "missing_idempotency_key", [])
    assert "refund {order.id}" in told(run, free)


def test_an_edit_that_takes_the_key_away_does_not_run(desk, dana):
    Rule.objects.create(name="r", tool="refund", verdict="ask", risk="low")
    run = desk.run(REFUND, says("done"))
    desk.decide(desk.open(run)[0], dana, "edit", arguments_text='{"memo": "", "order": {"id": ""}}')
    desk.drive(run)
    assert (desk.execution(run, "r").reason, DONE) == ("missing_idempotency_key", [])


def test_an_edit_decides_which_act_it_is(desk, dana):
    Rule.objects.create(name="r", tool="refund", verdict="ask", risk="low")
    run = desk.run(REFUND, says("done"))
    desk.decide(desk.open(run)[0], dana, "edit", arguments_text='{"memo": "", "order": {"id": 1002}}')
    desk.drive(run)
    assert DONE == [("refund", "1002")]
    other = desk.run(calls(call("r", "refund", order={"id": 1002})), says("done"))
    assert desk.execution(other, "r").reason == "idempotency_key_consumed"
    assert desk.run(REFUND, says("done")).waiting_for == "approval"


def test_the_same_act_twice_in_one_reply_is_done_once(free):
    run = free.run(
        calls(call("r", "refund", order={"id": 1001}), call("s", "refund", order={"id": 1001}, memo="b")), says("done")
    )
    assert (free.execution(run, "s").reason, DONE) == ("duplicate_call", [("refund", "1001")])


def test_the_same_read_twice_in_one_reply_runs_once_and_both_have_the_result(desk):
    run = desk.run(calls(call("a", "ask", about="x"), call("b", "ask", about="x")), says("done"))
    assert DONE == [("ask", "x")]
    assert told(run, desk, "a") == told(run, desk, "b").replace(":b)", ":a)")


def test_the_same_write_twice_in_one_reply_is_refused_unless_the_tool_may_be_repeated(desk):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    twice = calls(call("a", "write", about="x"), call("b", "write", about="x"))
    assert desk.execution(desk.run(twice, says("done")), "b").reason == "duplicate_call"
    Tool.objects.filter(name="write").update(repeatable=True)
    assert desk.execution(desk.run(twice, says("done")), "b").result_status == "ok"


def test_a_write_done_before_in_the_run_shows_its_first_result(desk):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    run = desk.run(calls(call("a", "write", about="x")), calls(call("b", "write", about="x")), says("done"))
    assert desk.execution(run, "b").replay_of == desk.execution(run, "a")
    assert "write x" in told(run, desk, "b")


def test_values_do_not_run_into_each_other():
    tool = Tool(name="t", business_key_template="{a}{b}")
    assert business_keys.act_of(tool, {"a": "12", "b": "3"}) != business_keys.act_of(tool, {"a": "1", "b": "23"})
    assert business_keys.act_of(tool, {"a": 12, "b": 3}) == business_keys.act_of(tool, {"a": 12.0, "b": 3})


def test_of_two_workers_with_one_act_one_does_it_and_the_other_reports_it(free):
    for number in range(min(tries(), 25)):
        reply = calls(call("r", "refund", order={"id": f"race-{number}"}))
        runs_ = [free.start(reply, says("done")), free.start(reply, says("done"))]
        assert race(*[lambda run=run: loop.drive(run.pk) for run in runs_]) == [None, None]
        for run in runs_:
            assert free.drive(run).state == "succeeded"
        reasons = sorted(free.execution(run, "r").reason for run in runs_)
        assert reasons == ["", "idempotency_key_consumed"], connection.vendor
        assert DONE.count(("refund", f"race-{number}")) == 1


def test_a_worker_that_is_beaten_to_the_key_while_it_begins_reports_the_other(free, monkeypatch):
    """If the unique column refuses it, the key is checked again: the approval is not used up, the call is a replay."""
    from agentapp import recheck

    first = free.run(REFUND, says("done"))
    holder = free.execution(first, "r")
    taken = holder.idempotency_key
    # The first check is a moment too early to see who holds the key.
    looks = iter([business_keys.Key(taken), business_keys.Key(taken, holder)])
    monkeypatch.setattr(recheck, "key_of", lambda execution, tool, text: next(looks))
    monkeypatch.setattr(business_keys, "key_of", lambda act, execution=None: business_keys.Key(taken))
    second = free.run(REFUND, says("done"))
    assert second.state == "succeeded"
    assert free.execution(second, "r").reason == "idempotency_key_consumed"
    assert DONE == [("refund", "1001")]
    assert ToolExecution.objects.filter(idempotency_key=taken).count() == 1


@pytest.fixture
def hooked(desk):
    """The desk with a hook at every point, and rules that let it write and refund."""
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    for tool in ("write", "refund"):
        Rule.objects.create(name=tool, tool=tool, verdict="allow")
    return desk


@pytest.mark.parametrize("asks", [False, True])
def test_the_template_that_counts_is_that_of_the_moment_a_call_begins(hooked, dana, asks):
    """The worker has read the tool's row; an admin changes what makes two calls one act; the call begins."""
    Rule.objects.filter(name__in=["write", "refund"]).update(verdict="ask" if asks else "allow")
    refund = Tool.objects.filter(name="refund")
    refund.update(business_key_template="refund {order.id} {memo}")
    DO["after_tool_use"] = lambda context: refund.update(business_key_template="refund {order.id}") and None
    one = call("r", "refund", order={"id": 1001}, memo="one")
    run = hooked.run(calls(call("w", "write", about="x"), one), says("done"))
    for approval in hooked.open(run):
        hooked.decide(approval, dana)
    hooked.drive(run)
    assert DONE == [("write", "x"), ("refund", "1001 one")]
    other = hooked.run(calls(call("r", "refund", order={"id": 1001}, memo="two")), says("done"))
    assert hooked.execution(other, "r").reason == "idempotency_key_consumed"


def makes(result):
    """A hook that replaces the tool's result."""
    return lambda context: dataclasses.replace(context, result=result)


def test_a_hook_that_makes_an_error_of_what_was_done_does_not_free_the_act(hooked):
    DO["after_tool_use"] = makes(ToolResult(status="fatal_error", reason="tool_failure", message="Not good enough."))
    first = hooked.run(REFUND, calls(call("s", "refund", order={"id": 1001}, memo="b")), says("done"))
    assert hooked.execution(first, "r").result_status == "fatal_error"
    assert hooked.execution(first, "s").replay_of == hooked.execution(first, "r")
    second = hooked.run(REFUND, says("done"))
    assert hooked.execution(second, "r").reason == "idempotency_key_consumed"
    assert "Not good enough." in told(second, hooked)
    assert DONE == [("refund", "1001")]


def test_a_hook_that_makes_an_error_of_a_write_without_a_business_key_does_not_have_it_run_again(hooked):
    DO["after_tool_use"] = makes(ToolResult(status="retryable_error", reason="tool_failure", message="Look again."))
    again = [calls(call(id, "write", about="x")) for id in "ab"]
    run = hooked.run(*again, says("done"))
    assert hooked.execution(run, "b").replay_of == hooked.execution(run, "a")
    assert DONE == [("write", "x")]


def test_a_hook_that_makes_a_result_of_a_failure_does_not_take_the_act(hooked):
    stopping_tools.BROKEN["refund"] = stopping_tools.failing("the till is closed")
    DO["after_tool_use"] = makes(ToolResult(data="It will be refunded some day."))
    assert hooked.execution(hooked.run(REFUND, says("done")), "r").result_status == "ok"
    stopping_tools.BROKEN.clear()
    DO.clear()
    assert hooked.execution(hooked.run(REFUND, says("done")), "r").result_status == "ok"
    assert DONE == [("refund", "1001")]


def test_what_a_tool_asks_of_the_loop_cannot_say_whether_it_acted(hooked):
    DO["after_tool_use"] = makes(ToolResult(data="done", control={"took_effect": False}))
    hooked.run(REFUND, says("done"))
    assert hooked.execution(hooked.run(REFUND, says("done")), "r").reason == "idempotency_key_consumed"
    assert DONE == [("refund", "1001")]
