"""The second half of the pipeline: the gate, and the only place where a tool is called.

Calls take effect in the model's order. Neighbouring reads run together; a write runs alone, and
nothing overtakes an earlier write of its step, whether it runs or waits. Calls that need a person are
put on cards, all of a step at once, and the run releases its worker.
"""

import logging
import traceback
from contextlib import suppress
from decimal import Decimal
from functools import partial

from agentapp import (
    attempts,
    breakers,
    budgets,
    cards,
    draining,
    endings,
    executions,
    foresight,
    grant_use,
    late,
    leading_reads,
    logs,
    other_code,
    plan_use,
    points,
    recheck,
    runs,
    standstill,
    steering,
    subagents,
    switches,
    waiting,
)  # fmt: skip
from agentapp.asked_for import proposed_text
from agentapp.attempts import Tried
from agentapp.deadline import DeadlineExceeded, together, within
from agentapp.executions import Outcome
from agentapp.messages import StopRun, ToolResult
from agentapp.models import Run, Tool, ToolExecution
from agentapp.proposals import planned_as, ruling_for, wanted_of
from agentapp.reasons import Reason
from agentapp.state import RunState
from agentapp.tools.context import Cancelled, OutcomeUnknown
from agentapp.tools.counting import LimitReached
from agentapp.tools.results import ToolError, checked
from agentapp.tools.sources import implementation_of
from agentapp.transcript import StepRows
from agentapp.waiting import Settled
from approvals import decisions, ledger
from approvals.digest import parse
from approvals.models import Approval, Verdict

State = ToolExecution.State
log = logging.getLogger(__name__)


def settle(state: RunState) -> Settled:
    """Take the open calls of the last step as far as they can go. Raises LeaseLost, or Configured as one begins."""
    rows = state.steps[-1]
    # Each turn answers, holds or releases a call. A call takes a few turns at most.
    for _ in range(10 * len(rows.executions)):
        signal = points.stop_wanted(state, rows)
        if signal is not None:
            return Settled(stop=signal)
        if not rows.open or endings.of_calls(state.run, rows.executions) is not None:
            return Settled()
        if state.run.is_told_to_stop:
            return Settled()
        if draining.begun.is_set():
            return Settled(leaves=True)
        seen = waiting.look(rows)
        if (acted := waiting.asked_or_stopped(state, rows, seen)) is not None:
            return acted
        first = rows.open[0]
        reads = leading_reads.find(state, rows)
        not_begun = [read for read in reads if read.state == State.READY]
        running = [read for read in reads if not subagents.is_asking(read)]
        if not_begun:
            leading_reads.start_late(state, not_begun)
        elif running:
            _run_reads(state, running)
        elif (switch := standstill.stopping(state, first)) is not None:
            if standstill.park(state, switch):
                return Settled(parked=True)
        elif subagents.is_asking(first):
            if not subagents.collect(state, rows) and waiting.let_go(state, rows, Run.WaitingFor.SUBAGENT):
                return Settled(parked=True)
        elif first.state == State.OUTCOME_UNKNOWN:
            if waiting.await_outcome(state, rows):
                return Settled(parked=True)
        elif first.state == State.EXECUTING:
            _recover(state, first)
        elif first.state == State.READY:
            with suppress(executions.KeyTaken):  # on the next look, it is a replay
                _run_allowed(state, first)
        elif first.state == State.PROPOSED:
            if waiting.hold(state, rows):
                return Settled(parked=True)
        else:
            with suppress(executions.KeyTaken):
                settled = _settle_waiting(state, rows, first, seen)
                if settled is not None:
                    return settled
    raise RuntimeError(f"the calls of step {rows.step.number} do not come to rest")


# --- Reads -------------------------------------------------------------------------------------


