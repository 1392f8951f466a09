"""Lets a run that is answered from a record follow it: people's decisions are repeated, and it ends in the same way.

Every call passes the same checks as in any run. Nobody is asked, and nothing happens outside.
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

# A call that keeps asking, because the state it rests on keeps changing, is given up.
MOST_ASKED = 5

State = ToolExecution.State


def ending(state: RunState) -> Ending | None:
    """How a run ends now, although its model has not ended it. None: it goes on."""
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
    """Repeat people's decisions on the waiting requests. If they had not decided, the run ends as it did then."""
    for execution in state.steps[-1].open:
        if execution.state == State.OUTCOME_UNKNOWN and recorded.is_replay:
            return _as_then(recorded) or _failed("In a replay, nobody can find out what became of a call.")
        if execution.state != State.WAITING:
            continue
        approval = waiting.approval_of(execution)
        if approval.state != Approval.State.PENDING:
            continue
        if execution.times_asked > MOST_ASKED:
            return _failed(f"The decision about {execution.name} never stays valid until the call runs.")
        decided = recorded.decided(state.history, execution)
        if decided is None:
            return _as_then(recorded) or _failed(f"Nobody had decided about {execution.name} when the run ended.")
        refused = _take(state, approval, decided)
        if refused:
            return _failed(f"The decision made then about {execution.name} cannot be made today: {refused}")
    return None


def _take(state: RunState, approval: Approval, decided: Decided) -> str:
    """Let the record decide. Returns why it may not, or an empty string if it did."""
    with ledger.transaction():
        state.locked()
        if decided.type == EXPIRE:
            decisions.lapse(approval.pk)
            return ""
        said = {"message": decided.message, "stop_run": decided.stop_run, "edited_text": decided.arguments_text}
        title = approval.title if decided.arguments_text else ""
        incoming = decisions.Incoming.in_place_of_people(approval, decided.type, RECORD, edited_title=title, **said)
        taken = decisions.decide(approval.pk, incoming, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))
    return taken.message if isinstance(taken, Refusal) else ""


def _as_then(recorded: Recorded) -> Ending | None:
    """How something outside ended the run on record. None: it ended by itself, and so may this one."""
    end = recorded.end
    if end is None:
        return None
    return Ending(recorded.run.state, end, recorded.run.answer if recorded.run.answer_is_partial else "")


def _failed(message: str) -> Ending:
    return Ending(Run.State.FAILED, StopSignal(StopReason.ERROR, message, source=RECORD))
