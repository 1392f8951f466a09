"""The writer of Run and Step, together with `pauses`. Each function is one transition and its event.

A function returns whether it changed a row; False means somebody else got there first, and is
normal. Functions that take a lease token raise LeaseLost when the run is no longer held by it.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Value
from django.db.models.functions import Greatest

from agentapp import continuity, nudges, run_statements, spending, takers
from agentapp.branching import Branch, columns_of, without_words
from agentapp.due import LASTING
from agentapp.due import clock as clock
from agentapp.due import due as due
from agentapp.due import following as following
from agentapp.due import told_to_stop as told_to_stop
from agentapp.due import unfinished as unfinished
from agentapp.due import with_configuration as with_configuration
from agentapp.messages import Reply, StopSignal
from agentapp.models import Agent, ApiToken, Conversation, Run, Step, ToolExecution
from agentapp.pauses import bar as bar
from agentapp.pauses import hand_back as hand_back
from agentapp.pauses import is_aside_with as is_aside_with
from agentapp.pauses import join as join
from agentapp.pauses import pause as pause
from agentapp.pauses import put_aside as put_aside
from agentapp.pauses import request_pause as request_pause
from agentapp.pauses import resume as resume
from agentapp.pauses import take_back_pause as take_back_pause
from agentapp.pauses import take_over as take_over
from agentapp.pauses import wake_switched as wake_switched
from agentapp.pauses import want_paused_too as want_paused_too
from agentapp.pauses import worked_seconds
from agentapp.spending import add_cost as add_cost
from agentapp.spending import add_usage as add_usage
from agentapp.trace_context import new_trace_id
from approvals import ledger
from approvals.clock import Now, heard
from approvals.detectors import without_secrets
from approvals.digest import storable, storable_json, storable_up_to
from approvals.sealed import ERASED, GONE, sealed

MAX_CONTEXT_CHARS = 16 * 1024
"""Limit for the context of a stop. Anything longer could not be read back, and is not kept."""


class LeaseLost(Exception):
    """Another worker holds this run now, or nobody does: stop writing."""


@dataclass(frozen=True)
class Start:
    """What a new run begins with."""

    agent: Agent
    agent_snapshot: dict[str, Any]
    input: str
    title: str
    starter: Any
    token: ApiToken | None = None
    route: str = ""
    customer: str = ""
    conversation: Conversation | None = None
    metadata: dict[str, Any] | None = None
    script: list[dict[str, Any]] | None = None
    request_key: str = ""
    request_digest: str = ""
    traceparent: str = ""
    parent: Run | None = None
    retry_of: Run | None = None
    steps_kept: int = 0
    branch: Branch | None = None
    undoes: ToolExecution | None = None
    """The call that the run takes back; read with its run."""
    is_trial: bool = False
    """Its starter has filled in the one call it makes."""
    mocks: dict[str, Any] | None = None
    """What answers its calls, so that it reaches no tool. Never changed."""

    @property
    def taken_back(self) -> Run | None:
        return self.undoes.run if self.undoes is not None else None


def create(start: Start, via: str = "") -> Run:
    """A queued run. The caller is inside `ledger.transaction()` and nudges a worker on commit.

    For a run in a conversation, the caller also holds the conversation's lock: its runs go in order of creation.
    """
    run = Run(
        agent=start.agent,
        agent_snapshot=start.agent_snapshot,
        route=start.route,
        conversation=start.conversation,
        parent=start.parent,
        depth=start.parent.depth + 1 if start.parent else 0,
        retry_of=start.retry_of,
        steps_kept=start.steps_kept,
        **columns_of(start.branch),
        undoes=start.undoes,
        is_trial=start.is_trial,
        mocks=start.mocks,
        takers=takers.of(start.retry_of or start.taken_back, start.parent, start.token),
        customer=start.customer,
        title=without_secrets(start.title)[:200],
        input=without_secrets(start.input),
        metadata=start.metadata or {},
        script=start.script,
        starter=start.starter,
        token=start.token,
        request_key=start.request_key,
        request_digest=start.request_digest,
        trace_id=start.parent.trace_id if start.parent else new_trace_id(),
        traceparent=start.traceparent,
        created_at=_behind_the_last(start.conversation),
        updated_at=Now(),
    )
    if start.conversation is None:
        run_statements.ADD_RUNS([run])
    else:
        run.save(force_insert=True)  # RowInsert cannot be used: created_at is a different expression each time
    ledger.knows(ledger.run_chain(run.pk), None, None)
    data = {"agent": start.agent.name, "route": start.route, "scripted": start.script is not None}
    data |= {"title": sealed(run.title, run.salt)}
    if start.retry_of is not None:
        data |= {"retry_of": str(start.retry_of.pk), "steps_kept": start.steps_kept}
    if start.branch is not None:
        data |= start.branch.facts(run)
    if start.undoes is not None:
        data |= {"undoes": str(start.undoes.pk)}
    if start.is_trial:
        data |= {"trial": True}
    if start.mocks is not None:
        data |= {"mocked": True}
    ledger.record(ledger.run_chain(run.pk), "run.queued", data, ledger.actor_of(start.starter, via))
    return run


def give_up_undo(run: Run) -> bool:
    """Let another run take back the call, as this one ended without doing so. False: it has not ended."""
    ended = Run.objects.filter(pk=run.pk, state__in=Run.FINAL, undoes__isnull=False, took_back_nothing=False)
    return bool(ended.update(took_back_nothing=True))


def _behind_the_last(conversation: Conversation | None) -> Any:
    """Now, and later than every run of the conversation, even in the same millisecond."""
    last = conversation and Run.objects.filter(conversation=conversation).aggregate(at=Max("created_at"))["at"]
    return Greatest(Now(), Value(last + timedelta(microseconds=1))) if last else Now()


def claim(run_id: uuid.UUID) -> Run | None:
    """Take a lease on a run that is due. None: it is not due, or somebody else holds it."""
    token, asked_at = uuid.uuid4(), time.monotonic()
    with ledger.transaction():
        lease = timedelta(seconds=settings.LEASE_SECONDS)
        claimed = run_statements.CLAIM(run=run_id, token=token, lease=lease, **continuity.as_seen())
        if not claimed:
            return None
        run = run_statements.CLAIMED.first(run=run_id, chain=ledger.run_chain(run_id))
        assert run is not None
        assert run.claimed_at is not None
        lost = {"workers_lost": run.workers_lost} if run.workers_lost else {}
        ledger.record(ledger.run_chain(run_id), "run.claimed", {"lease": str(token), **lost})
        heard(run.claimed_at, asked_at)
        return _known_end(run)


def renew(run_id: uuid.UUID, token: uuid.UUID) -> bool:
    """Extend a lease. False: it is lost."""
    held = Run.objects.filter(pk=run_id, lease_token=token, state=Run.State.RUNNING)
    return bool(held.update(lease_until=_in(settings.LEASE_SECONDS)))


def lock(run_id: uuid.UUID) -> Run | None:
    """The run's row, locked until the transaction ends. Code that changes a run's approvals holds this lock.

    Rows that refer to the run can be added meanwhile: code that stores a message for it holds the conversation's lock,
    which the holder of this one may be waiting for.
    """
    run = run_statements.LOCKED.first(run=run_id, chain=ledger.run_chain(run_id))
    return run and _known_end(run)


def _known_end(run: Run) -> Run:
    ledger.knows(ledger.run_chain(run.pk), run.chain_seq, run.chain_hash)  # type: ignore[attr-defined]
    return run


def lock_parent(run_id: uuid.UUID) -> None:
    """Lock the row of the run that asked for this one, if any. Code that may end a run does this before locking the
    run's own row, since its end wakes the other. Rows of several runs are locked from the root down.
    """
    parents = Run.objects.filter(pk__in=Run.objects.filter(pk=run_id).values("parent"))
    parents.select_for_update(no_key=True).values_list("pk", flat=True).first()


def held(run_id: uuid.UUID, token: uuid.UUID, known: Run | None = None) -> Run:
    """The run's row, locked, with what the worker must know before it goes on. Raises LeaseLost.

    `known`: the row as read before. The columns that stay the same until the run ends are taken from it.
    """
    run = (run_statements.HELD if known is None else run_statements.HELD_AGAIN).first(run=run_id, token=token)
    if run is None:
        raise LeaseLost(f"{run_id} is no longer held by this worker")
    for name in LASTING if known is not None else ():
        setattr(run, name, getattr(known, name))
    return run


def record_step(
    run: Run,
    token: uuid.UUID,
    reply: Reply,
    disclosed: Sequence[str],
    started_at: datetime,
    finished_at: datetime,
    height: int | None = None,
) -> Step | None:
    """Store one decision of the model and add its usage to the run.

    None: the run was cancelled while the model was thinking. If a `height` is given, also: the configuration
    has changed since then, or the run is about to be paused, so the calls must be checked again. The caller
    is inside `ledger.transaction()` and stores the step's calls in it. Raises LeaseLost.
    """
    usage, number = reply.usage.credible, run.step_count + 1
    counted = spending.tokens(usage)
    has_cost = usage.cost is not None
    updated = run_statements.record_step(asks_height=height is not None, has_cost=has_cost)(
        run=run.pk,
        token=token,
        number=number,
        lease=timedelta(seconds=settings.LEASE_SECONDS),
        **counted,
        **({"cost": usage.cost} if has_cost else {}),
        **({"height": height} if height is not None else {}),
    )
    if not updated:
        held(run.pk, token)
        return None
    text, reasoning, parts = _said(reply)
    step = Step(
        run=run,
        number=number,
        text=text,
        reasoning=reasoning,
        error=reply.failure.reason if reply.failure else "",
        model=storable(reply.model)[:120],
        disclosed_tools=list(disclosed),
        provider_parts=parts,
        finish_reason=storable(reply.finish_reason)[:40],
        asked=spending.asked(reply),
        more_looks=reply.guidance.more_looks if reply.guidance else 0,
        cost=usage.cost,
        first_token_seconds=reply.first_token_seconds,
        started_at=started_at,
        finished_at=finished_at,
        **counted,
    )
    run_statements.ADD_STEPS([step])
    data = {
        "step": number,
        "model": step.model,
        "calls": [storable(call.name)[:200] for call in reply.tool_calls],
        "cost": None if usage.cost is None else str(usage.cost),
        **counted,
    }
    ledger.record(ledger.run_chain(run.pk), "step.recorded", data, ledger.MODEL)
    for note in reply.notes:
        ledger.record(ledger.run_chain(run.pk), f"step.{note.type}", {"step": number, **storable_json(note.data)})
    return step


def _said(reply: Reply) -> tuple[str, str, Any]:
    """A reply's text and reasoning without secrets, and what its provider needs back, unless that repeats one."""
    said = storable(reply.text), storable(reply.reasoning)
    text, reasoning = map(without_secrets, said)
    return text, reasoning, storable_json(reply.provider_parts) if (text, reasoning) == said else None