def _run_reads(state: RunState, reads: list[ToolExecution]) -> None:
    """Run reads together and store their results at once. The same read, asked for twice, runs once."""
    refused = [Outcome(read, answer) for read in reads if (answer := leading_reads.refused(state, read)) is not None]
    if refused:
        with ledger.transaction():
            runs.mark_tool_error(state.locked())
            executions.finish(refused)
        return
    distinct: dict[tuple[str, str], ToolExecution] = {}
    for read in reads:  # in the model's order: a mocked run makes them one by one
        distinct.setdefault((read.name, read.arguments_digest), read)
    made = together({key: partial(_attempt_read, state, read) for key, read in distinct.items()})
    results = {key: tried for key, tried in made.items() if tried is not None}
    reads = [read for read in reads if (read.name, read.arguments_digest) in results]
    if not reads:
        return
    called = {distinct[key].pk for key in results}
    costs = {read.pk: budgets.cost_of(read) if read.pk in called else budgets.NOTHING for read in reads}
    outcomes = [_outcome(state, read, results[read.name, read.arguments_digest], costs[read.pk]) for read in reads]
    with ledger.transaction():
        run = state.locked()
        executions.finish(outcomes)
        noted = [(read, results[key].result) for key, read in distinct.items() if key in results]
        budgets.pay(run, sum((outcome.cost for outcome in outcomes), budgets.NOTHING))
        breakers.note_calls(run, [(read.tool, result, read) for read, result in noted if read.tool is not None])
        steering.heed(run, reads)
        if any(outcome.result.status != "ok" for outcome in outcomes):
            runs.mark_tool_error(run)


def _outcome(state: RunState, execution: ToolExecution, tried: Tried, cost: Decimal) -> Outcome:
    """The outcome of a call, after hooks."""
    made, raw = points.after_tool_use(state, execution, tried.result)
    return Outcome(execution, made, tried.attempts, cost, raw, failures=tried.failures)


def _attempt_read(state: RunState, execution: ToolExecution) -> Tried | None:
    """The outcome of one read, which may be repeated: it changes nothing. None: this worker must end and leaves it."""
    if draining.begun.is_set():
        return None
    tool = execution.tool
    assert tool is not None
    text = execution.executed_text or proposed_text(execution, tool)
    numbers = range(1, tool.max_attempts + 1)
    stopped = partial(switches.stops_repeats, state.run, execution.name)

    def call(number: int) -> ToolResult:
        execution.attempts = number  # mocks count the attempts at earlier calls
        return _call(state, execution, tool, text, number)

    return attempts.until_answered(state.cancellation, numbers, call, stopped=stopped)


# --- Writes ------------------------------------------------------------------------------------


def _run_allowed(state: RunState, execution: ToolExecution) -> None:
    """Run a call that a rule allowed, if that is still so."""
    tool = execution.tool
    assert tool is not None
    text, planned = proposed_text(execution, tool), plan_use.is_planned(execution)
    snapshot = cards.take_snapshot(state.run, tool, parse(text)).text if planned else ""
    with ledger.transaction():
        subagents.lock_family(state, execution)
        run = state.locked()
        if run.is_told_to_stop:
            return
        state.refresh_configuration(always=True)
        tool = state.configuration.tools.get(tool.name, tool)
        refusal = recheck.no_longer_possible(state, execution, text, execution.tool_version)
        refusal = refusal or recheck.cannot_be_asked(state, tool)
        over = recheck.over_budget(state, tool)
        ruling = ruling_for(state.situation, tool, parse(text), again=execution, begins=True)
        wanted, asks = wanted_of(state.situation, tool, parse(text), ruling, execution), ruling.verdict == Verdict.ASK
        if refusal is None and asks and not planned and not grant_use.find(state.configuration, wanted):
            executions.set_aside(execution, f"A person decides now: {ruling.reason}")
            return
        if standstill.stopping(state, execution) is not None:
            return
        key = recheck.key_of(execution, tool, text)
        done = key.taken_by
        refusal = refusal or recheck.key_consumed(done) or recheck.denied(ruling) or recheck.exhausted(over, tool)
        if refusal is None and over is not None:
            executions.set_aside(execution, over.signal.message)
            return
        refusal = refusal or other_code.refused(execution, tool) or recheck.circuit_open(state, tool)
        if refusal is not None:
            executions.finish([Outcome(execution, refusal, replay_of=done)])
            return
        grant = grant_use.use(state.configuration, wanted, execution) if asks and not planned else None
        why = plan_use.use(planned_as(state.situation, tool, text, ruling), execution, snapshot) if planned else ""
        if asks and (why or not (planned or grant)):
            executions.set_aside(execution, why or "The grant that would have allowed this call no longer applies.")
            return
        by = execution.allowed_by if planned and not why else grant_use.allowed_by(ruling, grant)
        if not subagents.begin(state, execution, text, key.digest, by, grant):
            raise runs.LeaseLost(f"{execution.pk} was begun by somebody else")
    if not subagents.is_asking(execution):
        _run_begun(state, execution, tool)


