"""The only writer of Run and Step. Each function is one transition and its event.

A function returns whether it changed a row; False means somebody else got there first, and is
normal. Functions that take a lease token raise LeaseLost when the run is no longer held by it.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, F, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from agentapp.messages import MAX_COST, MAX_TOKENS, Reply, Usage
from agentapp.models import Agent, ApiToken, Breaker, Conversation, Run, Step
from approvals import ledger
from approvals.clock import Now
from approvals.digest import storable, storable_json
from approvals.models import Event


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


def create(start: Start, via: str = "") -> Run:
    """A queued run. The caller is inside `ledger.transaction()` and nudges a worker on commit."""
    run: Run = Run.objects.create(
        agent=start.agent,
        agent_snapshot=start.agent_snapshot,
        route=start.route,
        conversation=start.conversation,
        customer=start.customer,
        title=start.title,
        input=start.input,
        metadata=start.metadata or {},
        script=start.script,
        starter=start.starter,
        token=start.token,
        request_key=start.request_key,
        request_digest=start.request_digest,
        created_at=Now(),
        updated_at=Now(),
    )
    data = {"agent": start.agent.name, "route": start.route, "title": start.title, "scripted": start.script is not None}
    ledger.record(ledger.run_chain(run.pk), "run.queued", data, ledger.actor_of(start.starter, via))
    return run


def due() -> Q:
    """Runs that a worker may claim now: queued or woken, or held by a lease that ran out."""
    woken = Q(wake_at__isnull=True) | Q(wake_at__lte=Now())
    return (
        Q(state=Run.State.QUEUED) & woken
        | Q(state=Run.State.WAITING, wake_at__lte=Now())
        | Q(state=Run.State.RUNNING, lease_until__lte=Now())
    )


def claim(run_id: uuid.UUID) -> Run | None:
    """Take a lease on a run that is due. None: it is not due, or somebody else holds it."""
    token = uuid.uuid4()
    with ledger.transaction():
        claimed = (
            Run.objects.filter(due(), pk=run_id)
            .update(
                state=Run.State.RUNNING,
                waiting_for="",
                wake_at=None,
                lease_token=token,
                lease_until=_in(settings.LEASE_SECONDS),
                started_at=Coalesce("started_at", Now()),
                updated_at=Now(),
            )
        )  # fmt: skip
        if not claimed:
            return None
        ledger.record(ledger.run_chain(run_id), "run.claimed", {"lease": str(token)})
        return with_configuration().select_related("agent", "conversation", "starter").get(pk=run_id)


def renew(run_id: uuid.UUID, token: uuid.UUID) -> bool:
    """Hold a lease longer. False: it is lost."""
    held = Run.objects.filter(pk=run_id, lease_token=token, state=Run.State.RUNNING)
    return bool(held.update(lease_until=_in(settings.LEASE_SECONDS)))


def lock(run_id: uuid.UUID) -> Run | None:
    """The run's row, locked until the transaction ends. Whoever changes a run's approvals holds this."""
    return with_configuration().select_for_update(of=("self",)).filter(pk=run_id).first()


def held(run_id: uuid.UUID, token: uuid.UUID) -> Run:
    """The run's row, locked, with what the worker must know before it goes on. Raises LeaseLost."""
    run = with_configuration().select_for_update(of=("self",)).filter(pk=run_id, lease_token=token).first()
    if run is None:
        raise LeaseLost(f"{run_id} is no longer held by this worker")
    return run


def with_configuration() -> QuerySet[Run]:
    """Runs with the database's clock, which alone decides leases and expiry, as `database_now`, and
    with `configuration_height`: when that has grown, rules or tools may have changed. And with
    `breakers_need_a_look`: whether any breaker has counted a failure.
    """
    failing = Breaker.objects.filter(~Q(state=Breaker.State.CLOSED) | Q(failures__gt=0))
    latest = Event.objects.filter(chain=ledger.CONFIGURATION).order_by("-seq").values("seq")[:1]
    return Run.objects.annotate(
        database_now=Now(),
        configuration_height=Coalesce(Subquery(latest), Value(0)),
        breakers_need_a_look=Exists(failing),
    )


