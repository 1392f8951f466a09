"""What a kill switch stops: a call that would run now, and its run, until the switch is released."""

from agentapp import runs, switches, waiting
from agentapp.models import KillSwitch, Run, ToolExecution
from agentapp.state import RunState
from approvals import ledger
from approvals.models import Approval

State = ToolExecution.State


def stopping(state: RunState, execution: ToolExecution) -> KillSwitch | None:
    """The kill switch that stops a call that would run now. People can still decide about a waiting call."""
    switch = state.configuration.switch_of(state.run) or state.configuration.switch_of_tool(execution.name)
    if switch is None or execution.state in (State.PROPOSED, State.OUTCOME_UNKNOWN):
        return None
    if execution.state == State.WAITING:
        approval = waiting.approval_of(execution)
        is_due = approval.runs_at is not None and approval.runs_at <= runs.clock(state.run)
        return switch if approval.state == Approval.State.APPROVED and is_due else None
    return switch


def park(state: RunState, switch: KillSwitch) -> bool:
    """Release the run until a kill switch is released. False: the switch was released meanwhile."""
    with ledger.transaction():
        run = state.locked()
        state.refresh_configuration()
        if run.is_told_to_stop or not switches.still_engaged(switch):
            return False
        runs.park(run, state.token, Run.WaitingFor.SWITCH)
    return True
