"""Rows → what a driver that follows guidelines is told in addition to the messages. Reads only."""

from dataclasses import replace

from agentapp import context_variables, guidance_rows
from agentapp.answers import answer, as_proposed
from agentapp.guidance.known import Done, Known, ToolFacts
from agentapp.models import Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.state import RunState
from agentapp.transcript import taken_back
from approvals.digest import MalformedJSON, parse

TRANSIENT = "transient_guidelines"
"""The key in a result's control for guidelines it brings along. Only a tool's own code can set it."""
# Nobody said no to these calls, so they may be proposed again unchanged.
_NOT_RUN = {Reason.CANCELLED, Reason.APPROVAL_EXPIRED, Reason.CIRCUIT_OPEN, Reason.ACTION_CHANGED}


def known_to(state: RunState, disclosed: dict[str, Tool]) -> Known:
    """Three queries, and none for the first step; four more for an agent with context variables.

    One more if a call was refused because it had been done before.
    """
    run = state.run
    begun = run.step_count > 0
    readings = sum(1 for rows in state.steps if rows.executions and all(each.variable for each in rows.executions))
    more_looks = sum(rows.step.more_looks for rows in state.steps)
    has_variables = bool(run.agent_snapshot.get("guidance", {}).get("variables"))
    found = context_variables.values(run) if has_variables else {}
    calls = _own(state)
    kept = [_done(execution, 0) for rows in state.earlier.kept for execution in rows.executions]
    return Known(
        step=run.step_count + 1,
        iteration=run.step_count - readings + more_looks + 1,
        tools={name: _facts(tool) for name, tool in disclosed.items()},
        calls=(*kept, *calls),
        done_before=_done_before(state),
        matches=tuple(guidance_rows.matches_of(run)) if begun else (),
        evaluations=tuple(guidance_rows.evaluations_of(run)) if begun else (),
        customer=run.customer,
        conversation_id=str(run.conversation_id or ""),
        route=run.route,
        stale=tuple(context_variables.stale(run)) if has_variables else (),
        # What this run has read itself is among its messages.
        variables=tuple((name, answer(row).text) for name, row in found.items() if row.run_id != run.pk),
        readings=readings,
    )


def _own(state: RunState) -> list[Done]:
    """The calls of the run itself. One that was taken back since does not count as done, but it still counts as
    made: the same call is not made again.
    """
    made = [(execution, rows.step.number) for rows in state.steps for execution in rows.executions]
    undone = taken_back({each.pk for each, _ in made if each.consequential and each.took_effect})
    return [
        replace(done, took_effect=False) if each.pk in undone else done
        for each, done in ((each, _done(each, step)) for each, step in made)
    ]


def _done_before(state: RunState) -> frozenset[str]:
    """The tools, as the model calls them, whose acts it was told were already done, and still are."""
    told = [call for steps in state.earlier.steps.values() for rows in steps for call in rows.executions]
    own = [call for rows in state.history for call in rows.executions]
    acts = [(call, call) for call in told] + [(call, call.replay_of) for call in (*told, *own)]
    took = [(call, act) for call, act in acts if act is not None and act.consequential and act.took_effect]
    done = [(call, act) for call, act in took if not act.taken_back]
    # Whether the acts the model was told about were undone was checked when they were read.
    undone = taken_back({act.pk for call, act in done if act is not call})
    return frozenset(as_proposed(call).name for call, act in done if act.pk not in undone)


def _facts(tool: Tool) -> ToolFacts:
    return ToolFacts(
        tool.name,
        tool.description,
        tool.input_schema,
        tool.consequential,
        tool.overlap,  # type: ignore[arg-type]
        tool.parameters,
        tuple(tool.secret_fields),
    )


def _stands(execution: ToolExecution) -> bool:
    if execution.taken_back:
        return False
    if execution.took_effect or execution.was_left_unknown:
        return True
    if execution.was_stopped_midway:
        return True
    failed_for_now = execution.result_status == ToolExecution.ResultStatus.RETRYABLE_ERROR
    return not (failed_for_now or execution.reason in _NOT_RUN)


def _done(execution: ToolExecution, step: int) -> Done:
    proposed = as_proposed(execution)
    try:
        arguments = parse(proposed.arguments_text or "{}")
    except MalformedJSON:
        arguments = None
    brought = execution.control.get(TRANSIENT, ())
    return Done(
        step=step,
        tool=proposed.name,
        arguments=arguments if isinstance(arguments, dict) else None,
        took_effect=execution.took_effect and not execution.taken_back,
        stands=_stands(execution),
        is_answered=execution.is_answered,
        told=answer(execution).text if execution.is_answered else "",
        transient=tuple(item for item in brought if isinstance(item, dict)) if isinstance(brought, list) else (),
    )
