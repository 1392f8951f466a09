"""How often a call is tried, and the pauses in between; what an attempt is told, and its result."""

import copy
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from django.conf import settings

from agentapp import grant_use, isolation, switches
from agentapp.cancellation import Cancellation
from agentapp.messages import FAILED, Note, ToolResult
from agentapp.models import Run, Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.state import RunState
from agentapp.tools.base import LimitReached, OutcomeUnknown, ToolContext, ToolError
from agentapp.tools.counting import Counter
from agentapp.tools.results import of_error
from agentapp.toolset import specs
from approvals import ledger
from approvals.models import Event
from approvals.proof import receipts

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
JITTER = 0.25
# After this long, no worker begins a call with an earlier configuration.
TOLD_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Tried:
    """The result of a call, how many attempts it took, and why the failed ones failed."""

    result: ToolResult
    attempts: int
    failures: tuple[dict[str, Any], ...] = ()


def most(tool: Tool) -> int:
    """How often a call is tried before it counts as failed: a write that honours no key may not be made twice."""
    return tool.max_attempts if not tool.consequential or tool.honours_key else 1


def may_be_repeated(execution: ToolExecution, tool: Tool, now: datetime) -> bool:
    """Whether a write that was cut off is made again: its tool must have honoured its key when it began, and still.

    `now`: by the database's clock. Where the call goes to, keys are forgotten after a while.
    """
    if not tool.honours_key or execution.idempotency_key is None:
        return False
    if execution.started_at is None or execution.started_at < now - timedelta(hours=settings.KEY_HOLDS_HOURS):
        return False
    if execution.with_key is None:  # begun by a worker of an older release
        return not _has_promised_otherwise(tool, execution.started_at)
    return execution.with_key


def stops(run: Run, tool: Tool) -> bool:
    """Whether no further attempt is made: a switch covers the call, or its tool no longer promises to honour keys."""
    keeps = not tool.consequential or Tool.objects.filter(pk=tool.pk, idempotency=Tool.Idempotency.KEY).exists()
    return not keeps or switches.stops_repeats(run, tool.name)


def _has_promised_otherwise(tool: Tool, since: datetime | None) -> bool:
    """Whether what a tool does with keys may have changed since then, or shortly before, unknown to the worker."""
    if since is None:
        return True
    changed = Event.objects.filter(
        chain=ledger.CONFIGURATION, type="configuration.changed", at__gte=since - TOLD_WITHIN
    )
    row = tool._meta.label, str(tool.pk)
    return any(
        (event.data["table"], event.data["key"]) == row and "idempotency" in event.data["after"]
        for event in changed.order_by("seq")
    )


def may_be_tried_again(result: ToolResult, *, with_key: bool = False) -> bool:
    """Whether another attempt is safe and may help. With a key, it is also safe when the call may have happened."""
    return result.status == "retryable_error" or (with_key and result.reason == Reason.OUTCOME_UNKNOWN)


def until_answered(
    cancellation: Cancellation,
    numbers: range,
    call: Callable[[int], ToolResult],
    again: Callable[[ToolResult], bool] = may_be_tried_again,
    stopped: Callable[[], bool] = lambda: False,
) -> Tried:
    """Make attempts with these numbers until another is not worthwhile, or the run is told to stop.

    `stopped`: asked after the pause, before each attempt except the first. Mocks need no pause.
    """
    failures: list[dict[str, Any]] = []
    notes: tuple[Note, ...] = ()
    for number in numbers:
        result = call(number)
        notes += result.notes
        if result.status in FAILED:
            failures.append(_failure(number, result))
        if number == numbers[-1] or not again(result):
            break
        if cancellation.pause(0 if isolation.is_on() else pause(len(failures), result.retry_after)) or stopped():
            break
    if len(failures) > 1 and result.status != "ok":
        result = replace(result, message=f"It failed after {len(failures)} attempts. {result.message}".strip())
    # What an attempt noted belongs in the record, even if a later attempt gives the answer.
    return Tried(replace(result, notes=notes), number, tuple(failures))


