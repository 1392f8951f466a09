"""Stores a step with its calls, under the rules and switches in force at that moment."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agentapp import budgets, concluding, executions, guidance_rows, points, runs, steering
from agentapp.endings import Ending
from agentapp.executions import Proposal
from agentapp.messages import DecisionFailure, Reply
from agentapp.models import Run, Tool, ToolExecution
from agentapp.points import Guarded
from agentapp.proposals import Situation, judge
from agentapp.reasons import StopReason
from agentapp.state import RunState
from agentapp.transcript import StepRows
from approvals import ledger


@dataclass(frozen=True)
class Decision:
    """What a model has decided, as changed by hooks."""

    reply: Reply
    guarded: Guarded
    callable: dict[str, Tool]
    """The tools it may call."""
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True)
class Stored:
    """A step is stored. `ended`: how the run ended with it, if it did."""

    ended: Ending | None


def store(state: RunState, made: Decision) -> Stored | None:
    """Store a step with its calls. Reads that may start at once begin with it. None: the run was told to stop."""
    proposals = _judged(state, made, made.callable)
    state.just_claimed = False
    try:
        return _store(state, made, proposals)
    except ledger.Configured:  # while the worker waited to store it: calls are checked again before they begin
        state.steps.pop()
        state.drafted = True  # the rollback may have restored a draft
        return _store(state, made, proposals, begins=False)


def store_failed(state: RunState, started_at: datetime) -> None:
    """A driver failed in the middle of a decision: the step is recorded, and its hooks run."""
    reply = Reply(failure=DecisionFailure(StopReason.ERROR, "The driver failed."), usage=state.heard.credible)
    with ledger.transaction():
        step = runs.record_step(state.run, state.token, reply, sorted(state.disclosed), started_at, datetime.now(UTC))
        if step is None:
            runs.add_usage(state.run, reply.usage)
        budgets.spend(state.run, reply.usage.cost)
    if step is not None:
        state.steps.append(StepRows(step, []))
        _add_usage(state.run, reply)
        points.after_step(state)


def _judged(state: RunState, made: Decision, callable_now: dict[str, Tool]) -> list[Proposal]:
    situation = Situation(state.run, state.configuration, callable_now, state.steps, state.earlier)
    return made.guarded.marked(judge(situation, made.guarded.calls, made.guarded.answered))


def _store(state: RunState, made: Decision, proposals: list[Proposal], *, begins: bool = True) -> Stored | None:
    """Raises Configured if calls would begin under an outdated configuration. `begins`: whether any may begin."""
    reply = made.reply
    with ledger.transaction():
        if not begins:
            state.locked()  # read again, without what was rolled back
        row = (state.run, state.token, reply, sorted(made.callable), made.started_at, made.finished_at)
        step = runs.record_step(*row, height=state.configuration.height)
        if step is None:
            if state.locked().cancel_requested_at is not None:  # told to stop while the model was thinking
                runs.add_usage(state.run, reply.usage)
                budgets.spend(state.run, reply.usage.cost)
                return None
            # Something was configured or stopped meanwhile, or the run is about to be paused: use the present state.
            state.refresh_configuration(always=True)
            now_callable = {name: tool for name, tool in state.disclosed.items() if name in made.callable}
            proposals = _judged(state, made, now_callable)
            step = runs.record_step(*row)
        if step is None:
            return None
        state.discard_draft()
        if reply.failure is not None:
            rows = StepRows(step, [executions.record_failed_decision(state.run, step, reply.failure)])
        else:
            reasons = guidance_rows.record(state.run, step, reply.guidance) if reply.guidance else {}
            proposals = proposals if begins else [replace(each, starts_now=False) for each in proposals]
            rows = StepRows(step, executions.propose(state.run, step, proposals, reasons))
            steering.heed(state.run, rows.executions)  # calls that hooks have answered
        if any(execution.state == ToolExecution.State.EXECUTING for execution in rows.executions):
            ledger.only_at(state.configuration.height)
        state.steps.append(rows)
        _add_usage(state.run, reply)
        ended = concluding.end_with_step(state)
        budgets.spend(state.run, reply.usage.cost)  # last: all runs of an agent wait for the lock on its daily total
    return Stored(ended)


def _add_usage(run: Run, reply: Reply) -> None:
    """Keep the row in memory in line with what was stored."""
    run.step_count += 1
    run.input_tokens += reply.usage.input_tokens
    run.output_tokens += reply.usage.output_tokens
    run.cost += reply.usage.cost or 0
    run.model_failures = 0
