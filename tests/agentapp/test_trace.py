import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import executions, runs, trace
from agentapp.messages import ToolCall, ToolResult
from agentapp.models import Run
from agentapp.timeline import Timeline, timeline
from agentapp.trace_rows import Mark, Row
from approvals import decisions, ledger
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal, told_run

pytestmark = pytest.mark.django_db


def line_of(builder: RunBuilder, viewer: User | None = None) -> Timeline:
    return timeline(builder.run, timezone.now(), viewer)


def row(line: Timeline, name: str) -> Row:
    return next(row for row in line.rows if row.name == name)


def test_rows_stand_in_the_order_of_the_run_each_under_its_step(sam: User, dana: User) -> None:
    line = line_of(told_run(sam, dana))
    assert [(row.kind, row.step, row.call, row.depth) for row in line.rows] == [
        ("message", 0, None, 0),
        ("model", 1, None, 0),
        ("call", 1, 0, 1),
        ("model", 2, None, 0),
        ("call", 2, 0, 1),
        ("approval", 2, 0, 2),
        ("model", 3, None, 0),
    ]
    assert len({row.key for row in line.rows}) == len(line.rows)


def test_totals_are_those_of_the_rows_and_of_the_run(sam: User, dana: User) -> None:
    builder = told_run(sam, dana, steps=3)
    line, run = line_of(builder), builder.run
    assert line.totals.tokens == sum(row.tokens or 0 for row in line.rows) == run.input_tokens + run.output_tokens
    assert line.totals.cost == sum(row.cost or 0 for row in line.rows) == run.cost == Decimal("0.10")
    assert line.totals.cached_share == pytest.approx(0.7)
    totals, whole = line.totals, run.finished_at - run.created_at  # type: ignore[operator]
    parts = totals.worked_seconds + totals.waited_seconds + totals.idle_seconds
    assert parts == pytest.approx(whole.total_seconds(), abs=0.01)


def test_an_unknown_price_makes_the_cost_a_lower_bound(sam: User) -> None:
    builder = RunBuilder(sam)
    builder.step("One.", cost="0.5")
    builder.step("Two.", cost=None)
    assert (line_of(builder).totals.cost, line_of(builder).totals.cost_is_partial) == (Decimal("0.5"), True)


@pytest.mark.parametrize("viewed", [False, True])
def test_a_timeline_takes_four_queries_however_long_the_run_is(sam: User, dana: User, viewed: bool) -> None:
    counts = []
    for steps in (1, 12):
        run = told_run(sam, dana, steps).run
        viewer = dana if viewed else None
        dana.has_perm("approvals.decide_approval")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            line = timeline(run, timezone.now(), viewer)
            assert [row.name for row in line.rows if row.approval]
        counts.append(len(queries))
    assert counts == [4, 4]


def test_a_wait_for_people_is_not_work(sam: User) -> None:
    builder = RunBuilder(sam)
    (call,) = builder.step("", proposal(make_tool("refund_payment", "irreversible")), seconds=2)
    builder.ask(call)
    later = timezone.now() + timedelta(minutes=9)
    line = timeline(builder.run, later)
    assert line.totals.waited_seconds == pytest.approx(540, abs=2)
    assert line.totals.worked_seconds < 3
    assert [round(fold.seconds / 60) for fold in line.axis.folds] == [9]
    waiting = row(line, "refund_payment")
    assert waiting.mark is not None
    assert (waiting.mark.word, waiting.mark.hue) == ("Waiting", "wait")
    assert [bar.kind for bar in waiting.bars] == ["people"]


def test_an_approval_row_says_who_decided(sam: User, dana: User) -> None:
    line = line_of(told_run(sam, dana))
    (approval,) = [row for row in line.rows if row.kind == "approval"]
    assert approval.name.endswith(", approved by Dana Whitfield")