def park(run: Run, token: uuid.UUID, waiting_for: str, wake_at: datetime | None = None, why: str = "") -> None:
    """Release a run until people have acted. The caller holds the row's lock and has checked again."""
    changed = run_statements.PARK(run=run.pk, token=token, waiting_for=waiting_for, wake_at=wake_at)
    if not changed:
        raise LeaseLost(f"{run.pk} is no longer held by this worker")
    ledger.record(ledger.run_chain(run.pk), "run.waiting", {"for": waiting_for, **({"why": why} if why else {})})


def raise_budget(run: Run, amount: Decimal, actor: str) -> None:
    """Let a run cost more than its limits allow. The caller holds its lock."""
    Run.objects.filter(pk=run.pk).update(budget_extra=F("budget_extra") + amount, updated_at=Now())
    ledger.record(ledger.run_chain(run.pk), "run.budget_raised", {"by": str(amount)}, actor)


def release(run: Run, token: uuid.UUID, reason: str, delay: float = 0, failed: bool = False) -> None:
    """Put a run back in the queue: its time slice is over, or the model should be asked again later."""
    with ledger.transaction():
        changed = Run.objects.filter(pk=run.pk, lease_token=token).update(
            state=Run.State.QUEUED,
            wake_at=_in(delay) if delay else None,
            lease_token=None,
            lease_until=None,
            worked_seconds=worked_seconds(),
            model_failures=F("model_failures") + 1 if failed else F("model_failures"),
            updated_at=Now(),
        )
        if not changed:
            raise LeaseLost(f"{run.pk} is no longer held by this worker")
        ledger.record(
            ledger.run_chain(run.pk), "run.released", {"reason": storable(reason)[:500], "delay_seconds": round(delay)}
        )