def _settle_waiting(
    state: RunState, rows: StepRows, execution: ToolExecution, approval: Approval | None
) -> Settled | None:
    """Act on what people decided about the first open call, which is waiting. None: look at the step again."""
    assert approval is not None
    if approval.state == Approval.State.APPROVED:
        if approval.runs_at is not None and approval.runs_at <= runs.clock(state.run):
            _run_approved(state, execution, approval)
            return None
    elif waiting.asks_again(approval):
        with ledger.transaction():
            state.locked()
            executions.set_aside(execution, waiting.OUTLASTED)
        return None
    elif approval.state in (Approval.State.REJECTED, Approval.State.RESPONDED, Approval.State.EXPIRED):
        if approval.runs_at is None or approval.runs_at <= runs.clock(state.run):
            return waiting.tell(state, execution, approval)
    elif approval.state in Approval.UNDECIDED and any(call.state == State.PROPOSED for call in rows.open):
        # A later call of the step asks again; its card need not wait for the calls before it.
        return Settled(parked=True) if waiting.hold(state, rows) else None
    elif approval.state not in Approval.UNDECIDED:
        with ledger.transaction():
            state.locked()
            executions.set_aside(execution, f"The request was {approval.state}.")
        return None
    return Settled(parked=True) if waiting.let_go(state, rows, Run.WaitingFor.APPROVAL) else None


def _run_approved(state: RunState, execution: ToolExecution, approval: Approval) -> None:
    """Use an approval for its one execution, after checking again everything that it depends on."""
    tool = execution.tool
    assert tool is not None
    text = approval.final_arguments_text
    snapshot = cards.take_snapshot(state.run, tool, parse(text), execution.times_asked).text
    with ledger.transaction():
        subagents.lock_family(state, execution)
        run = state.locked()
        if run.is_told_to_stop:
            return
        state.refresh_configuration(always=True)
        if standstill.stopping(state, execution) is not None:
            return  # the approval stands; the run waits for the switch
        if waiting.approval_of(execution).version != approval.version:
            return  # undone, or decided differently, before the run was locked: nothing is stale
        tool = state.configuration.tools.get(tool.name, tool)
        key = recheck.key_of(execution, tool, text)
        done = key.taken_by
        refusal = recheck.no_longer_possible(state, execution, text, "") or recheck.key_consumed(done)
        ruling = recheck.ruling_of(state, execution, approval, tool, text)
        refusal = refusal or recheck.denied(ruling)
        stale = "" if refusal else recheck.stale(state, execution, approval, ruling, snapshot)
        if stale:
            decisions.supersede(approval, stale)
            executions.set_aside(execution, stale)
            return
        if not refusal and recheck.people_next(execution, approval, ruling):
            if decisions.consume(approval):
                executions.set_aside(execution, "The customer has confirmed it; people decide now.")
            else:
                decisions.expire(approval.pk)
            return
        if not refusal and other_code.refused(execution, tool) is not None:
            decisions.supersede(approval, other_code.ASKED_AGAIN.format(tool.name))
            executions.set_aside(execution, other_code.ASKED_AGAIN.format(tool.name))
            return
        refusal = refusal or recheck.circuit_open(state, tool)
        if refusal is not None:
            decisions.supersede(approval, refusal.message)
            executions.finish([Outcome(execution, refusal, replay_of=done)])
            return
        if not decisions.consume(approval):  # the gate: approved, due, in time, unused, these exact bytes
            decisions.expire(approval.pk)  # if that was why
            return
        execution.by_agent = approval.editor_id is None and not approval.is_edited
        if not subagents.begin(state, execution, text, key.digest):
            raise runs.LeaseLost(f"{execution.pk} was begun by somebody else")
    if not subagents.is_asking(execution):
        _run_begun(state, execution, tool)


