"""An agent asks an agent: the run that answers the call is started and waited for, and its answer comes back.

Only the other run's final answer becomes part of the asking run. Rows of several runs are locked from the root down.
"""

import uuid
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from agentapp import agent_tools, budgets, executions, families, mocks, nudges, points, runs, steering
from agentapp.executions import Outcome
from agentapp.messages import StopSignal, ToolResult
from agentapp.models import Agent, Run, ToolExecution
from agentapp.reasons import Reason, StopReason
from agentapp.recorded import RECORD
from agentapp.state import RunState
from agentapp.toolset import snapshot_of
from agentapp.transcript import StepRows
from approvals import decisions, ledger
from approvals.detectors import shortened
from approvals.digest import parse, storable
from approvals.models import Grant

MAX_TITLE_CHARS = 120
SCRIPTED = "scripted"

# How a run may end if people or rules stopped it and nothing is broken.
_REFUSED: dict[str, str] = {
    StopReason.APPROVAL_DENIED: Reason.APPROVAL_REJECTED,
    StopReason.APPROVAL_EXPIRED: Reason.APPROVAL_EXPIRED,
}


def is_asking(execution: ToolExecution) -> bool:
    """Whether a call waits for the answer of another agent."""
    return execution.state == ToolExecution.State.EXECUTING and execution.subrun_id is not None


def lock_family(state: RunState, *calls: ToolExecution) -> None:
    """`families.lock`, if one of these calls asks an agent. Called before the run's own row is locked."""
    if any(agent_tools.asks_agent(call.tool) for call in calls):
        families.lock(state.run)


def begin(
    state: RunState,
    execution: ToolExecution,
    text: str,
    key: str | None,
    allowed_by: str = "",
    grant: Grant | None = None,
) -> bool:
    """`executions.begin`; a call that asks an agent begins together with the run that answers it.

    The caller holds the lock on the run's row. False: the call is not in a state from which it may start. If the
    configuration has changed since it was read, the caller's transaction raises `ledger.Configured` at its end.
    """
    tool = state.configuration.tools.get(execution.name, execution.tool)
    execution.with_key = tool is not None and tool.honours_key
    if tool is not None and tool.effect_class != execution.effect_class:
        executions.reclassify(execution, tool)  # whoever finds it cut off goes by what it is now
    if not executions.begin(execution, text, key, allowed_by, grant):
        return False
    ledger.only_at(state.configuration.height)
    agent = state.configuration.subagents.get(execution.name)
    if agent is not None and execution.subrun_id is None and _is_asked(state.run, execution.name, agent):
        _spawn(state.run, execution, agent, parse(text))
    return True


def collect(state: RunState, rows: StepRows) -> bool:
    """Answer the calls whose agents are done, as changed by hooks. False: none is. No transaction is open here."""
    asking = _asking(rows)
    ended = Run.objects.filter(pk__in=asking, state__in=Run.FINAL).select_related("agent").order_by("pk")
    children = list(steering.with_wishes(ended.defer("agent_snapshot", "script")))
    outcomes = [_outcome(state, asking[child.pk], child) for child in children]
    with ledger.transaction():
        run = state.locked()
        executions.finish(outcomes)
        steering.heed(run, [outcome.execution for outcome in outcomes])
        for outcome, child in zip(outcomes, children, strict=True):
            facts = {"state": child.state, "status": outcome.result.status}
            executions.record_subagent(outcome.execution, "completed", child, facts)
        if any(outcome.result.status != "ok" for outcome in outcomes):
            runs.mark_tool_error(run)
    return bool(outcomes)


def _outcome(state: RunState, execution: ToolExecution, child: Run) -> Outcome:
    """What an agent has answered, as changed by hooks."""
    answered = replace(answer_of(child), control=steering.wish_of(child))
    made, raw = points.after_tool_use(state, execution, answered)
    return Outcome(execution, made, raw=raw)


def any_ended(rows: StepRows) -> bool:
    """Whether an agent that a call of the step waits for is done. No query for a step that waits for none."""
    asking = _asking(rows)
    return bool(asking) and Run.objects.filter(pk__in=asking, state__in=Run.FINAL).exists()


def answer_of(child: Run) -> ToolResult:
    """The answer to a call whose run has ended. Reads `agent`, which the caller has fetched."""
    who, metadata = child.agent.name, {"run": str(child.pk), "stop_reason": child.stop_reason}
    if child.answer and (child.state == Run.State.SUCCEEDED or child.answer_is_partial):
        message = ""
        if child.answer_is_partial:
            message = f"This answer from {who} is partial ({child.stop_reason}): {child.stop_message}"
        return ToolResult(data=child.answer, message=message, metadata=metadata)
    why = (
        f"{who} ended without an answer ({child.stop_reason}): {child.stop_message} What it did until then stays done."
    )
    if child.state == Run.State.CANCELLED:
        return ToolResult(status="refused", reason=Reason.CANCELLED, message=why, metadata=metadata)
    if child.stop_reason in _REFUSED:
        return ToolResult(status="refused", reason=_REFUSED[child.stop_reason], message=why, metadata=metadata)
    return ToolResult(status="fatal_error", reason=Reason.TOOL_FAILURE, message=why, metadata=metadata)


