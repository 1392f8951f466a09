"""Whether a run makes progress. A run that repeats itself is stopped before it reaches its other limits."""

from collections.abc import Iterator, Sequence

from agentapp.messages import StopSignal
from agentapp.models import ToolExecution
from agentapp.reasons import Reason, StopReason
from agentapp.transcript import StepRows

TIMES = 3
# People saw each of these calls, so they decide when to stop.
_BY_PEOPLE = {Reason.APPROVAL_REJECTED, Reason.APPROVAL_EXPIRED}

type Seen = tuple[str, str, str, str, str]


def stuck(steps: Sequence[StepRows]) -> StopSignal | None:
    """Why a run should stop: three times, the same call gave the same result or the same refusal came."""
    return _refused_again(steps) or _same_again(steps)


def _same_again(steps: Sequence[StepRows]) -> StopSignal | None:
    """The last step repeats a call for the third time, and nothing new has been learnt since the second."""
    if not steps:
        return None
    first_seen: dict[Seen, int] = {}
    seen_in: dict[Seen, list[int]] = {}
    for place, rows in enumerate(steps):
        for seen in set(_seen(rows)):
            first_seen.setdefault(seen, place)
            seen_in.setdefault(seen, []).append(place)
    for execution, result in zip(steps[-1].executions, _seen_each(steps[-1]), strict=True):
        places = seen_in.get(result, []) if result else []
        if len(places) >= TIMES and not any(place > places[-2] for place in first_seen.values()):
            message = (
                f"No progress: {execution.name} was called {len(places)} times with the same arguments "
                f"and gave the same result each time."
            )
            return StopSignal(StopReason.NO_PROGRESS, message, source=f"tool:{execution.name}")
    return None


def _refused_again(steps: Sequence[StepRows]) -> StopSignal | None:
    """Every call of the last three steps was refused, each time for the same reason."""
    last = [rows.executions for rows in steps[-TIMES:]]
    if len(last) < TIMES or not all(last):
        return None
    reasons = {execution.reason if _is_refused(execution) else "" for calls in last for execution in calls}
    if len(reasons) != 1 or reasons <= _BY_PEOPLE | {""}:
        return None
    (reason,) = reasons
    message = f"No progress: calls were refused for the same reason {TIMES} times in a row ({reason})."
    return StopSignal(StopReason.NO_PROGRESS, message, source=f"refusal:{reason}")


def _is_refused(execution: ToolExecution) -> bool:
    return execution.result_status == ToolExecution.ResultStatus.REFUSED


def _seen(rows: StepRows) -> Iterator[Seen]:
    return (seen for seen in _seen_each(rows) if seen is not None)


def _seen_each(rows: StepRows) -> list[Seen | None]:
    """The outcome of each call. None if it may be repeated, was refused, is not answered, or reads a variable."""
    return [
        None
        if execution.state != ToolExecution.State.FINISHED
        or _is_refused(execution)
        or execution.variable
        or (execution.tool is not None and execution.tool.repeatable)
        else (
            execution.name,
            execution.arguments_digest,
            execution.result_status,
            execution.reason,
            execution.result_text or execution.message,
        )
        for execution in rows.executions
    ]