def wake(run: Run, at: datetime | None) -> None:
    """Make a waiting run due at a moment; None cancels a planned wake-up. The caller holds its lock."""
    run_statements.WAKE(run=run.pk, wake_at=at)


def finish(
    run: Run, state: str, signal: StopSignal, answer: str = "", *, partial: bool = False, actor: str = ledger.SYSTEM
) -> bool:
    """End a run, and wake the one that asked for it. The caller holds its lock and has closed its open calls.

    False: it had already ended.
    """
    changed = run_statements.finish(is_held=run.lease_token is not None)(
        run=run.pk,
        state=state,
        stop_reason=signal.reason,
        stop_message=without_secrets(storable(signal.message)),
        stop_source=storable(signal.source)[:120],
        answer=without_secrets(storable(answer)),
        answer_is_partial=partial,
    )
    if changed:
        data = {"reason": signal.reason, "message": sealed(without_secrets(storable(signal.message)), run.salt)}
        if signal.source:
            context = storable_up_to(MAX_CONTEXT_CHARS, dict(signal.context))
            data |= {"source": storable(signal.source)[:120], "context": context}
        ledger.record(ledger.run_chain(run.pk), f"run.{state}", data, actor)
        if run.parent_id is not None:
            _wake_parent(run.parent_id)
        if run.conversation_id is not None:
            transaction.on_commit(lambda: nudge_following(run.pk), robust=True)
    return bool(changed)


