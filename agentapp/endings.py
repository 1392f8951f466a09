"""When the results of a step's calls end a run: a result is the answer, or a failure must stop it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentapp import call_limits
from agentapp.messages import FAILED, StopSignal
from agentapp.models import Run, ToolExecution
from agentapp.reasons import StopReason

_STATE, _STATUS = ToolExecution.State, ToolExecution.ResultStatus


@dataclass(frozen=True)
class Ending:
    """How a run ends."""

    state: str
    signal: StopSignal
    answer: str = ""


def of_calls(run: Run, executions: Sequence[ToolExecution]) -> Ending | None:
    """How the outcomes of the calls of its last step end a run. None: it goes on.

    A failure counts as soon as it is stored, and the calls after it do not run. A refusal by a tool or a
    person is not a failure. A call beyond a limit ends the run if its agent says so.
    """
    too_many = call_limits.ending(run, executions)
    if too_many is not None:
        return Ending(*too_many)
    failed = [execution for execution in executions if _failed(execution)]
    if failed and run.agent_snapshot.get("raise_on_tool_failure"):
        return Ending(Run.State.FAILED, _signal(failed[0]))
    fatal = next((execution for execution in failed if execution.tool and execution.tool.stop_on_failure), None)
    if fatal is not None:
        return Ending(Run.State.STOPPED, _signal(fatal))
    if not all(execution.is_answered for execution in executions):
        return None
    direct = [execution for execution in executions if _is_answer(execution)]
    if not direct:
        return None
    signal = StopSignal(StopReason.COMPLETED, "", source=f"tool:{direct[0].name}")
    return Ending(Run.State.SUCCEEDED, signal, "\n\n".join(map(_result_text, direct)))


def strictly(run: Run, final: str, signal: StopSignal) -> tuple[str, StopSignal]:
    """The ending unchanged, or a failure if the agent's runs may not succeed after a tool has failed."""
    if final == Run.State.SUCCEEDED and run.had_tool_errors and run.agent_snapshot.get("fail_run_on_tool_error"):
        why = "There is an answer, but a tool failed before it."
        return Run.State.FAILED, StopSignal(StopReason.TOOL_FAILURE, why, source="fail_run_on_tool_error")
    return final, signal


def _failed(execution: ToolExecution) -> bool:
    return execution.state == _STATE.FINISHED and execution.result_status in FAILED


def _is_answer(execution: ToolExecution) -> bool:
    ok = execution.state == _STATE.FINISHED and execution.result_status == _STATUS.OK
    return ok and execution.tool is not None and execution.tool.return_direct


def _result_text(execution: ToolExecution) -> str:
    value = execution.value
    if value is None and execution.message:
        return execution.message
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _signal(execution: ToolExecution) -> StopSignal:
    why = f"{execution.name} failed ({execution.reason}): {execution.message}"[:2000]
    return StopSignal(StopReason.TOOL_FAILURE, why, source=f"tool:{execution.name}")