def _run_begun(state: RunState, execution: ToolExecution, tool: Tool) -> None:
    """Call the tool of a write, or of an approved read, that is marked as running, and store the outcome."""
    attempt = execution.attempts
    tried = attempts.until_answered(
        state.cancellation,
        range(attempt, attempt + attempts.most(tool)),
        lambda number: _call(state, execution, tool, execution.executed_text, number),
        partial(attempts.may_be_tried_again, with_key=tool.honours_key),
        partial(attempts.stops, state.run, tool),
    )
    last = tried.result  # what the tool itself said: its breaker counts this
    if execution.consequential:
        tried = attempts.with_earlier(tried, begun_before=attempt > 1)
    execution.attempts = tried.attempts
    outcome = _outcome(state, execution, tried, budgets.cost_of(execution))
    try:
        with ledger.transaction():
            run = state.locked()
            _store(outcome)
            budgets.pay(run, outcome.cost)
            breakers.note_calls(run, [(tool, last, execution)])
            steering.heed(run, [execution])
            plan_use.take_up(run, execution)
            if outcome.result.status != "ok":
                runs.mark_tool_error(run)
    except executions.Overtaken:  # by the answer of the attempt that this one repeats
        late.keep(outcome, attempt)
        execution.refresh_from_db()
    except runs.LeaseLost:
        late.keep(outcome, attempt)
        raise
    foresight.hold_against(state, execution, tool, tried.result)


def _store(outcome: Outcome) -> None:
    if outcome.result.reason == Reason.OUTCOME_UNKNOWN:
        executions.note_failures(outcome.execution, outcome.failures)
        executions.take_notes(outcome)
        if not executions.lose(outcome.execution, outcome.cost):
            raise executions.Overtaken("a call of unknown outcome already has an answer")
    else:
        executions.finish([outcome])


def _recover(state: RunState, execution: ToolExecution) -> None:
    """Recover a write whose worker died in the middle. With a key it is repeated; otherwise a person finds out."""
    with ledger.transaction():
        run = state.locked()
        execution.refresh_from_db()
        if execution.state != State.EXECUTING or run.is_told_to_stop:  # a late answer came, or nobody wants it any more
            return
        state.refresh_configuration(always=True)
        if standstill.stopping(state, execution) is not None:
            return
        tool = execution.tool  # read again with its call
        assert tool is not None
        # Count attempts since one last ended: a person may have wanted it tried again after that.
        here = execution.attempts - max((failure["attempt"] for failure in execution.failures), default=0)
        may = attempts.may_be_repeated(execution, tool, runs.clock(run)) and here <= tool.max_attempts and tool.enabled
        may = may and tool.name not in state.configuration.barred
        if not may or other_code.refused(execution, tool) is not None:
            executions.lose(execution, budgets.cost_of(execution))
            budgets.pay(run, budgets.cost_of(execution))
            return
        executions.repeat(execution)
        ledger.only_at(state.configuration.height)
    _run_begun(state, execution, tool)


# --- The call ----------------------------------------------------------------------------------


def _call(state: RunState, execution: ToolExecution, tool: Tool, text: str, attempt: int) -> ToolResult:
    """One attempt at a tool, within its time. Every way it can end becomes a result. A mocked run reaches no tool."""
    implementation = state.stand_in(execution, text, attempt) or implementation_of(tool)
    if implementation is None:
        return ToolResult(
            status="fatal_error", reason=Reason.TOOL_DISABLED, message=f"No module of TOOL_MODULES has {tool.name}."
        )
    with state.cancellation.call() as cancelled, logs.bound(execution=str(execution.pk), attempt=str(attempt)):
        context = attempts.context_of(state, execution, tool, attempt, cancelled, implementation.limits)
        try:
            result = within(tool.timeout_seconds, implementation.run, parse(text), context)
            result = checked(result, tool.output_schema, acted=tool.consequential)
        except DeadlineExceeded:
            cancelled.set()  # the call is left behind, but can find out
            result = attempts.timed_out(tool)
        except Cancelled:
            result = attempts.stopped(tool)
        except LimitReached as reached:
            result = attempts.limited(reached)
        except StopRun as stop:
            result = points.stopping(ToolResult(message=str(stop), trust="trusted_system"), stop, f"tool:{tool.name}")
        except Exception as error:  # a tool's code may fail in any way
            if not isinstance(error, ToolError | OutcomeUnknown):
                log.warning("%s broke: %s\n%s", tool.name, type(error).__name__, _where(error))
            result = attempts.failed(tool, error)
    return attempts.with_counts(result, context.counter)


def _where(error: Exception) -> str:
    """The lines of code where something broke, without the message, which can be about people."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()
