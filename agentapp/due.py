"""Which runs may be driven now, what the others wait for, and by which clock. Reads only: `runs` writes."""

import functools
import uuid
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, UUIDField, Value
from django.db.models.functions import Coalesce

from agentapp.models import Breaker, Conversation, Draft, Run
from approvals import ledger
from approvals.clock import Now
from approvals.models import ChainHead
from approvals.prepared import Given, Prepared

LASTING = ("agent_snapshot", "title", "input", "metadata", "script", "mocks", "opening", "changed")
"""What a run begins with, and what never changes until its words are erased: the large part of its row."""


@functools.cache
def due() -> Q:
    """Runs that a worker may claim now: queued or woken, or held by an expired lease. A waiting run may have a time to
    wake, as when a held decision takes effect or the day of its agent's budget is over.

    The runs of a conversation go one after another, and none begins while a person has taken over or is wanted; a run
    that has begun goes on to its answer. A run that another run asked for is part of that run, and waits for nobody.
    """
    woken = Q(wake_at__isnull=True) | Q(wake_at__lte=Now())
    earlier = unfinished().filter(conversation=OuterRef("conversation"), created_at__lt=OuterRef("created_at"))
    taken_over = Conversation.objects.filter(pk=OuterRef("conversation"), mode=Conversation.Mode.MANUAL)
    first = Q(parent__isnull=False) | ~Exists(earlier) & (Q(started_at__isnull=False) | ~Exists(taken_over))
    return (
        Q(state=Run.State.QUEUED) & woken & first
        | Q(state=Run.State.WAITING, wake_at__lte=Now())
        | Q(state=Run.State.RUNNING, lease_until__lte=Now())
    )


def claimable() -> QuerySet[Run]:
    """Runs that are due. The query is built once."""
    return _due_runs().all()


@functools.cache
def _due_runs() -> QuerySet[Run]:
    return Run.objects.filter(due())


def unfinished() -> QuerySet[Run]:
    """Runs that keep later ones of their conversation waiting."""
    return Run.objects.filter(parent__isnull=True).exclude(state__in=Run.FINAL)


_ENDED_IN = Prepared(
    lambda: (
        Run.objects.filter(pk=Given("run", UUIDField()), state__in=Run.FINAL)
        .order_by()
        .values_list("conversation", flat=True)
    )
)


def following(run_id: uuid.UUID) -> uuid.UUID | None:
    """The run whose turn it is in its conversation, now that this one has ended. None: there is none."""
    conversation = _ENDED_IN.first(run=run_id)
    if conversation is None:  # nearly always: the run has no conversation, or waits
        return None
    waiting = Run.objects.filter(due(), state=Run.State.QUEUED, conversation=conversation)
    return waiting.order_by("created_at").values_list("pk", flat=True).first()


def with_end(chain: Any) -> QuerySet[Run]:
    """`with_configuration`, plus the end of the run's chain of events for `ledger.knows`: read under the run's lock."""
    head = ChainHead.objects.filter(chain=chain)
    ends = {"chain_seq": Subquery(head.values("seq")), "chain_hash": Subquery(head.values("hash"))}
    return _configured().annotate(**ends)


def with_configuration() -> QuerySet[Run]:
    """Runs with the database's clock, which alone decides leases and expiry, as `database_now`; with
    `configuration_height` and `configuration_hash`: if the chain has grown, rules or tools may have changed;
    with `breakers_need_a_look`: whether any breaker has counted a failure; and with `has_draft`.
    """
    return _configured().all()


@functools.cache  # Building the query takes longer than running it, and every step of every run needs it.
def _configured() -> QuerySet[Run]:
    failing = Breaker.objects.filter(~Q(state=Breaker.State.CLOSED) | Q(failures__gt=0))
    configuration = ChainHead.objects.filter(chain=ledger.CONFIGURATION)
    return Run.objects.annotate(
        database_now=Now(),
        configuration_height=Coalesce(Subquery(configuration.values("seq")), Value(0)),
        configuration_hash=Coalesce(Subquery(configuration.values("hash")), Value("")),
        breakers_need_a_look=Exists(failing),
        has_draft=Exists(Draft.objects.filter(run=OuterRef("pk"))),
    )


def clock(run: Run) -> datetime:
    """The database's time when the run's row was read with `claim`, `held` or `with_configuration`."""
    now: datetime = run.database_now  # type: ignore[attr-defined]
    return now


def told_to_stop(run_id: uuid.UUID) -> bool:
    """Whether a person has asked for the run to be cancelled, for a worker whose tool is running."""
    return Run.objects.filter(pk=run_id, cancel_requested_at__isnull=False).exists()