def with_earlier(tried: Tried, *, begun_before: bool) -> Tried:
    """The result of a write: even if its last attempt did nothing, an earlier one may have acted.

    `begun_before`: the call has already begun once, with unknown outcome.
    """
    unknown = begun_before or any(failure["reason"] == Reason.OUTCOME_UNKNOWN for failure in tried.failures)
    if not unknown or tried.result.took_effect:
        return tried
    # A refusal is not among the failures yet.
    said = () if tried.result.status in FAILED else (_failure(tried.attempts, tried.result),)
    result = replace(tried.result, status="fatal_error", reason=Reason.OUTCOME_UNKNOWN)
    return replace(tried, result=result, failures=(*tried.failures, *said))


def pause(failures: int, retry_after: float | None) -> float:
    """Seconds before the next attempt: from one, doubling, plus or minus a quarter. What the tool asks for wins."""
    if retry_after is not None:
        return min(max(retry_after, 0), MAX_PAUSE_SECONDS)
    planned = FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10)
    jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    return min(planned * jitter, MAX_PAUSE_SECONDS)


def timed_out(tool: Tool) -> ToolResult:
    if tool.consequential:
        return ToolResult(status="fatal_error", reason=Reason.OUTCOME_UNKNOWN, message="It did not answer in time.")
    message = f"{tool.name} did not answer in {tool.timeout_seconds} s."
    return ToolResult(status="retryable_error", reason=Reason.TOOL_TIMEOUT, message=message)


def stopped(tool: Tool) -> ToolResult:
    """The tool stopped when it was told to, and says that nothing has happened."""
    message = f"{tool.name} was told to stop, and stopped before it did anything."
    return ToolResult(status="fatal_error", reason=Reason.CANCELLED, message=message)


def limited(reached: LimitReached) -> ToolResult:
    """The tool was stopped at a limit. What it had counted by then stays done."""
    message = f"{reached} What is done stays done: do not propose the whole again, and tell a person what is left."
    return ToolResult(
        status="fatal_error",
        reason=Reason.LIMIT_REACHED,
        message=message,
        data={"stopped_at": reached.kind, "done": reached.done},
        trust="trusted_system",
    )


def with_counts(result: ToolResult, counter: Counter) -> ToolResult:
    """A result with what the tool counted in its record, however it ended."""
    counted = counter.facts
    return replace(result, notes=(*result.notes, Note("counted", counted))) if counted else result


def failed(tool: Tool, error: Exception) -> ToolResult:
    if isinstance(error, OutcomeUnknown):
        return ToolResult(status="fatal_error", reason=Reason.OUTCOME_UNKNOWN, message=str(error))
    if isinstance(error, ToolError):
        return of_error(error)
    message = f"{type(error).__name__}: {error}"[:2000]
    # Any other exception from a write does not say that nothing happened.
    reason = Reason.OUTCOME_UNKNOWN if tool.consequential else Reason.TOOL_FAILURE
    return ToolResult(status="fatal_error", reason=reason, message=message)


def context_of(
    state: RunState,
    execution: ToolExecution,
    tool: Tool,
    attempt: int,
    cancelled: threading.Event,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> ToolContext:
    """What a tool is told about the call it answers."""
    run = state.run
    return ToolContext(
        run_id=str(run.pk),
        step=state.steps[-1].step.number,
        call_id=execution.call_id,
        agent=run.agent_snapshot["name"],
        conversation_id=str(run.conversation_id or ""),
        customer=run.customer,
        actor=run.starter.get_username() if run.starter else "",
        route=run.route,
        idempotency_key=execution.idempotency_key or "",
        deadline=datetime.now(UTC) + timedelta(seconds=tool.timeout_seconds),
        attempt=attempt,
        state=MappingProxyType(
            {
                "input": run.input,
                "metadata": MappingProxyType(copy.deepcopy(run.metadata)),
                "shared": MappingProxyType(state.hooks.shared),
            }
        ),
        tools=tuple(specs(state.disclosed)),
        cancelled=cancelled,
        counter=grant_use.counter_of(execution, limits),
        make_receipt=partial(receipts.header, execution.approval_id) if execution.approval_id else str,
    )


def _failure(number: int, result: ToolResult) -> dict[str, Any]:
    return {
        "attempt": number,
        "status": result.status,
        "reason": str(result.reason),
        "message": result.message,
        "at": datetime.now(UTC).isoformat(),
    }
