"""The result of a run, read from rows with hand-written times and costs, each figure added up by hand."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp.evals.observed import Asked, Observed
from agentapp.evals.observing import observe
from agentapp.messages import ToolResult
from agentapp.models import Run, Step, Tool, ToolExecution
from approvals.models import Approval
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def set_run(run: Run, **columns: Any) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)


@pytest.fixture
def look() -> Tool:
    return make_tool("look")


@pytest.fixture
def pay() -> Tool:
    return make_tool("pay", "irreversible")


@pytest.fixture
def observed(sam: User, dana: User, look: Tool, pay: Tool) -> Observed:
    """A run that looks something up, asks people twice about a payment, and asks another run for something."""
    root = RunBuilder(sam)
    (read,) = root.step("", proposal(look, {"order": 7}))
    root.answer(read, ToolResult(data="found"), attempts=2)
    (paid, other) = root.step("", proposal(pay, {"amount": 5}), proposal(pay, {"amount": 6}))
    first, second = root.ask(paid, other)
    root.decide(second, dana, "reject", message="Not this one.")
    root.use(paid, root.decide(first, dana))
    root.answer(paid, ToolResult(data="done"))
    root.finish(answer="Paid.")

    child = RunBuilder(sam, "Look again.", parent=root.run)
    (again,) = child.step("", proposal(look, {"order": 8}))
    child.answer(again, ToolResult(data="found"))
    child.finish()

    by_hand(root, child, {read: (1, 1.25, "0.002"), paid: (100, 103, "0.01"), again: (200, 200.5, "0.0005")})
    for request, begun, ended in ((first, 10, 70), (second, 10, 25)):
        Approval.objects.filter(pk=request.pk).update(created_at=at(begun), ended_at=at(ended))
    return observe(root.run)


def by_hand(root: RunBuilder, child: RunBuilder, calls: dict[ToolExecution, tuple[float, float, str]]) -> None:
    # In order: when the model was asked, when it had answered, and the cost. The price of the second step is unknown.
    steps: list[tuple[RunBuilder, int, float, float, str | None]] = [
        (root, 1, 0, 0.75, "0.03"), (root, 2, 5, 7, None), (child, 1, 150, 151.5, "0.01"),
    ]  # fmt: skip
    for builder, number, begun, ended, cost in steps:
        columns = {"started_at": at(begun), "finished_at": at(ended), "cost": None if cost is None else Decimal(cost)}
        assert Step.objects.filter(run=builder.id, number=number).update(**columns) == 1
    for call, (begins, ends, price) in calls.items():
        row = ToolExecution.objects.filter(pk=call.pk)
        row.update(started_at=at(begins), finished_at=at(ends), cost=Decimal(price))
    set_run(root.run, cost=Decimal("0.042"), worked_seconds=6.5, input_tokens=2000, output_tokens=400)
    set_run(child.run, cost=Decimal("0.0105"), worked_seconds=2.25, input_tokens=900, output_tokens=100)


def test_costs_are_of_the_run_and_those_it_asked(observed):
    assert observed.cost == pytest.approx(0.0525), "0.042 + 0.0105"
    assert observed.model_cost == pytest.approx(0.04), "0.03 + 0.01, and a step of which nobody knows"
    assert observed.tools_cost == pytest.approx(0.0125), "0.002 + 0.01 + 0.0005; what was rejected cost nothing"
    assert [call.cost for call in observed.calls if call.executed] == [0.002, 0.01, 0.0005]


def test_times_are_of_the_run_and_those_it_asked_and_waiting_is_apart(observed):
    assert observed.seconds == 8.75, "6.5 + 2.25"
    assert observed.model_seconds == 4.25, "0.75 + 2 + 1.5"
    assert observed.tool_seconds == 3.75, "0.25 + 3 + 0.5"
    assert observed.waited_seconds == 75, "60 + 15, though they waited side by side"


def test_tokens_are_of_the_run_and_those_it_asked(observed):
    assert observed.tokens == 3400, "2000 + 400 + 900 + 100"


def test_the_end_and_the_steps_are_of_the_run_itself(observed):
    assert (observed.final_status, observed.state, observed.stop_reason) == ("completed", "succeeded", "completed")
    assert (observed.waiting_for, observed.steps, observed.answer) == ("", 2, "Paid.")


def test_every_proposed_call_is_there_and_executed_ones_in_the_order_in_which_they_began(observed):
    assert [(call.tool, call.executed, call.step, call.depth, call.attempts) for call in observed.calls] == [
        ("look", True, 1, 0, 2), ("pay", True, 2, 0, 1), ("look", True, 1, 1, 1), ("pay", False, 2, 0, 0),
    ]  # fmt: skip
    assert observed.tools_called == ["look", "pay"]
    assert [call.arguments for call in observed.calls] == [{"order": 7}, {"amount": 5}, {"order": 8}, {"amount": 6}]
    assert len({call.arguments_digest for call in observed.calls}) == 4


def test_of_each_call_it_is_known_what_the_gate_said_and_what_became_of_the_request(observed):
    said = {(call.tool, call.step, call.depth, call.executed): (call.verdict, call.asked) for call in observed.calls}
    assert said == {
        ("look", 1, 0, True): ("allow", ()),
        ("look", 1, 1, True): ("allow", ()),
        ("pay", 2, 0, True): ("ask", (Asked(risk="medium", state="used"),)),
        ("pay", 2, 0, False): ("ask", (Asked(risk="medium", state="rejected"),)),
    }


def test_what_has_not_ended_took_no_time_yet(sam, look, pay):
    root = RunBuilder(sam)
    (read, paid) = root.step("", proposal(look, {"order": 7}), proposal(pay, {"amount": 5}))
    (request,) = root.ask(paid)
    Step.objects.filter(run=root.id).update(started_at=at(0), finished_at=at(1))
    ToolExecution.objects.filter(pk=read.pk).update(started_at=at(2), finished_at=None)
    Approval.objects.filter(pk=request.pk).update(created_at=at(3), ended_at=None)
    found = observe(root.run)
    assert (found.final_status, found.waiting_for) == ("needs_human", "approval")
    assert (found.model_seconds, found.tool_seconds, found.waited_seconds) == (1, 0, 0)


@pytest.mark.parametrize(
    ("reason", "ruling", "expected"),
    [
        ("policy_denied", "deny", "deny"),
        ("permission_denied", "", "deny"),
        ("tool_not_disclosed", "", "deny"),
        ("malformed_arguments", "", ""),
        ("call_limit_exceeded", "allow", "allow"),
        ("cancelled", "ask", ""),
    ],
)
def test_what_the_gate_said_of_a_call_that_was_not_executed(sam, pay, reason, ruling, expected):
    root = RunBuilder(sam)
    said = {"verdict": ruling, "reason": "So it is."} if ruling else {}
    root.step("", proposal(pay, {"amount": 5}, asks=False, ruling=said))
    ToolExecution.objects.filter(run=root.id).update(reason=reason)
    [call] = observe(root.run).calls
    assert (call.verdict, call.executed) == (expected, False)


def test_what_is_kept_of_it_is_read_again_without_arguments_and_answer(observed):
    kept = observed.as_json()
    assert "Paid." not in str(kept)
    assert "amount" not in str(kept)
    assert Observed.from_json(kept) == observed
