"""Pauses and resumes runs: the part of `runs` that people ask for.

Each function returns whether it changed a row. False means that somebody else got there first, which is normal.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Value
from django.db.models.functions import Coalesce

from agentapp.models import Conversation, Run
from approvals import ledger
from approvals.clock import Now, SecondsSince
from approvals.models import Event


def pause(run: Run, actor: str, token: uuid.UUID | None = None, beside: Run | None = None, why: str = "") -> bool:
    """Pause a run until somebody resumes it; its requests stay open. The caller holds its lock.

    `token`: the lease of the worker that pauses it. `beside`: the run that it is paused and resumed with. `why`: for
    the record, if nobody asked for it.
    False: the run has ended, or a worker holds it.
    """
    changed = (
        Run.objects.filter(pk=run.pk, lease_token=token)
        .exclude(state__in=[*Run.FINAL, Run.State.PAUSED])
        .update(
            state=Run.State.PAUSED,
            waiting_for="",
            wake_at=None,
            lease_token=None,
            lease_until=None,
            pause_requested_at=None,
            worked_seconds=F("worked_seconds") if token is None else worked_seconds(),
            updated_at=Now(),
        )
    )
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.paused", _with(beside) | ({"why": why} if why else {}), actor)
    return bool(changed)


def resume(run: Run, actor: str) -> bool:
    """Queue a paused run again; it checks again whatever it was waiting for. False: it is not paused."""
    paused = Run.objects.filter(pk=run.pk, state=Run.State.PAUSED)
    changed = paused.update(state=Run.State.QUEUED, wake_at=None, pause_requested_at=None, updated_at=Now())
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.resumed", actor=actor)
    return bool(changed)


def request_pause(run: Run, actor: str, beside: Run | None = None) -> bool:
    """Ask the worker that holds a run to pause it before its next model or tool call. `beside`: as for `pause`."""
    running = Run.objects.filter(pk=run.pk, state=Run.State.RUNNING, pause_requested_at__isnull=True)
    changed = running.update(pause_requested_at=Now(), updated_at=Now())
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.pause_requested", _with(beside), actor)
    return bool(changed)


def put_aside(run: Run, actor: str, beside: Run | None = None) -> bool:
    """Pause a run at once if no worker holds it, else before its next model or tool call. The caller holds its lock.

    `beside`: as for `pause`. False: it has ended, or is already paused or about to be.
    """
    return (request_pause if run.state == Run.State.RUNNING else pause)(run, actor, beside=beside)


def is_aside_with(run: Run, other: Run) -> bool:
    """Whether people last paused this run together with the other, and not by itself since."""
    asked = Event.objects.filter(chain=ledger.run_chain(run.pk), type__in=("run.paused", "run.pause_requested"))
    last = asked.exclude(actor_key=ledger.SYSTEM).order_by("-seq").first()
    return last is not None and last.data.get("with") == str(other.pk)


def take_back_pause(run: Run, actor: str) -> None:
    """Resume a run that is paused or about to be. The caller holds its lock."""
    if resume(run, actor):
        return
    asked = Run.objects.filter(pk=run.pk, pause_requested_at__isnull=False)
    if asked.update(pause_requested_at=None, updated_at=Now()):
        ledger.record(ledger.run_chain(run.pk), "run.resumed", actor=actor)


def _with(beside: Run | None) -> dict[str, Any]:
    return {"with": str(beside.pk)} if beside is not None else {}


def want_paused_too(run: Run, actor: str, beside: Run | None = None) -> None:
    """Record that another person wants a run paused that already is, or is about to be. The caller holds its lock."""
    ledger.record(ledger.run_chain(run.pk), "run.pause_requested", _with(beside), actor)


def take_over(run: Run, user: User) -> bool:
    """Let a person speak in the agent's place. The caller holds the run's lock. False: somebody already does."""
    takers = run.takers if user.pk in run.takers else [*run.takers, user.pk]
    changed = Run.objects.filter(pk=run.pk, taken_over_by__isnull=True).update(
        taken_over_by=user, taken_over_at=Now(), takers=takers, updated_at=Now()
    )
    if changed:
        run.takers = takers
        ledger.record(ledger.run_chain(run.pk), "run.taken_over", actor=ledger.actor_of(user))
    return bool(changed)


def bar(run: Run, people: Iterable[int]) -> None:
    """Bar these people from deciding on anything the run proposes from now on. The caller holds the run's lock."""
    new = [pk for pk in people if pk not in run.takers]
    if new:
        run.takers = [*run.takers, *new]
        Run.objects.filter(pk=run.pk).update(takers=run.takers)


def hand_back(run: Run, actor: str) -> bool:
    """Let the agent speak again, and resume the run if it had not ended. The caller holds the run's lock.

    A worker that has not yet reached the point where it would stop carries on as if nobody had asked.
    False: nobody has taken it over.
    """
    changed = Run.objects.filter(pk=run.pk, taken_over_by__isnull=False).update(
        taken_over_by=None, taken_over_at=None, pause_requested_at=None, updated_at=Now()
    )
    if changed:
        ledger.record(ledger.run_chain(run.pk), "run.handed_back", actor=actor)
        resume(run, actor)
    return bool(changed)


def join(run: Run, conversation: Conversation) -> None:
    """Make a run part of the conversation that began with it. The caller holds the run's lock."""
    Run.objects.filter(pk=run.pk, conversation__isnull=True).update(conversation=conversation, updated_at=Now())


def worked_seconds() -> Any:
    """The time this worker has held the run, added to that of its earlier holders."""
    return F("worked_seconds") + Coalesce(SecondsSince("claimed_at"), Value(0.0))


def wake_switched(run_ids: Sequence[uuid.UUID]) -> None:
    """Make the runs due that were waiting for a kill switch: it was released."""
    waiting = Run.objects.filter(pk__in=run_ids, state=Run.State.WAITING, waiting_for=Run.WaitingFor.SWITCH)
    # Whoever holds a row is about to check for itself, and may be waiting for the transaction that releases.
    free = list(waiting.select_for_update(skip_locked=True, no_key=True).order_by("pk").values_list("pk", flat=True))
    waiting.filter(pk__in=free).update(wake_at=Now(), updated_at=Now())