def test_a_rejected_call_says_so_and_is_not_a_failure(sam: User, dana: User) -> None:
    builder = RunBuilder(sam)
    (call,) = builder.step("", proposal(make_tool("refund_payment", "irreversible")))
    (approval,) = builder.ask(call)
    builder.decide(approval, dana, "reject", message="Too much.")
    builder.claim()
    approval.refresh_from_db()
    with ledger.transaction():
        runs.lock(builder.id)
        assert decisions.settle(approval)
    builder.answer(call, ToolResult(status="refused", reason="approval_rejected", message="Too much."), attempts=0)
    line = line_of(builder)
    assert row(line, "refund_payment").mark == Mark("Rejected", "bad")
    assert line.first_failure is None
    assert next(row.name for row in line.rows if row.approval).endswith(", rejected by Dana Whitfield")


def test_a_call_that_asks_again_shows_both_requests(sam: User, dana: User) -> None:
    builder = RunBuilder(sam)
    (call,) = builder.step("", proposal(make_tool("refund_payment", "irreversible")))
    (first,) = builder.ask(call)
    with ledger.transaction():
        locked = runs.lock(builder.id)
        assert locked is not None
        assert decisions.supersede(first, "the order changed")
        executions.set_aside(call, "the order changed")
        runs.wake(locked, timezone.now() - timedelta(seconds=1))
    builder.claim()
    builder.ask(call, supersedes_id=first.pk)
    names = [row.name.split(", ")[1] for row in line_of(builder).rows if row.kind == "approval"]
    assert names == ["replaced by a newer one", "waiting"]


def test_a_failed_call_is_the_first_failure_and_its_time_is_counted_apart(sam: User) -> None:
    builder, look = RunBuilder(sam), make_tool("get_order")
    good, bad = builder.step("", proposal(look, {"order_id": 1}), proposal(look, {"order_id": 2}))
    builder.answer(good, ToolResult(data=1))
    builder.answer(bad, ToolResult(status="fatal_error", reason="tool_failure", message="no such order"), attempts=3)
    line = line_of(builder)
    assert line.first_failure is not None
    assert (line.first_failure.step, line.first_failure.call) == (1, 1)
    assert line.first_failure.mark == Mark("Failed, attempt 3", "bad")
    assert (line.totals.errors, [bar.kind for bar in line.first_failure.bars]) == (1, ["failed"])


def test_a_call_that_succeeded_at_the_second_attempt_says_so(sam: User) -> None:
    builder = RunBuilder(sam)
    (call,) = builder.step("", proposal(make_tool("get_order")))
    builder.answer(call, ToolResult(data=1), attempts=2)
    assert row(line_of(builder), "get_order").mark == Mark("Attempt 2", "bad")


def test_the_time_nobody_knew_the_outcome_is_waiting_also_when_it_turned_out_well(sam: User, dana: User) -> None:
    begun = timezone.now()
    builder = RunBuilder(sam)
    (call,) = builder.step("", proposal(make_tool("refund_payment", "irreversible")), seconds=0.1)
    (approval,) = builder.ask(call)
    builder.use(call, builder.decide(approval, dana))
    builder.lose(call)
    taken = timezone.now() - begun
    later = timezone.now() + timedelta(minutes=5)
    unknown = timeline(builder.run, later)
    assert row(unknown, "refund_payment").failed
    assert 300 <= unknown.totals.waited_seconds <= 301 + taken.total_seconds()
    with ledger.transaction():
        runs.lock(builder.id)
        call.refresh_from_db()
        assert executions.resolve(call, ToolResult(message="It did."), "saw it in the bank", "user:1:dana")
    known = line_of(builder)
    assert not row(known, "refund_payment").failed
    assert [bar.kind for bar in row(known, "refund_payment").bars] == ["people", "failed", "people"]