def clock(run: Run) -> datetime:
    """The database's time when the run's row was read with `claim`, `held` or `with_configuration`."""
    now: datetime = run.database_now  # type: ignore[attr-defined]
    return now


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

    None: the run was told to stop while the model was thinking; or the configuration is no longer
    what it was at `height`, so that the calls must be checked anew. The caller is inside
    `ledger.transaction()` and stores the step's calls in it. Raises LeaseLost.
    """
    usage = _credible(reply.usage)
    number = run.step_count + 1
    current = Run.objects.filter(pk=run.pk, lease_token=token, cancel_requested_at__isnull=True)
    if height is not None:
        current = current.exclude(Exists(Event.objects.filter(chain=ledger.CONFIGURATION, seq__gt=height)))
    updated = current.update(
        step_count=number,
        input_tokens=F("input_tokens") + usage.input_tokens,
        cached_tokens=F("cached_tokens") + usage.cached_tokens,
        output_tokens=F("output_tokens") + usage.output_tokens,
        cost=F("cost") + (usage.cost or 0),
        cost_is_partial=True if usage.cost is None else F("cost_is_partial"),
        model_failures=0,
        lease_until=_in(settings.LEASE_SECONDS),
        updated_at=Now(),
    )
    if not updated:
        held(run.pk, token)
        return None
    step = Step.objects.create(
        run=run,
        number=number,
        text=storable(reply.text),
        reasoning=storable(reply.reasoning),
        error=reply.failure.reason if reply.failure else "",
        model=storable(reply.model)[:120],
        disclosed_tools=list(disclosed),
        provider_parts=storable_json(reply.provider_parts),
        finish_reason=storable(reply.finish_reason)[:40],
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost,
        started_at=started_at,
        finished_at=finished_at,
    )
    data = {
        "step": number,
        "model": step.model,
        "calls": [storable(call.name)[:200] for call in reply.tool_calls],
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": None if usage.cost is None else str(usage.cost),
    }
    ledger.record(ledger.run_chain(run.pk), "step.recorded", data, ledger.MODEL)
    for note in reply.notes:
        ledger.record(ledger.run_chain(run.pk), f"step.{note.type}", {"step": number, **storable_json(note.data)})
    return step


def park(run: Run, token: uuid.UUID, waiting_for: str, wake_at: datetime | None = None) -> None:
    """Let go of a run until people have acted. The caller holds the row's lock and has looked again."""
    changed = Run.objects.filter(pk=run.pk, lease_token=token).update(
        state=Run.State.WAITING,
        waiting_for=waiting_for,
        wake_at=wake_at,
        lease_token=None,
        lease_until=None,
        updated_at=Now(),
    )
    if not changed:
        raise LeaseLost(f"{run.pk} is no longer held by this worker")
    ledger.record(ledger.run_chain(run.pk), "run.waiting", {"for": waiting_for})


def release(run: Run, token: uuid.UUID, reason: str, delay: float = 0, failed: bool = False) -> None:
    """Put a run back in the queue: its time slice is over, or the model should be asked again later."""
    with ledger.transaction():
        changed = Run.objects.filter(pk=run.pk, lease_token=token).update(
            state=Run.State.QUEUED,
            wake_at=_in(delay) if delay else None,
            lease_token=None,
            lease_until=None,
            model_failures=F("model_failures") + 1 if failed else F("model_failures"),
            updated_at=Now(),
        )
        if not changed:
            raise LeaseLost(f"{run.pk} is no longer held by this worker")
        ledger.record(
            ledger.run_chain(run.pk), "run.released", {"reason": storable(reason)[:500], "delay_seconds": round(delay)}
        )


def wake(run: Run, at: datetime | None) -> None:
    """Make a waiting run due at a moment; None takes a planned waking back. The caller holds its lock."""
    Run.objects.filter(pk=run.pk, state=Run.State.WAITING).update(wake_at=at, updated_at=Now())


def wake_switched(run_ids: Sequence[uuid.UUID]) -> None:
    """Make runs that wait for a kill switch due: it was released."""
    waiting = Run.objects.filter(pk__in=run_ids, state=Run.State.WAITING, waiting_for=Run.WaitingFor.SWITCH)
    # Whoever holds a row is about to look for itself, and may be waiting for the one who releases.
    free = list(waiting.select_for_update(skip_locked=True).order_by("pk").values_list("pk", flat=True))
    waiting.filter(pk__in=free).update(wake_at=Now(), updated_at=Now())


def told_to_stop(run_id: uuid.UUID) -> bool:
    """Whether a person has asked for the run to be cancelled, for a worker whose tool is running."""
    return Run.objects.filter(pk=run_id, cancel_requested_at__isnull=False).exists()


def finish(
    run: Run,
    state: str,
    reason: str,
    message: str = "",
    answer: str = "",
    actor: str = ledger.SYSTEM,
    source: str = "",
) -> bool:
    """End a run. The caller holds its lock and has closed its open calls. False: it has ended already."""
    changed = (
        Run.objects.filter(pk=run.pk)
        .exclude(state__in=Run.FINAL)
        .update(
            state=state,
            waiting_for="",
            stop_reason=reason,
            stop_message=storable(message),
            stop_source=storable(source)[:120],
            answer=storable(answer),
            lease_token=None,
            lease_until=None,
            wake_at=None,
            finished_at=Now(),
            updated_at=Now(),
        )
    )
    if changed:
        data = {"reason": reason, "message": storable(message)[:500]}
        ledger.record(ledger.run_chain(run.pk), f"run.{state}", data, actor)
    return bool(changed)


def request_cancel(run: Run, actor: str) -> bool:
    """Ask the worker that holds a run to stop before its next model or tool call."""
    changed = Run.objects.filter(pk=run.pk, state=Run.State.RUNNING, cancel_requested_at__isnull=True).update(
        cancel_requested_at=Now(), updated_at=Now()
    )
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.cancel_requested", actor=actor)
    return bool(changed)


def mark_tool_error(run: Run) -> None:
    Run.objects.filter(pk=run.pk, had_tool_errors=False).update(had_tool_errors=True)


def _credible(usage: Usage) -> Usage:
    """What a provider reports, held to what one reply can have taken: an absurd figure must not stop the run."""
    return Usage(
        input_tokens=min(max(usage.input_tokens, 0), MAX_TOKENS),
        output_tokens=min(max(usage.output_tokens, 0), MAX_TOKENS),
        cached_tokens=min(max(usage.cached_tokens, 0), MAX_TOKENS),
        cost=None if usage.cost is None or not 0 <= usage.cost <= MAX_COST else usage.cost,
    )


def _in(seconds: float) -> Any:
    return Now() + timedelta(seconds=seconds)
