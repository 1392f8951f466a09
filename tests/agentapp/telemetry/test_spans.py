"""The spans of a run: made from its rows, whoever worked on it and however long it waited."""

import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import SpanKind, StatusCode

from agentapp import actions, loop
from agentapp.models import Run
from agentapp.sweep import sweep
from agentapp.telemetry import reading
from agentapp.telemetry.exporting import CollectorAway, export_run, untold
from agentapp.tools.base import OutcomeUnknown, ToolError, tool
from agentapp.trace_context import linked, new_trace_id, read_traceparent
from approvals.models import Approval, Rule
from tests.clerk_tools import WorkerDies
from tests.conftest import call, calls, says
from tests.teams import Team, child_of

LOOK = calls(call("l", "look_up", what="kettle"), text="I look.")
PAY = calls(call("p", "pay", account="ana", amount=5, memo="for the vase"), text="I pay.")
DONE = says("Paid to Ana.")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def ns(moment):
    return round(moment.timestamp() * 1_000_000) * 1000


def test_a_run_is_a_span_with_its_steps_below_and_their_calls_below_these(clerk, traced):
    assert traced(clerk.run(LOOK, DONE)).tree() == {
        "": ["invoke_agent clerk"],
        "invoke_agent clerk": ["step 1", "step 2"],
        "step 1": ["chat scripted", "execute_tool look_up"],
        "step 2": ["chat scripted"],
    }


def test_all_spans_of_a_run_are_of_the_trace_on_its_row(clerk, traced):
    run = clerk.run(LOOK, DONE)
    assert {f"{span.context.trace_id:032x}" for span in traced(run).spans} == {run.trace_id}


def test_the_spans_say_what_the_conventions_ask_for(clerk, traced):
    found = traced(clerk.run(LOOK, DONE))
    root = found.one("invoke_agent clerk")
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["gen_ai.agent.name"] == "clerk"
    assert root.attributes["gen_ai.provider.name"] == "countersign"
    assert (root.attributes["gen_ai.usage.input_tokens"], root.attributes["gen_ai.usage.output_tokens"]) == (20, 10)
    chat = next(span for span in found.spans if span.name == "chat scripted")
    assert chat.kind is SpanKind.CLIENT
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.request.model"]) == (10, "scripted")
    ran = found.one("execute_tool look_up")
    assert ran.attributes["gen_ai.operation.name"] == "execute_tool"
    assert (ran.attributes["gen_ai.tool.name"], ran.attributes["gen_ai.tool.call.id"]) == ("look_up", "l")
    assert ran.attributes["countersign.execution.status"] == "ok"


def test_a_run_that_waited_over_the_weekend_is_one_trace_with_the_wait_as_a_span(clerk, dana, traced, collected):
    run = clerk.run(PAY, DONE)
    friday = timezone.now() - timedelta(days=3)
    Run.objects.filter(pk=run.pk).update(created_at=friday)
    Approval.objects.filter(run_id=run.pk).update(created_at=friday)
    traced(run)
    assert collected.names == [], "its step is not over"
    [asked] = clerk.open(run)
    clerk.decide(asked, dana)
    clerk.drive(run)
    asked.refresh_from_db()
    traced(run)
    waited = collected.one("approval pay")
    assert (waited.start_time, waited.end_time) == (ns(friday), ns(asked.decided_at))
    assert waited.attributes["countersign.approval.decision"] == "approve"
    assert waited.attributes["countersign.approval.deciders"] == 1
    assert waited.attributes["countersign.approval.risk"] == asked.risk
    root = collected.one("invoke_agent clerk")
    run.refresh_from_db()
    assert (root.start_time, root.end_time) == (ns(friday), ns(run.finished_at))
    ran = collected.one("execute_tool pay")
    assert ran.start_time >= waited.end_time
    assert ran.parent.span_id == waited.parent.span_id
    assert {span.context.trace_id for span in collected.spans} == {int(run.trace_id, 16)}


def test_what_happened_to_a_run_stands_on_its_span_in_order(clerk, dana, traced):
    run = clerk.run(PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    events = traced(run).one("invoke_agent clerk").events
    assert [event.name for event in events] == [
        "run.queued", "run.claimed", "run.waiting", "run.claimed", "run.succeeded",
    ]  # fmt: skip
    assert events[2].attributes["countersign.for"] == "approval"


def test_a_rejected_call_has_no_span_of_having_run(clerk, dana, traced):
    run = clerk.run(PAY, says("Then not."))
    clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
    clerk.drive(run)
    found = traced(run)
    assert "execute_tool pay" not in found.names
    assert found.one("approval pay").attributes["countersign.approval.decision"] == "reject"
    [not_run] = found.one("step 1").events
    assert (not_run.name, not_run.attributes["gen_ai.tool.name"]) == ("call_not_run", "pay")
    assert not_run.attributes["countersign.execution.reason"] == "approval_rejected"


def test_an_edited_call_says_so(clerk, dana, marco, traced):
    run = clerk.run(PAY, DONE)
    changed = {"account": "ana", "amount": 4, "memo": "for the vase"}
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=json.dumps(changed))
    clerk.decide(clerk.open(run)[0], marco)
    clerk.drive(run)
    assert traced(run).one("approval pay").attributes["countersign.approval.decision"] == "edit"


