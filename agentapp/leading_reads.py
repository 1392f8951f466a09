"""Which reads of a step may run now, and whether they are still reads. Nothing is called here."""

from agentapp import executions, grant_use, other_code, recheck, standstill, starters, subagents
from agentapp.asked_for import proposed_text
from agentapp.call_checks import refusal
from agentapp.executions import Outcome
from agentapp.messages import ToolResult
from agentapp.models import ToolExecution
from agentapp.proposals import ruling_for
from agentapp.reasons import Reason
from agentapp.state import RunState
from agentapp.transcript import StepRows
from approvals import ledger
from approvals.digest import parse
from approvals.models import Verdict

State = ToolExecution.State


def find(state: RunState, rows: StepRows) -> list[ToolExecution]:
    """The reads that may run now: those before the first open call that is not a read or that a switch stops."""
    found = []
    for execution in rows.open:
        if execution.consequential or execution.state not in (State.READY, State.EXECUTING):
            break
        if standstill.stopping(state, execution) is not None:
            break
        found.append(execution)
    return found


def start_late(state: RunState, reads: list[ToolExecution]) -> None:
    """Check reads that waited behind a write again: what was allowed when they were proposed may no longer be."""
    with ledger.transaction():
        subagents.lock_family(state, *reads)
        run = state.locked()
        if run.is_told_to_stop:
            return
        state.refresh_configuration(always=True)
        for read in reads:
            assert read.tool is not None
            text = proposed_text(read, read.tool)
            tool = state.configuration.tools.get(read.name, read.tool)
            if standstill.stopping(state, read) is not None:
                break
            over = recheck.over_budget(state, tool)
            ruling = ruling_for(state.situation, tool, parse(text), again=read, begins=True)
            refusal = recheck.no_longer_possible(state, read, text, read.tool_version) or recheck.denied(ruling)
            refusal = refusal or recheck.exhausted(over, tool)
            if refusal is None and ruling.verdict == Verdict.ALLOW and over is None and not tool.consequential:
                refusal = recheck.circuit_open(state, tool)
            if refusal is not None:
                executions.finish([Outcome(read, refusal)])
            elif ruling.verdict == Verdict.ASK or over is not None:
                executions.reclassify(read, tool)
                why = over.signal.message if over is not None else f"A person decides now: {ruling.reason}"
                executions.set_aside(read, why)
            elif tool.consequential:
                executions.reclassify(read, tool)
            else:
                subagents.begin(state, read, text, None, allowed_by=grant_use.allowed_by(ruling))
            if state.configuration.breakers_of(tool):
                break  # its breakers are locked: the next read's would be out of order, so they wait for the next look


def refused(state: RunState, read: ToolExecution) -> ToolResult | None:
    """Why a read that has begun is not made: an admin says that its tool changes something, or keeps it to the runs of
    others; or other code is needed, and nobody has it. Raises OtherCode if somebody may have it.
    """
    if read.name in state.configuration.barred:
        return refusal(Reason.PERMISSION_DENIED, starters.NOT_FOR.format(read.name))
    tool = state.configuration.tools.get(read.name, read.tool)
    if tool is not None and tool.consequential:
        message = f"{read.name} may change something now. Propose the call again if it is still needed."
        return refusal(Reason.ACTION_CHANGED, message)
    return other_code.refused(read)
