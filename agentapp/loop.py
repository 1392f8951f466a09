"""What a run does next, until it ends, must wait, or has used its time slice."""

import logging
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connections

from agentapp import breakers, conversations, executions, progress, runs, waiting
from agentapp.breakers import CircuitOpen
from agentapp.drivers import get_driver
from agentapp.drivers.base import ModelError, StepRequest
from agentapp.executor import settle
from agentapp.messages import Reply, StopSignal
from agentapp.models import Run
from agentapp.proposals import Situation, judge
from agentapp.reasons import StopReason
from agentapp.runtime import DriveRuntime, admit_agent
from agentapp.state import RunState
from agentapp.toolset import specs
from agentapp.transcript import StepRows, compile_messages
from approvals import decisions, ledger

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 60


@dataclass(frozen=True)
class Again:
    """The run goes on in another turn of a worker, after so many seconds."""

    delay: float = 0


def drive(run_id: uuid.UUID) -> Again | None:
    """Claim a run and take it as far as it goes. None: it ended, waits, or is somebody else's."""
    run = runs.claim(run_id)
    if run is None:
        return None
    state = RunState.load(run)
    try:
        with _lease_kept(state):
            return _go(state)
    except runs.LeaseLost as lost:
        log.warning("Stopped driving %s: %s", run_id, lost)
    except (OperationalError, InterfaceError):
        raise  # nothing can be written; the lease runs out and the sweep tries again
    except Exception as error:
        log.exception("Driving %s failed", run_id)
        message = f"An internal error ended this run ({type(error).__name__}); the log of the worker has it."
        _end(state, Run.State.FAILED, StopReason.ERROR, message)
    return None


def _go(state: RunState) -> Again | None:
    until = time.monotonic() + settings.TIME_SLICE_SECONDS
    while True:
        if state.run.cancel_requested_at is not None:
            _end(state, Run.State.CANCELLED, StopReason.USER_REQUESTED, "Cancelled by a person.")
            return None
        state.refresh_configuration()
        switch = state.configuration.switch_of(state.run)
        if switch is not None:
            if waiting.park_for_switch(state, switch):
                return None
            continue
        if state.steps and state.steps[-1].open:
            settled = settle(state)
            if settled.parked:
                return None
            if settled.stop is not None:
                _end(state, Run.State.STOPPED, settled.stop.reason, settled.stop.message)
                return None
            continue
        limit = limit_reached(state.run) or progress.stuck(state.steps)
        if limit is not None:
            _end(state, Run.State.STOPPED, limit.reason, limit.message, source=limit.source)
            return None
        if time.monotonic() > until:
            runs.release(state.run, state.token, "its time slice is over")
            return Again()
        try:
            admit_agent(state)
            ended = _take_step(state)
        except CircuitOpen as circuit:
            return _after_open_circuit(state, circuit)
        except ModelError as error:
            return _after_model_error(state, error)
        if ended:
            return None


def limit_reached(run: Run) -> StopSignal | None:
    """The first of the agent's limits that a run has used up, if any."""
    agent = run.agent_snapshot
    tokens = run.input_tokens + run.output_tokens
    if run.step_count >= agent["max_steps"]:
        return StopSignal(StopReason.STEPS_LIMIT, f"Step limit reached: {run.step_count}/{agent['max_steps']}.")
    if agent["max_tokens"] is not None and tokens >= agent["max_tokens"]:
        return StopSignal(StopReason.TOKEN_LIMIT, f"Token limit reached: {tokens}/{agent['max_tokens']}.")
    if agent["max_cost"] is not None and run.cost >= Decimal(agent["max_cost"]):
        return StopSignal(StopReason.COST_LIMIT, f"Cost limit reached: ${run.cost:.4f} of ${agent['max_cost']}.")
    return None