def test_an_expired_request_is_a_span_until_its_time_was_over(clerk, traced):
    run = clerk.run(PAY, says("Nobody said anything."))
    over = timezone.now() - timedelta(seconds=1)
    Approval.objects.filter(run_id=run.pk).update(created_at=over - timedelta(hours=1), expires_at=over)
    sweep()
    clerk.drive(run)
    waited = traced(run).one("approval pay")
    assert waited.attributes["countersign.approval.state"] == "expired"
    assert waited.end_time == ns(over)


def test_attempts_that_failed_stand_on_the_span_of_the_call(clerk, offer, traced):
    tried = []

    @tool(effect="read", max_attempts=3)
    def shaky() -> str:
        """Works the third time."""
        tried.append(1)
        if len(tried) < 3:
            raise ToolError("not now, ana@example.test", retryable=True, retry_after=0)
        return "there"

    offer(shaky)
    found = traced(clerk.run(calls(call("s", "shaky")), DONE))
    ran = found.one("execute_tool shaky")
    assert ran.status.status_code is StatusCode.UNSET
    assert ran.attributes["countersign.execution.attempts"] == 3
    assert [event.name for event in ran.events] == ["attempt_failed", "attempt_failed"]
    assert [event.attributes["countersign.attempt"] for event in ran.events] == [1, 2]
    assert "ana@example.test" not in found.said()


def test_a_call_that_failed_is_an_error_with_a_code(clerk, traced):
    ran = traced(clerk.run(calls(call("f", "fail", how="never")), DONE)).one("execute_tool fail")
    assert (ran.status.status_code, ran.attributes["error.type"]) == (StatusCode.ERROR, "tool_failure")


def test_a_run_that_failed_is_an_error_with_its_code(clerk, traced):
    root = traced(clerk.run(LOOK, {"error": "The provider is gone."})).one("invoke_agent clerk")
    assert (root.status.status_code, root.attributes["error.type"]) == (StatusCode.ERROR, "error")
    assert root.attributes["countersign.run.state"] == "failed"


def test_a_cancelled_run_ends_its_span_and_what_it_waited_for(clerk, sam, traced):
    run = clerk.run(PAY, DONE)
    actions.cancel_run(run.pk, sam)
    found = traced(run)
    root = found.one("invoke_agent clerk")
    assert (root.attributes["countersign.run.state"], root.status.status_code) == ("cancelled", StatusCode.UNSET)
    waited = found.one("approval pay")
    assert waited.attributes["countersign.approval.state"] == "withdrawn"
    assert waited.end_time <= root.end_time
    assert "execute_tool pay" not in found.names


def test_the_run_of_another_agent_hangs_below_the_call_that_asked_for_it(clerk, collected):
    team = Team(clerk)
    team.may_ask("refunds", says("Refund it."))
    run = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"))
    child = child_of(run)
    assert child.trace_id == run.trace_id
    collected.export(child, run)
    below, asked = collected.one("invoke_agent refunds"), collected.one("execute_tool ask_refunds")
    assert below.parent.span_id == asked.context.span_id
    assert below.context.trace_id == asked.context.trace_id
    assert asked.start_time <= below.start_time
    assert below.end_time <= asked.end_time


def test_a_caller_with_a_trace_of_its_own_is_linked_to(clerk, traced):
    run = clerk.run(DONE, traceparent=CALLER)
    [link] = traced(run).one("invoke_agent clerk").links
    assert f"{link.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{link.context.span_id:016x}" == "b7ad6b7169203331"
    assert run.trace_id != "0af7651916cd43dd8448eb211c80319c"


def test_a_run_tried_again_is_linked_to_the_one_before(clerk, sam, traced, collected):
    first = clerk.run(DONE)
    again = actions.retry_run(first.pk, sam)
    clerk.drive(again)
    traced(first)
    [before] = collected.spans[-1:]
    collected.exporter.clear()
    [link] = traced(again).one("invoke_agent clerk").links
    assert link.context.span_id == before.context.span_id
    assert f"{link.context.trace_id:032x}" == first.trace_id != again.trace_id


@pytest.mark.parametrize("text", ["", "00-0-0-00", f"00-{'0' * 32}-{'1' * 16}-01", "x" * 5000, f"{CALLER}\r\nX: y"])
def test_a_caller_whose_trace_cannot_be_read_is_served_without_it(text):
    assert read_traceparent(text) == ""


