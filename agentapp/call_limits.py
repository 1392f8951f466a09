"""How many calls a run may make: of one tool, and of all. Counted from the run's rows in hand."""

from collections.abc import Iterable, Sequence

from agentapp.executions import Proposal
from agentapp.models import Run, Tool, ToolExecution
from agentapp.transcript import StepRows


def exceeded(run: Run, tool: Tool, steps: Iterable[StepRows], before: Sequence[Proposal]) -> str:
    """Why one more call of a tool is too many, or an empty text. `before` stands in the same reply."""
    most, in_all = tool.max_calls_per_run, run.agent_snapshot.get("max_calls")
    if most is None and in_all is None:
        return ""
    counted = [execution.name for rows in steps for execution in rows.executions if _counts(execution)]
    counted += [proposal.call.name for proposal in before if proposal.refusal is None]
    if most is not None and counted.count(tool.name) >= most:
        return (
            f"Tool call limit exceeded. Do not call {tool.name!r} again. "
            f"It has been called {counted.count(tool.name)}/{most} times in this run."
        )
    if in_all is not None and len(counted) >= in_all:
        return (
            f"Tool call limit exceeded. Do not call {tool.name!r} or any other tool again. "
            f"{len(counted)}/{in_all} calls of this run are used up."
        )
    return ""


def _counts(execution: ToolExecution) -> bool:
    """Whether a call ran or may still run. What was refused has used nothing up."""
    return execution.started_at is not None or not execution.is_answered