def nudge_following(run_id: uuid.UUID) -> None:
    """When a run has ended, the next one in its conversation may be due."""
    waiting = following(run_id)
    if waiting is not None:
        nudges.nudge(waiting)


def _wake_parent(parent_id: uuid.UUID) -> None:
    """Wake the run that waits for this answer. A run that is being driven checks before it is released."""
    waits = [Run.WaitingFor.SUBAGENT, Run.WaitingFor.APPROVAL]
    woken = Run.objects.filter(pk=parent_id, state=Run.State.WAITING, waiting_for__in=waits)
    if woken.update(wake_at=Now(), updated_at=Now()):
        transaction.on_commit(partial(nudges.nudge, parent_id), robust=True)


def request_cancel(run: Run, actor: str, reason: str = "", message: str = "") -> bool:
    """Ask the worker that holds a run to stop before its next model or tool call, and to say why."""
    changed = Run.objects.filter(pk=run.pk, state=Run.State.RUNNING, cancel_requested_at__isnull=True).update(
        cancel_requested_at=Now(), stop_reason=reason, stop_message=message, updated_at=Now()
    )
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.cancel_requested", actor=actor)
    return bool(changed)


def mark_tool_error(run: Run) -> None:
    Run.objects.filter(pk=run.pk, had_tool_errors=False).update(had_tool_errors=True)


def erase(run: Run, by: str) -> None:
    """Erase the words of an ended run and its steps; costs and times stay. The caller holds its lock."""
    said = {name: ERASED for name in ("answer", "stop_message") if getattr(run, name)}
    said |= {"title": ERASED, "input": ERASED, "customer": "", "request_digest": "", "salt": GONE}
    gone = {"metadata": {}, "script": None, "mocks": {} if run.is_mocked else None} | without_words(run)
    Run.objects.filter(pk=run.pk).update(**said, **gone, erased_at=Now(), erased_by=by[:200])
    run.steps.update(text="", reasoning="", provider_parts=None)


def _in(seconds: float) -> Any:
    return Now() + timedelta(seconds=seconds)