def cancel(run: Run, signal: StopSignal, actor: str = ledger.SYSTEM) -> None:
    """End a run and those it began, at once or before the next model or tool call of the worker that holds it.

    The caller holds the lock on its row, having locked its parent's row first.
    """
    budgets.pay_all(_cancel(run, signal, actor))


def _cancel(run: Run, signal: StopSignal, actor: str) -> list[tuple[Run, Decimal]]:
    """Cancel a run and those it began. Returns what calls under way had cost, to be paid when all are locked."""
    if run.state == Run.State.RUNNING:
        runs.request_cancel(run, actor, signal.reason, signal.message)
        return []
    if run.is_final:
        return []
    costs = cancel_begun(run, signal.reason, signal.message, actor)
    costs.append((run, executions.cancel_open(run, signal.message)))
    decisions.withdraw(run.pk, "The run has ended.")
    runs.finish(run, Run.State.CANCELLED, signal, actor=actor)
    return costs


def below(run: Run) -> list[Run]:
    """The unfinished runs that this one asked for, and those they did, locked from the top."""
    found: list[Run] = []
    above = [run.pk]
    while above:
        ids = Run.objects.filter(parent__in=above).exclude(state__in=Run.FINAL).order_by("pk")
        level = [child for pk in list(ids.values_list("pk", flat=True)) if (child := runs.lock(pk)) is not None]
        found += level
        above = [child.pk for child in level]
    return found


def put_aside(run: Run, actor: str) -> None:
    """Pause the runs below a run with it. A run that was paused by itself stays as it is. The caller holds its lock."""
    for child in below(run):
        if not runs.put_aside(child, actor, beside=run) and runs.is_aside_with(child, run):
            runs.want_paused_too(child, actor, beside=run)


def go_on(run: Run, actor: str) -> None:
    """Resume the runs below a run that were paused with it. The caller holds its lock."""
    for child in below(run):
        if child.is_aside and runs.is_aside_with(child, run):
            runs.take_back_pause(child, actor)
            transaction.on_commit(partial(nudges.nudge, child.pk), robust=True)


def cancel_begun(run: Run, reason: str, message: str, actor: str = ledger.SYSTEM) -> list[tuple[Run, Decimal]]:
    """End the runs that answer this run's calls. The caller holds the lock on its row, ends it, and then pays."""
    costs: list[tuple[Run, Decimal]] = []
    going = Run.objects.filter(parent=run).exclude(state__in=Run.FINAL).order_by("pk")
    for child_id in going.values_list("pk", flat=True):
        child = runs.lock(child_id)
        if child is not None:
            why = StopSignal(reason, f"The run that asked for it has ended: {message}", source=run.reference)
            costs += _cancel(child, why, actor)
    return costs


def _asking(rows: StepRows) -> dict[uuid.UUID, ToolExecution]:
    """The calls of a step that wait for other agents, by the run that answers each."""
    return {e.subrun_id: e for e in rows.open if is_asking(e) and e.subrun_id is not None}


def _is_asked(run: Run, tool: str, agent: Agent) -> bool:
    """Whether a call begins a run of the agent. In a mocked run, mocks can answer for the agent; and if the run's own
    model is a script, no agent asks a real model.
    """
    if not run.is_mocked:
        return True
    if mocks.answers_tool(run, tool) or RECORD in (run.mocks or {}):
        return False
    is_scripted = run.script is not None or run.agent_snapshot["driver"] == SCRIPTED
    return not is_scripted or agent.driver == SCRIPTED or mocks.script_of(run, agent.name) is not None


def _spawn(parent: Run, execution: ToolExecution, agent: Agent, arguments: dict[str, Any]) -> None:
    text = storable(arguments["input"])
    # The agent that a person started sets how deep agents may ask agents.
    snapshot = {**snapshot_of(agent), "max_depth": parent.agent_snapshot.get("max_depth", agent.max_depth)}
    if parent.is_mocked and "rules" in parent.agent_snapshot:
        snapshot["rules"] = parent.agent_snapshot["rules"]  # assumed rules apply to all of them
    start = runs.Start(
        agent=agent,
        agent_snapshot=snapshot,
        input=text,
        title=_title(execution.name, text),
        starter=parent.starter,
        token=parent.token,
        route=arguments.get("route", ""),
        customer=parent.customer,
        # Rules and tools read it, whichever agent acts.
        metadata=parent.metadata,
        parent=parent,
        mocks=parent.mocks,
        script=mocks.script_of(parent, agent.name),
    )
    child = runs.create(start, via=f"asked by {parent.reference}")
    executions.await_run(execution, child)
    executions.record_subagent(execution, "spawned", child, {"depth": child.depth})
    ledger.record(
        ledger.run_chain(child.pk),
        "subagent.spawned",
        {"parent": str(parent.pk), "execution": str(execution.pk), "depth": child.depth},
    )
    transaction.on_commit(partial(nudges.nudge, child.pk), robust=True)


def _title(name: str, text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shortened(f"{name}: {first}", MAX_TITLE_CHARS)