def test_a_caller_of_a_later_version_of_the_standard_is_understood():
    assert read_traceparent(f"cc{CALLER[2:]}-more") == CALLER


@given(st.text() | st.from_regex(r"\A[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?\Z"))
def test_what_is_kept_of_a_caller_is_a_place_in_a_trace_or_nothing(text):
    kept = read_traceparent(text)
    assert kept == "" or re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", kept)
    if kept:
        trace, span = linked(kept)
        assert int(trace, 16)
        assert int(span, 16)
        assert trace in text


def test_two_runs_are_never_in_one_trace():
    assert len({new_trace_id() for _ in range(50)}) == 50


# --- What was sent is not sent again ------------------------------------------------------------


def test_a_step_is_sent_when_it_is_over_and_nothing_is_sent_twice(clerk, dana, traced, collected):
    run = clerk.run(LOOK, PAY, DONE)
    assert sorted(traced(run).names) == ["chat scripted", "execute_tool look_up", "step 1"]
    traced(run)
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    traced(run)
    traced(run)
    ids = [span.context.span_id for span in collected.spans]
    assert len(ids) == len(set(ids)) == 10
    assert collected.names[-1] == "invoke_agent clerk"


def test_what_a_collector_did_not_take_is_sent_later(clerk, traced, collected):
    run = clerk.run(LOOK, DONE)
    with pytest.raises(CollectorAway):
        export_run(run.pk, lambda spans: False)
    assert len(traced(run).spans) == 6


def test_a_process_that_was_killed_while_it_sent_is_followed_by_another(clerk, traced, collected):
    class Killed(BaseException):
        pass

    def send(spans):
        raise Killed

    run = clerk.run(LOOK, DONE)
    with pytest.raises(Killed):
        export_run(run.pk, send)
    assert untold(timezone.now()) == [run.pk]
    assert len(traced(run).spans) == 6
    assert untold(timezone.now()) == []


def test_a_worker_killed_in_the_middle_of_a_call_loses_no_span(clerk, traced):
    run = clerk.start(calls(call("d", "die")), DONE)
    with pytest.raises(WorkerDies):
        loop.drive(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    clerk.drive(run)
    found = traced(run)
    assert sorted(found.names) == sorted(
        ["chat scripted"] * 2 + ["execute_tool die", "invoke_agent clerk", "step 1", "step 2"]
    )
    assert [event.name for event in found.one("invoke_agent clerk").events].count("run.claimed") == 2


def test_while_one_process_sends_another_is_told_to_come_back(clerk, collected):
    run = clerk.run(LOOK, DONE)
    came = []

    def send(spans):
        if not came:
            came.append(export_run(run.pk, collected.send))
        return collected.send(spans)

    assert export_run(run.pk, send)
    assert came == [False]
    assert len(collected.spans) == 6


def test_the_span_of_a_row_has_the_same_id_however_often_it_is_made(clerk):
    run = clerk.run(LOOK, DONE)
    found = reading.run_with_what_it_names(run.pk)
    one, other = ([[span.span_id for span in batch] for batch in reading.spans_of(found, timezone.now())] for _ in "12")
    assert one == other


def test_the_queries_for_the_spans_of_a_run_do_not_grow_with_its_calls(clerk):
    def queries(number):
        run = clerk.run(*[calls(call(f"c{n}", "look_up", what=str(n))) for n in range(number)], DONE)
        with CaptureQueriesContext(connection) as asked:
            list(reading.spans_of(reading.run_with_what_it_names(run.pk), timezone.now()))
        return len(asked)

    assert queries(1) == queries(12)


def test_a_call_of_unknown_outcome_is_told_as_an_error_when_its_run_ends(clerk, sam, offer, dana, traced):
    @tool(effect="irreversible")
    def vanish() -> str:
        """Acts, or not."""
        raise OutcomeUnknown("The line is dead.")

    offer(vanish)
    run = clerk.run(calls(call("v", "vanish")), DONE)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).waiting_for == "outcome"
    assert traced(run).names == [], "nobody knows how it ended"
    actions.cancel_run(run.pk, sam)
    ran = traced(run).one("execute_tool vanish")
    assert (ran.status.status_code, ran.attributes["error.type"]) == (StatusCode.ERROR, "outcome_unknown")
    run.refresh_from_db()
    assert ran.end_time == ns(run.finished_at)


def test_a_rule_that_allowed_a_call_is_named(clerk, traced):
    Rule.objects.create(name="small payments", tool="pay", verdict="allow")
    ran = traced(clerk.run(PAY, DONE)).one("execute_tool pay")
    assert ran.attributes["countersign.execution.allowed_by"] == "rule:small payments"
