"""What a run does next, until it ends, must wait, or has used its time slice."""

import logging
import random
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from agentapp import (
    answering,
    budgets,
    closing,
    concluding,
    draining,
    executions,
    isolation,
    lease,
    limits,
    logs,
    other_code,
    points,
    progress,
    rehearsing,
    runs,
    standstill,
    storing,
)  # fmt: skip
from agentapp.breakers import CircuitOpen
from agentapp.drivers.base import ModelError
from agentapp.executor import settle
from agentapp.history import BrokenHistory
from agentapp.hooks import HookFailed
from agentapp.messages import Reply, StopRun, StopSignal
from agentapp.models import Run, Tool
from agentapp.other_code import OtherCode
from agentapp.reasons import StopReason
from agentapp.runtime import admit_agent, decide
from agentapp.secrecy import naming_no_secret_argument
from agentapp.state import RunState
from agentapp.storing import Decision
from agentapp.switches import Stopped
from approvals import ledger
from approvals.database import AWAY

log = logging.getLogger(__name__)

OF_ANOTHER_RELEASE = (
    "A call of %s waits for a process that has its tool: %s. If this process is of the release that should run, "
    "run sync_tools of that release. Otherwise restart the process."
)
MAX_BACKOFF_SECONDS = 60
MAX_RETRY_AFTER_SECONDS = 900  # We never wait longer than this for a provider, whatever it asks for.

# Who asked for a cancellation, by the reason on the run's row.
_WHO_CANCELS: dict[str, str] = {StopReason.USER_REQUESTED: "person", StopReason.SUPERSEDED: "conversation"}


@dataclass(frozen=True)
class Again:
    """The run goes on in another turn of a worker, after this many seconds."""

    delay: float = 0


def drive(run_id: uuid.UUID) -> Again | None:
    """Claim a run and take it as far as it goes. None: it ended, waits, or another worker has it."""
    with ledger.remembering():
        run = runs.claim(run_id)
        with logs.bound(trace=run.trace_id if run else ""):
            return _drive(run) if run is not None else None


def _drive(run: Run) -> Again | None:
    try:
        if run.loses_workers and run.cancel_requested_at is None:
            _put_aside(run)
            return None
        with isolation.isolated(run.is_mocked):
            state = _load(run)
            if state is not None:
                with lease.kept(state):
                    return _unbroken(state)
    except runs.LeaseLost as lost:
        log.warning("Stopped driving %s: %s", run.pk, lost)
    return None


def _put_aside(run: Run) -> None:
    """Pause a run that probably ends every worker that takes it, before it ends this one.

    A mocked run fails instead: nobody looks after it, and an eval would wait for ever.
    """
    why = f"{run.workers_lost} workers in a row vanished while they had it."
    if run.is_mocked:
        _fail(run, why)
        return
    log.error("%s is paused: %s", run.pk, why)
    assert run.lease_token is not None
    with ledger.transaction():
        runs.pause(runs.held(run.pk, run.lease_token), ledger.SYSTEM, run.lease_token, why=why)


def _fail(run: Run, message: str) -> None:
    """End a run that no worker can drive."""
    log.error("%s has failed: %s", run.pk, message)
    assert run.lease_token is not None
    with ledger.transaction():
        runs.lock_parent(run.pk)
        signal = StopSignal(StopReason.ERROR, message, source="loop")
        closing.finish(runs.held(run.pk, run.lease_token), Run.State.FAILED, signal)


def _load(run: Run) -> RunState | None:
    """What a worker needs to drive a run. None: the run cannot be read, by any worker, and has been failed."""
    try:
        return RunState.load(run)
    except (runs.LeaseLost, DatabaseError, InterfaceError):
        raise
    except Exception as error:
        log.exception("Reading %s failed", run.pk)
        message = f"This run cannot be read ({type(error).__name__}); see the worker's log."
    _fail(run, message)
    return None


