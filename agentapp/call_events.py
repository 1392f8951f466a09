"""What is noted about one call in its run's chain."""

from typing import Any

from agentapp.models import Run, ToolExecution
from approvals import ledger


def record(execution: ToolExecution, what: str, data: dict[str, Any], actor: str = ledger.SYSTEM) -> None:
    """Note a fact about one call in its run's chain. `what` is a whole type where there is a dot in it."""
    subject = {"execution": str(execution.pk), "tool": execution.name[:200], **data}
    ledger.record(ledger.run_chain(execution.run_id), what if "." in what else f"tool_call.{what}", subject, actor)


def record_subagent(execution: ToolExecution, what: str, child: Run, data: dict[str, Any]) -> None:
    """Note in the asking run's chain what became of the run that answers one of its calls."""
    subject = {"run": str(child.pk), "agent": child.agent.name, "execution": str(execution.pk), **data}
    ledger.record(ledger.run_chain(execution.run_id), f"subagent.{what}", subject)
