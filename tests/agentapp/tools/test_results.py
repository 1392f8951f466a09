"""What a call returns: artifacts, retries, output that does not match or is too large, and what it cost."""

import json
from decimal import Decimal
from typing import Any

import pytest

from agentapp.answers import answer
from agentapp.messages import ToolResult
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools import results
from agentapp.tools.base import OutcomeUnknown, ToolError, tool
from approvals import ledger
from approvals.models import Rule
from tests.conftest import call, calls, says

HOW: list[str] = []


def outcome(clerk: Any, *made: dict[str, Any], allow: str = "", **more: Any) -> tuple[Run, ToolExecution]:
    """The run of one scripted step and the row of its first call."""
    if allow:
        Rule.objects.create(name=allow, tool=allow, verdict="allow")
    run = clerk.run(calls(*made), says("done"), **more)
    return run, clerk.execution(run, made[0]["id"])


# --- Artifacts ---------------------------------------------------------------------------------


@tool(effect="read", trust="trusted_system", response="content_and_artifact")
def chart(how: str) -> Any:
    """Draw a chart."""
    if how == "pair":
        return "a chart of 3 bars", {"bars": [1, 2, 3]}
    if how == "envelope":
        return ToolResult(data="a chart", metadata={"took": 3}), [1]
    return {"triple": (1, 2, 3), "list": ["a", "b"]}[how]


def test_an_artifact_is_kept_apart_and_never_shown_to_the_model(clerk, offer):
    offer(chart)
    run, execution = outcome(clerk, call("a", "chart", how="pair"))
    assert run.state == "succeeded"
    assert answer(execution).text == "a chart of 3 bars"
    assert json.loads(execution.artifact_text) == {"bars": [1, 2, 3]}
    assert "bars" not in execution.result_text.replace("3 bars", "")


def test_an_envelope_may_be_the_content_of_a_pair(clerk, offer):
    offer(chart)
    _, execution = outcome(clerk, call("a", "chart", how="envelope"))
    assert (execution.value, execution.metadata, execution.artifact_text) == ("a chart", {"took": 3}, "[1]")


@pytest.mark.parametrize("how", ["triple", "list"])
def test_a_tool_that_promises_a_pair_and_gives_none_has_failed(clerk, offer, how):
    offer(chart)
    run, execution = outcome(clerk, call("a", "chart", how=how))
    assert (execution.result_status, execution.reason) == ("fatal_error", "tool_result_invalid")
    assert "pair of content and artifact" in answer(execution).text
    assert (run.state, run.had_tool_errors) == ("succeeded", True)


def test_a_tool_may_give_the_envelope_itself(clerk, offer):
    @tool(effect="read", trust="trusted_system")
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult(data="drawn", artifact={"file": "a.svg"}, control={"session_mode": "manual"})

    offer(draw)
    _, execution = outcome(clerk, call("a", "draw"))
    assert (execution.artifact_text, execution.control) == ('{"file": "a.svg"}', {"session_mode": "manual"})
    assert answer(execution).text == "drawn"


# --- Errors ------------------------------------------------------------------------------------


@tool(effect="read", max_attempts=1)
def flaky(seconds: float) -> str:
    """Fail for a while."""
    raise ToolError("busy", retryable=True, retry_after=seconds)


def test_when_a_tool_says_when_to_try_again_it_is_on_record_and_told(clerk, offer):
    offer(flaky)
    _, execution = outcome(clerk, call("a", "flaky", seconds=30))
    assert (execution.result_status, execution.reason) == ("retryable_error", "tool_failure")
    assert execution.retry_after == 30
    assert "It may work in 30 s." in answer(execution).text


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "soon"])
def test_a_pause_that_cannot_be_waited_for_is_none(seconds):
    assert results.of_error(ToolError("busy", retryable=True, retry_after=seconds)).retry_after is None
    assert results.of_value(ToolResult("retryable_error", retry_after=seconds)).retry_after is None


def test_a_pause_longer_than_a_day_is_a_day():
    assert results.of_error(ToolError("busy", retryable=True, retry_after=10**400)).retry_after == 24 * 3600