def _take_step(state: RunState) -> bool:
    """Ask for one decision and store it with its calls. True: the run has ended."""
    disclosed = state.disclosed
    started_at = datetime.now(UTC)
    reply = _ask(state, disclosed)
    finished_at = datetime.now(UTC)
    proposals = judge(Situation(state.run, state.configuration, disclosed, state.steps), reply.tool_calls)
    with ledger.transaction():
        made = (state.run, state.token, reply, sorted(disclosed), started_at, finished_at)
        step = runs.record_step(*made, height=state.configuration.height)
        if step is None:
            if state.locked().cancel_requested_at is not None:  # told to stop while the model was thinking
                return False
            # Something was configured or stopped meanwhile: the calls are checked by what holds now.
            state.refresh_configuration(always=True)
            now_disclosed = {name: tool for name, tool in state.disclosed.items() if name in disclosed}
            proposals = judge(Situation(state.run, state.configuration, now_disclosed, state.steps), reply.tool_calls)
            step = runs.record_step(*made)
        if step is None:
            return False
        rows = StepRows(step, executions.propose(state.run, step, proposals))
    state.steps.append(rows)
    _add_usage(state.run, reply)
    if reply.tool_calls:
        return False
    if reply.text.strip():
        _end(state, Run.State.SUCCEEDED, StopReason.COMPLETED, answer=reply.text)
    else:
        _end(state, Run.State.FAILED, StopReason.ERROR, "The model gave neither an answer nor a call.")
    return True


def _ask(state: RunState, disclosed: dict[str, Any]) -> Reply:
    """The driver's decision. No transaction is open here."""
    run = state.run
    if state.driver is None:
        state.driver = get_driver("scripted" if run.script is not None else run.agent_snapshot["driver"])
        state.driver.bind(DriveRuntime(state))
    request = StepRequest(
        run_id=str(run.pk),
        step=run.step_count + 1,
        agent=run.agent_snapshot,
        script=run.script,
        messages=compile_messages(run, state.earlier, state.steps),
        tools=tuple(specs(disclosed)),
    )
    return state.driver.next_step(request)


def _add_usage(run: Run, reply: Reply) -> None:
    """Keep the row in hand level with what was stored."""
    run.step_count += 1
    run.input_tokens += reply.usage.input_tokens
    run.output_tokens += reply.usage.output_tokens
    run.cost += reply.usage.cost or 0
    run.model_failures = 0


def _after_model_error(state: RunState, error: ModelError) -> Again | None:
    """Ask again later, from the queue and not from a sleeping worker; or give up."""
    failures = state.run.model_failures + 1
    if not error.retryable or failures >= settings.MODEL_ATTEMPTS:
        _end(state, Run.State.FAILED, StopReason.ERROR, str(error))
        return None
    backoff = random.uniform(0.5, 1) * 2**failures  # noqa: S311
    delay = min(error.retry_after if error.retry_after is not None else backoff, MAX_BACKOFF_SECONDS)
    runs.release(state.run, state.token, f"the model could not answer: {error}", delay, failed=True)
    return Again(delay)


def _after_open_circuit(state: RunState, circuit: CircuitOpen) -> Again | None:
    """Come back when the breaker has cooled down; or give up, as when a model cannot answer."""
    if not circuit.behind_probe and state.run.model_failures + 1 >= settings.MODEL_ATTEMPTS:
        _end(state, Run.State.STOPPED, StopReason.CIRCUIT_OPEN, str(circuit), source=circuit.source)
        return None
    delay = min(max(circuit.retry_after, 0.1), MAX_BACKOFF_SECONDS)
    runs.release(state.run, state.token, str(circuit), delay, failed=not circuit.behind_probe)
    return Again(delay)


def _end(state: RunState, final: str, reason: str, message: str = "", answer: str = "", source: str = "") -> None:
    """Finish the run, answer its open calls, take back its open requests, keep its answer."""
    with ledger.transaction():
        run = state.locked()
        if final != Run.State.SUCCEEDED:
            executions.cancel_open(run, f"The run has ended: {message}")
            decisions.withdraw(run.pk, f"The run has ended: {message}")
        runs.finish(run, final, reason, message, answer, source=source)
        breakers.note_run(run, final)
        if answer and run.conversation is not None:
            conversations.add(run.conversation, run, "assistant", answer)


@contextmanager
def _lease_kept(state: RunState) -> Iterator[None]:
    """Renew the lease from a thread of its own while the work takes long."""
    done = threading.Event()

    def keep() -> None:
        try:
            while not done.wait(settings.LEASE_SECONDS / 3):
                try:
                    if not runs.renew(state.run.pk, state.token):
                        state.cancellation.tell()
                        return
                    if runs.told_to_stop(state.run.pk):
                        state.cancellation.tell()
                except DatabaseError:
                    # One failure is no reason to let go of a run that is well: there is time for another try.
                    log.exception("The lease of %s could not be renewed", state.run.pk)
                    connections.close_all()
        finally:
            connections.close_all()

    keeper = threading.Thread(target=keep, name=f"lease-{state.run.pk}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
