"""Compares, after a call, what its dry run predicted with the outcome, and keeps the comparison with the call."""

from agentapp import executions, previews
from agentapp.messages import ToolResult
from agentapp.models import Tool, ToolExecution
from agentapp.state import RunState
from approvals import ledger
from approvals.models import Approval


def hold_against(state: RunState, execution: ToolExecution, tool: Tool, given: ToolResult) -> None:
    """Compare once the result is stored: a worker that dies here leaves a call without comparison, not in doubt.

    Costs nothing for a tool without a dry run. Raises LeaseLost.
    """
    if not tool.takes_preview or execution.approval_id is None or not given.took_effect:
        return
    approval = Approval.objects.get(pk=execution.approval_id)
    comparison = previews.compared(tool, execution, approval.shown_preview_text, given.data)
    if comparison is None:
        return
    facts = {
        "as_predicted": previews.is_as_predicted(comparison),
        "drifted": previews.drifted(comparison),
        **({"unavailable": comparison["unavailable"]} if comparison["unavailable"] else {}),
    }
    with ledger.transaction():
        state.locked()
        executions.compare(execution, comparison, facts)
