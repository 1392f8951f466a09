"""How many calls a run may make: of one tool, and in all. Counted from the run's rows in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentapp.executions import Proposal
from agentapp.messages import StopSignal
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.reasons import Reason, StopReason
from agentapp.transcript import StepRows

# Under this key of its `control`, a refused call's row names the limit, for a worker that takes over.
CONTROL = "call_limit"


@dataclass(frozen=True)
class Exceeded:
    """A limit that one more call would exceed."""

    source: str
    """The setting that holds the limit."""
    tool: str
    current: int
    most: int

    @property
    def told(self) -> str:
        """What the model reads."""
        if self.source == "max_calls":
            return (
                f"Tool call limit exceeded. Do not call {self.tool!r} or any other tool again. "
                f"{self.current}/{self.most} calls of this run are used up."
            )
        return (
            f"Tool call limit exceeded. Do not call {self.tool!r} again. "
            f"It has been called {self.current}/{self.most} times in this run."
        )

    @property
    def control(self) -> dict[str, Any]:
        """What the call's row keeps about the limit."""
        return {CONTROL: {"source": self.source, "tool": self.tool, "current": self.current, "max": self.most}}


def exceeded(run: Run, tool: Tool, steps: Iterable[StepRows], before: Sequence[Proposal]) -> Exceeded | None:
    """The limit that one more call of a tool would exceed. `before`: the earlier calls of the same reply."""
    most, in_all = tool.max_calls_per_run, run.agent_snapshot.get("max_calls")
    if most is None and in_all is None:
        return None
    counted = [execution.name for rows in steps for execution in rows.executions if _counts(execution)]
    counted += [proposal.call.name for proposal in before if proposal.refusal is None]
    if most is not None and counted.count(tool.name) >= most:
        return Exceeded("max_calls_per_run", tool.name, counted.count(tool.name), most)
    if in_all is not None and len(counted) >= in_all:
        return Exceeded("max_calls", tool.name, len(counted), in_all)
    return None


def ends_run(run: Run) -> bool:
    """Whether one call too many ends the run, rather than only being refused."""
    return run.agent_snapshot.get("on_call_limit") in (Agent.OnCallLimit.STOP, Agent.OnCallLimit.FAIL)


def ending(run: Run, executions: Iterable[ToolExecution]) -> tuple[str, StopSignal] | None:
    """The state and signal with which one call too many ends a run, from the rows of its last step."""
    if not ends_run(run):
        return None
    for execution in executions:
        # If the call has begun, its result is the tool's own and not a limit of ours.
        is_refused = execution.reason == Reason.CALL_LIMIT_EXCEEDED and execution.started_at is None
        found = execution.control.get(CONTROL) if is_refused else None
        if isinstance(found, dict):
            return _ending(run, found)
    return None


def _ending(run: Run, found: dict[str, Any]) -> tuple[str, StopSignal]:
    source, tool = str(found.get("source", "")), str(found.get("tool", ""))
    calls = f"calls of {tool}" if source == "max_calls_per_run" else "calls"
    used = f"{found.get('current')}/{found.get('max')} {calls}"
    message = f"Call limit reached: {used}, and the model asked for more."
    fails = run.agent_snapshot["on_call_limit"] == Agent.OnCallLimit.FAIL
    context = {name: found.get(name) for name in ("tool", "current", "max")}
    signal = StopSignal(StopReason.STEPS_LIMIT, message, context, source)
    return Run.State.FAILED if fails else Run.State.STOPPED, signal


def _counts(execution: ToolExecution) -> bool:
    """Whether a call ran or may still run. A refused call uses nothing up."""
    return execution.started_at is not None or not execution.is_answered
