"""A run that is answered by a record goes on by it: what people said then is said again, and the end is the same.

Everything passes the same gate as in any run. Nobody is asked, and nothing happens.
"""

from datetime import timedelta

from django.conf import settings

from agentapp import endings, waiting
from agentapp.endings import Ending
from agentapp.messages import StopSignal
from agentapp.models import Run, ToolExecution
from agentapp.reasons import StopReason
from agentapp.recorded import EXPIRE, RECORD, Decided, Recorded
from agentapp.state import RunState
from approvals import decisions, ledger
from approvals.models import Approval
from approvals.standing import Refusal

# A call that asks again and again, as what it rests on is never the same, is let go.
MOST_ASKED = 5

State = ToolExecution.State


def ending(state: RunState) -> Ending | None:
    """How a run ends now, though its model has not said so. None: it goes on."""
    if not state.steps:
        return None
    rows = state.steps[-1]
    ends = endings.of_calls(state.run, rows.executions)
    recorded = state.recorded
    if ends is not None or recorded is None or state.run.is_told_to_stop:
        return ends
    if rows.open:
        return _decide(state, recorded)
    is_over = recorded.is_replay and state.run.step_count >= len(recorded.steps)
    return _as_then(recorded) if is_over else None


def _decide(state: RunState, recorded: Recorded) -> Ending | None:
    """Say what people said then of the requests that wait. Where they had said nothing, the run ends as it did then."""
    for execution in state.steps[-1].open:
        if execution.state == State.OUTCOME_UNKNOWN and recorded.is_replay:
            return _as_then(recorded) or _failed("Nobody finds out what became of a call in a replay.")
        if execution.state != State.WAITING:
            continue
        approval = waiting.approval_of(execution)
        if approval.state != Approval.State.PENDING:
            continue
        if execution.times_asked > MOST_ASKED:
            return _failed(f"What was decided about {execution.name} does not last until it runs.")
        decided = recorded.decided(state.history, execution)
        if decided is None:
            return _as_then(recorded) or _failed(f"Nobody had decided about {execution.name} when the run ended.")
        refused = _take(state, approval, decided)
        if refused:
            return _failed(f"What was decided about {execution.name} then cannot be decided today: {refused}")
    return None


def _take(state: RunState, approval: Approval, decided: Decided) -> str:
    """Let the record decide. Returns why it may not; empty where it did."""
    with ledger.transaction():
        state.locked()
        if decided.type == EXPIRE:
            decisions.lapse(approval.pk)
            return ""
        said = {"message": decided.message, "stop_run": decided.stop_run, "edited_text": decided.arguments_text}
        title = approval.title if decided.arguments_text else ""
        verdict = decisions.Verdict.in_place_of_people(approval, decided.type, RECORD, edited_title=title, **said)
        taken = decisions.decide(approval.pk, verdict, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))
    return taken.message if isinstance(taken, Refusal) else ""


def _as_then(recorded: Recorded) -> Ending | None:
    """The end that something from outside put to the run on record. None: it ended by itself, and so may this one."""
    end = recorded.end
    if end is None:
        return None
    return Ending(recorded.run.state, end, recorded.run.answer if recorded.run.answer_is_partial else "")


def _failed(message: str) -> Ending:
    return Ending(Run.State.FAILED, StopSignal(StopReason.ERROR, message, source=RECORD))
