"""What an agent may use in one run before it must answer or stop."""

from collections.abc import Sequence

from agentapp.messages import StopSignal
from agentapp.models import Agent, Run
from agentapp.reasons import StopReason
from agentapp.transcript import StepRows


def reached(run: Run, steps: Sequence[StepRows], worked_seconds: float) -> StopSignal | None:
    """The first limit that leaves no room for another decision. Usage is read from rows, never from messages."""
    agent = run.agent_snapshot
    tokens = run.input_tokens + run.output_tokens
    if run.step_count >= agent["max_steps"]:
        return _signal(StopReason.STEPS_LIMIT, "Step", run.step_count, agent["max_steps"], "max_steps")
    if agent["max_tokens"] is not None and tokens >= agent["max_tokens"]:
        return _signal(StopReason.TOKEN_LIMIT, "Token", tokens, agent["max_tokens"], "max_tokens")
    if agent["max_seconds"] is not None and worked_seconds >= agent["max_seconds"]:
        return _signal(StopReason.TIME_LIMIT, "Time", int(worked_seconds), agent["max_seconds"], "max_seconds", " s")
    finished = finish_signal(run, steps)
    if finished is not None:
        return finished
    if agent["on_limit"] == Agent.OnLimit.STOP and rounds_are_used_up(run, steps):
        return rounds_signal(run, steps)
    return None


def finish_signal(run: Run, steps: Sequence[StepRows]) -> StopSignal | None:
    """Whether the last reply ended in a way that stops the agent, for example cut off."""
    finish = steps[-1].step.finish_reason if steps else ""
    if not finish or finish not in run.agent_snapshot["finish_reasons"]:
        return None
    message = f"The model ended its reply with {finish}, and the agent stops there."
    return StopSignal(StopReason.FINISH_REASON, message, {"finish_reason": finish}, "finish_reasons")


def rounds_are_used_up(run: Run, steps: Sequence[StepRows]) -> bool:
    """Whether the model has had all its rounds of calls and results."""
    return rounds(steps) >= int(run.agent_snapshot["max_iterations"])


def rounds_signal(run: Run, steps: Sequence[StepRows]) -> StopSignal:
    limit = run.agent_snapshot["max_iterations"]
    message = f"Iteration limit reached: {rounds(steps)}/{limit} rounds of calls."
    return StopSignal(StopReason.STEPS_LIMIT, message, {"current": rounds(steps), "max": limit}, "max_iterations")


def rounds(steps: Sequence[StepRows]) -> int:
    """How often the model has asked for calls. Reads of context variables do not count: it did not ask for them."""
    return sum(any(not execution.variable for execution in rows.executions) for rows in steps)


def _signal(reason: StopReason, what: str, current: int, limit: int, source: str, unit: str = "") -> StopSignal:
    message = f"{what} limit reached: {current}/{limit}{unit}."
    return StopSignal(reason, message, {"current": current, "max": limit}, source)