def _unbroken(state: RunState) -> Again | None:
    """Go on, and end the run if anything breaks."""
    try:
        return _hooked(state)
    except (executions.Overtaken, ledger.Configured) as overtaken:
        runs.release(state.run, state.token, str(overtaken))
        return Again()
    except Stopped as stopped:
        return _come_back(state, str(stopped), 0, failed=False)
    except OtherCode as other:
        log.error(OF_ANOTHER_RELEASE, state.run.pk, other)
        return _come_back(state, str(other), other_code.LOOK_AGAIN_SECONDS, failed=False)
    except (runs.LeaseLost, *AWAY):
        raise  # nothing can be written; the lease runs out and the sweep tries again
    except BrokenHistory as broken:
        log.exception("The history of %s is broken", state.run.pk)
        signal = StopSignal(StopReason.ERROR, f"No model was asked. {broken}", source="history")
        concluding.end(state, Run.State.FAILED, signal)
    except Exception as error:
        log.exception("Driving %s failed", state.run.pk)
        message = f"An internal error ended this run ({type(error).__name__}); see the worker's log."
        concluding.end(state, Run.State.FAILED, StopSignal(StopReason.ERROR, message, source="loop"))
    return None


def _hooked(state: RunState) -> Again | None:
    """Go on until the run ends, waits, or a hook ends it."""
    try:
        points.begin(state)
        return _go(state)
    except (StopRun, HookFailed) as raised:
        concluding.end_by(state, points.signal_of(raised))
    return None


def _go(state: RunState) -> Again | None:
    until = time.monotonic() + settings.TIME_SLICE_SECONDS
    if not state.run.is_told_to_stop and concluding.was_last(state) and concluding.conclude(state):
        return None
    while True:
        if state.run.is_told_to_stop:
            if _obey(state):
                return None
            continue
        ending = rehearsing.ending(state)
        if ending is not None:
            concluding.end(state, ending.state, ending.signal, ending.answer)
            return None
        state.refresh_configuration()
        switch = state.configuration.switch_of(state.run)
        if switch is not None:
            if standstill.park(state, switch):
                return None
            continue
        if state.steps and state.steps[-1].open:
            settled = settle(state)
            later = answering.answer_people(state) if settled.asked else None
            if later is not None:
                return Again(later)
            if settled.leaves:
                return _leave(state)
            if settled.parked:
                return None
            if settled.stop is not None:
                concluding.end_by(state, settled.stop)
                return None
            continue
        if state.step_under_way:
            state.step_under_way = False
            points.after_step(state)
        signal = points.stop_wanted(state, state.steps[-1]) if state.steps else None
        if signal is not None:
            concluding.end_by(state, signal)
            return None
        limit = limits.reached(state.run, state.steps, state.worked_seconds) or progress.stuck(state.steps)
        if limit is not None:
            concluding.end(state, Run.State.STOPPED, limit)
            return None
        if not _within_budget(state):
            return None
        if state.run.is_told_to_stop:
            continue
        if draining.begun.is_set() or time.monotonic() > until:
            return _leave(state)
        try:
            admit_agent(state)
            ended = _take_step(state)
        except CircuitOpen as circuit:
            return _after_open_circuit(state, circuit)
        except ModelError as error:
            return _after_model_error(state, error)
        if ended:
            return None


def _leave(state: RunState) -> Again:
    """Let another turn go on, on another worker if this one was told to end."""
    why = "its worker is told to end" if draining.begun.is_set() else "its time slice is over"
    runs.release(state.run, state.token, why)
    return Again()


def _obey(state: RunState) -> bool:
    """Do what a person asked while a worker held the run: cancel wins over pause. False: they withdrew it."""
    with ledger.transaction():
        run = state.locked()
        if not run.is_told_to_stop:
            return False
        if run.cancel_requested_at is None:
            runs.pause(run, ledger.SYSTEM, state.token)
            return True
    reason = state.run.stop_reason or StopReason.USER_REQUESTED
    message, source = state.run.stop_message or "Cancelled by a person.", _WHO_CANCELS.get(reason, "parent run")
    concluding.end(state, Run.State.CANCELLED, StopSignal(reason, message, {}, source))
    return True


def _within_budget(state: RunState) -> bool:
    """Whether the run may pay for another decision. False: it now waits for a person, or has ended."""
    projected = budgets.next_step_cost(state.steps)
    breach = budgets.breach(state.run, state.steps, projected, runs.clock(state.run).date())
    if breach is None:
        return True
    if not breach.asks:
        concluding.end(state, Run.State.STOPPED, breach.signal)
        return False
    with ledger.transaction():
        run = state.locked()
        if run.is_told_to_stop or budgets.breach(run, state.steps, projected, runs.clock(run).date()) is None:
            return True  # somebody acted meanwhile, so the loop looks again
        # A run that waits for its agent's next day looks again when that day begins, even if nobody allows more.
        runs.park(run, state.token, Run.WaitingFor.BUDGET, wake_at=breach.until, why=breach.signal.message)
    return False