def test_a_failure_that_is_not_to_be_retried_is_fatal_and_says_so(clerk):
    _, execution = outcome(clerk, call("a", "fail", how="never"))
    assert (execution.result_status, execution.retry_after) == ("fatal_error", None)
    assert "Do not try it again" in answer(execution).text


def test_a_tool_that_raises_anything_leaves_its_siblings_results(clerk):
    run, execution = outcome(clerk, call("a", "fail", how="a bug"), call("b", "look_up", what="x"))
    assert (run.state, execution.reason) == ("succeeded", "tool_failure")
    assert clerk.execution(run, "b").value == {"found": "x"}


def test_a_tools_own_wording_wins_over_the_executors(clerk, offer):
    @tool(effect="read", max_attempts=1, on_error="The library is closed.")
    def borrow() -> str:
        """Borrow a book."""
        raise ToolError("E_CLOSED at 10.0.0.7", retryable=True, retry_after=2)

    offer(borrow)
    _, execution = outcome(clerk, call("a", "borrow"))
    assert (execution.message, execution.result_status) == ("The library is closed.", "retryable_error")
    assert "10.0.0.7" not in answer(execution).text


def test_a_result_that_is_too_large_is_held_against_no_schema():
    large = results.checked(ToolResult(data=["x" * 100] * 5000), {"type": "object"}, acted=False)
    assert large.reason == "result_too_large"


def test_no_wording_hides_that_an_outcome_is_unknown(clerk, offer):
    @tool(effect="irreversible", on_error=True, on_invalid=True)
    def wire(to: str) -> str:
        """Wire money."""
        raise OutcomeUnknown("the line went dead")

    offer(wire)
    run, execution = outcome(clerk, call("a", "wire", to="ana"), allow="wire")
    assert (run.waiting_for, execution.state) == ("outcome", "outcome_unknown")


def test_an_envelope_with_a_status_there_is_not_is_a_failure():
    result = results.of_value(ToolResult(status="done", data=1))  # type: ignore[arg-type]
    assert (result.status, result.reason, result.data) == ("fatal_error", "tool_result_invalid", 1)


def test_a_value_that_json_cannot_say_is_still_on_record():
    class Odd:
        def __str__(self) -> str:
            return "odd"

    round_about: list[Any] = []
    round_about.append(round_about)
    assert results.of_value({"it": Odd(), "when": Decimal("1.50")}).data == {"it": "odd", "when": "1.50"}
    assert "cannot be written as JSON" in results.of_value(round_about).data


# --- Output that does not fit ------------------------------------------------------------------

SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


def test_a_read_whose_output_does_not_fit_its_schema_has_failed(clerk, offer):
    @tool(effect="read", output_schema=SIZE)
    def measure() -> Any:
        """Measure."""
        return {"size": "large"}

    offer(measure)
    _, execution = outcome(clerk, call("a", "measure"))
    assert (execution.result_status, execution.reason) == ("fatal_error", "tool_result_invalid")
    assert "size" in execution.message
    assert execution.value is None
    assert json.loads(execution.result_text) == {"size": "large"}, "what it gave is kept"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1], 'The value is not of type "object".'),
        ({"size": "large"}, 'size: the value is not of type "integer".'),
        ({"size": 1, "colour": "red"}, "colour is not part of such a result."),
    ],
)
def test_what_does_not_fit_is_named_as_a_result_and_not_as_arguments(given, said):
    schema = SIZE | {"additionalProperties": False}
    message = results.checked(ToolResult(data=given), schema, acted=False).message
    assert message == f"The result does not fit the tool's output schema: {said}"


def test_output_that_fits_its_schema_is_ok(clerk, offer):
    @tool(effect="read", output_schema=SIZE)
    def measure() -> Any:
        """Measure."""
        return {"size": 3}

    offer(measure)
    assert outcome(clerk, call("a", "measure"))[1].result_status == "ok"


@tool(effect="irreversible", output_schema=SIZE)
def build(what: str) -> Any:
    """Build something."""
    HOW.append(what)
    return {"size": what} if what != "long" else {"size": 1, "log": "x" * 300_000}