def test_a_call_that_never_ran_is_a_point_in_time(sam: User) -> None:
    builder = RunBuilder(sam)
    refusal = ToolResult(status="refused", reason="tool_not_disclosed", message="There is no such tool here.")
    unknown = executions.Proposal(ToolCall("1", "drop_tables", "{}"), refusal=refusal)
    builder.step("", unknown)
    refused = row(line_of(builder), "drop_tables")
    assert (refused.seconds, [bar.width for bar in refused.bars]) == (None, [0.0])
    assert refused.mark == Mark("Refused", "bad")


def test_a_step_is_called_by_the_models_first_words_or_by_what_it_asked_for(sam: User) -> None:
    builder, look = RunBuilder(sam), make_tool("get_order")
    for text, count in (("\n  First line.\nSecond.", 0), ("", 1), ("", 2), ("", 0)):
        for call in builder.step(text, *[proposal(look, {"n": n}) for n in range(count)]):
            builder.answer(call, ToolResult())
    names = [row.name for row in line_of(builder).rows if row.kind == "model" and not row.planned]
    assert names == ["First line.", "Asked for get_order", "Asked for 2 calls", "Said nothing"]


@pytest.mark.parametrize(("length", "end"), [(90, "bb"), (91, "b…"), (400, "b…")])
def test_of_a_long_first_line_is_said_that_there_is_more(sam: User, length: int, end: str) -> None:
    builder = RunBuilder(sam)
    builder.step("\n a" + (length - 1) * "b")
    [name] = [row.name for row in line_of(builder).rows if row.kind == "model" and not row.planned]
    assert (len(name), name[-2:]) == (90, end)


def test_a_running_run_says_that_the_model_is_deciding(sam: User, dana: User) -> None:
    builder = RunBuilder(sam).claim()
    assert [(row.name, row.planned) for row in line_of(builder).rows][1:] == [("Deciding the next step", True)]
    assert not any(row.planned for row in line_of(told_run(sam, dana)).rows)


def test_a_page_of_steps_begins_with_the_input(sam: User, dana: User) -> None:
    line = line_of(told_run(sam, dana, steps=5))
    assert [row.step for row in line.of_steps(1, 2)] == [0, 1, 1, 2, 2]
    assert {row.step for row in line.of_steps(3, 4)} == {3, 4}


def test_whether_a_viewer_may_open_a_request_is_told(sam: User, dana: User, otto: User) -> None:
    line = line_of(told_run(sam, dana), viewer=dana)
    assert [row.approval.openable for row in line.rows if row.approval] == [True]  # type: ignore[attr-defined]
    line = line_of(told_run(sam, dana), viewer=otto)
    assert [row.approval.openable for row in line.rows if row.approval] == [False]  # type: ignore[attr-defined]


def test_steps_and_calls_are_found_by_their_place(sam: User, dana: User) -> None:
    run = told_run(sam, dana).run
    call = trace.call_of(run, 2, 0)
    assert call is not None
    assert call.name == "refund_payment"
    [step] = trace.steps_upto(run, 1)
    assert step is not None
    assert [call.name for call in step.executions.all()] == ["get_order"]
    assert trace.call_of(run, 2, 7) is None
    assert trace.steps_upto(run, 99) == []


def test_all_of_a_runs_steps_come_with_calls_approvals_and_decisions(sam: User, dana: User) -> None:
    run = told_run(sam, dana, steps=4).run
    with CaptureQueriesContext(connection) as queries:
        steps = trace.steps_of(run)
        names = [
            d.user.username for s in steps for c in s.executions.all() if c.approval for d in c.approval.decisions.all()
        ]
    assert names == ["dana"]
    assert len(queries) <= 4


def test_an_empty_run_has_a_timeline(sam: User) -> None:
    builder = RunBuilder(sam)
    line = line_of(builder)
    assert [row.kind for row in line.rows] == ["message"]
    assert line.totals.worked_seconds == 0
    assert Run.objects.filter(pk=uuid.UUID(str(builder.id))).exists()