def _take_step(state: RunState) -> bool:
    """Ask for one decision and store it with its calls. True: the run has ended."""
    points.before_step(state)
    # Out of rounds: the model must answer with what it has, and is offered no tools.
    may_call = not limits.rounds_are_used_up(state.run, state.steps)
    disclosed = state.disclosed
    started_at = datetime.now(UTC)
    try:
        reply = decide(state, disclosed, may_call=may_call).with_fewer_calls()
    except (ModelError, StopRun, HookFailed, BrokenHistory, CircuitOpen, Stopped, runs.LeaseLost, *AWAY, DatabaseError):
        raise
    except Exception:
        storing.store_failed(state, started_at)
        raise
    finished_at = datetime.now(UTC)
    guarded = points.guard(state, reply.tool_calls)
    reply = replace(reply, tool_calls=tuple(guarded.calls), usage=reply.usage.credible)
    reply = naming_no_secret_argument(reply, state.steps, state.configuration.tools)
    callable_now = _offered(disclosed, reply) if may_call else {}
    made = Decision(reply, guarded, callable_now, started_at, finished_at)
    stored = storing.store(state, made)
    if stored is None:
        return False
    points.tokens_reported(state, reply)
    if stored.ended is None:
        return concluding.conclude(state)
    concluding.tell(state, stored.ended)
    return True


def _offered(disclosed: dict[str, Tool], reply: Reply) -> dict[str, Tool]:
    """What the step could call. If guidelines decide, only what they asked for."""
    offered = disclosed if reply.guidance is None else reply.guidance.offered
    return {name: tool for name, tool in disclosed.items() if name in offered}


def _after_model_error(state: RunState, error: ModelError) -> Again | None:
    """Ask again later, from the queue rather than a sleeping worker; or give up."""
    failures, most = state.run.model_failures + 1, settings.MODEL_ATTEMPTS
    if not error.retryable:
        concluding.end(state, Run.State.FAILED, StopSignal(StopReason.ERROR, str(error), {"code": error.code}, "model"))
        return None
    if failures >= most:
        message = f"Retry limit reached: {failures}/{most} attempts at the model failed. {error}"
        context = {"code": error.code, "current": failures, "max": most}
        concluding.end(state, Run.State.FAILED, StopSignal(StopReason.RETRY_LIMIT, message, context, "model"))
        return None
    backoff = min(random.uniform(0.5, 1) * 2**failures, MAX_BACKOFF_SECONDS)  # noqa: S311
    delay = backoff if error.retry_after is None else min(error.retry_after, MAX_RETRY_AFTER_SECONDS)
    return _come_back(state, f"the model could not answer ({error.code})", delay, failed=True)


def _after_open_circuit(state: RunState, circuit: CircuitOpen) -> Again | None:
    """Come back when the breaker has cooled down, or give up, as when a model cannot answer."""
    if not circuit.behind_probe and state.run.model_failures + 1 >= settings.MODEL_ATTEMPTS:
        signal = StopSignal(StopReason.CIRCUIT_OPEN, str(circuit), source=circuit.source)
        concluding.end(state, Run.State.STOPPED, signal)
        return None
    delay = min(max(circuit.retry_after, 0.1), MAX_BACKOFF_SECONDS)
    return _come_back(state, str(circuit), delay, failed=not circuit.behind_probe)


def _come_back(state: RunState, why: str, delay: float, *, failed: bool) -> Again | None:
    """Release the worker until later. What a person asked for meanwhile is done at once: they should not wait."""
    with ledger.transaction():
        told = state.locked().is_told_to_stop
        if not told:
            runs.release(state.run, state.token, why, delay, failed=failed)
    if told:
        _obey(state)
        return None
    # The row says when the run is due. An earlier nudge changes nothing, and the sweep finds the run in time.
    return Again(min(delay, MAX_BACKOFF_SECONDS))