def test_a_write_whose_output_does_not_fit_has_run_and_never_runs_again_for_it(clerk, offer):
    HOW.clear()
    offer(build)
    Rule.objects.create(name="build", tool="build", verdict="allow")
    run = clerk.run(calls(call("a", "build", what="hut")), calls(call("b", "build", what="hut")), says("done"))
    execution = clerk.execution(run, "a")
    assert (execution.state, execution.result_status) == ("finished", "fatal_error")
    assert execution.reason == "tool_result_invalid"
    assert "its effect has happened" in answer(execution).text
    assert '"size": "hut"' in answer(execution).text
    again = clerk.execution(run, "b")
    assert (again.reason, again.replay_of_id) == ("idempotency_key_consumed", execution.pk)
    assert HOW == ["hut"]


# --- Size --------------------------------------------------------------------------------------


def test_a_read_that_gives_too_much_is_told_to_ask_for_less(clerk, offer):
    @tool(effect="read", trust="trusted_system")
    def dump(rows: int) -> list[str]:
        """Dump rows."""
        return ["x" * 100] * rows

    offer(dump)
    run, execution = outcome(clerk, call("a", "dump", rows=3000), call("b", "dump", rows=3))
    assert (execution.result_status, execution.reason) == ("fatal_error", "result_too_large")
    assert "Ask for less" in answer(execution).text
    kept = json.loads(execution.result_text)
    assert (kept["truncated"], len(kept["start"])) == (True, 16_000)
    assert kept["characters"] > 300_000
    assert clerk.execution(run, "b").result_status == "ok"


def test_a_write_that_gives_too_much_has_run_and_stays_ok(clerk, offer):
    HOW.clear()
    offer(build)
    run, execution = outcome(clerk, call("a", "build", what="long"), allow="build")
    assert (execution.result_status, execution.reason) == ("ok", "result_too_large")
    assert "its effect has happened" in answer(execution).text
    assert run.had_tool_errors is False
    assert HOW == ["long"]


# --- Cost --------------------------------------------------------------------------------------


def cost_of(run: Run) -> Decimal:
    return Run.objects.get(pk=run.pk).cost


def test_what_a_call_costs_is_counted_on_its_row_and_in_its_run(clerk):
    Tool.objects.filter(name__in=["look_up", "fail", "label"]).update(cost_per_call=Decimal("0.25"))
    Rule.objects.create(name="label", tool="label", verdict="allow")
    run = clerk.run(
        calls(
            call("a", "look_up", what="x"),
            call("twice", "look_up", what="x"),
            call("failed", "fail", how="never"),
            call("refused", "look_up"),
            call("written", "label", text="red"),
            call("free", "read_mail"),
        ),
        says("done"),
    )
    counted = {execution.call_id: execution.cost for execution in run.executions.all()}
    each = Decimal("0.25")
    assert counted == {"a": each, "twice": 0, "failed": each, "refused": 0, "written": each, "free": 0}
    assert cost_of(run) == Decimal("0.75")


def test_a_call_whose_outcome_is_unknown_has_cost_what_it_costs_once(clerk):
    Tool.objects.filter(name="send").update(cost_per_call=Decimal("0.25"))
    run, execution = outcome(clerk, call("a", "send", to="ana", how="lost"), allow="send")
    assert (execution.state, execution.cost, cost_of(run)) == ("outcome_unknown", Decimal("0.25"), Decimal("0.25"))


def test_the_cost_of_calls_counts_towards_the_runs_limit(clerk):
    clerk.agent.max_cost = Decimal("0.40")
    clerk.agent.save()
    Tool.objects.filter(name="look_up").update(cost_per_call=Decimal("0.25"))
    run = clerk.run(*[calls(call(f"c{n}", "look_up", what=str(n))) for n in range(2)], says("One was enough."))
    assert (run.state, run.cost) == ("succeeded", Decimal("0.25"))
    assert clerk.execution(run, "c1").reason == "budget_exhausted"


def test_the_chain_of_a_run_with_failures_and_costs_holds(clerk, offer):
    offer(chart)
    outcome(clerk, call("a", "chart", how="triple"))
    assert ledger.verify()[1] is None
