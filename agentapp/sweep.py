"""The sweep, which makes every nudge optional: it ends what has expired and finds the runs that are due."""

import logging
import uuid
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from agentapp import continuity, health_figures, runs, switches
from agentapp.models import Heartbeat, Run
from approvals import claims, clock, decisions, ledger, questions, standing, timing
from approvals import nudges as approval_nudges
from approvals.clock import Now
from approvals.prepared import Prepared

logger = logging.getLogger(__name__)

BATCH = 500
# With this many messages waiting, a due run nearly always has one among them.
MANY_WAIT = 2 * BATCH


def sweep(many_wait: bool = False) -> list[uuid.UUID]:
    """Stop everything if the database is not the one it was, record missed targets, escalate what is due, expire what
    is overdue, wake runs that no kill switch holds any more, hand on requests of people who have gone away, and delete
    claims on requests that have ended.

    Returns the runs a worker should look at. While many messages wait, these are only the runs that became due, or
    whose lease ran out, since the last sweeps: no worker was told about those. For the others, each sweep would add
    another message until the broker is full. Runs whose nudge was lost are found when fewer messages wait.
    """
    with ledger.transaction():
        if why := continuity.look():
            switches.hold(why)
    for question_id, run_id in questions.overdue(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            decisions.go_on(question_id, "no answer came in time")
    # Before anything expires: what nobody decided by its target has missed it, however late this is noticed.
    for approval_id, run_id in timing.breaching(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            decisions.breach(approval_id)
    for approval_id, run_id in timing.escalating(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            if decisions.escalate(approval_id):
                transaction.on_commit(approval_nudges.nudge, robust=True)
    for approval_id, run_id in standing.overdue(BATCH):
        with ledger.transaction():
            run = runs.lock(run_id)
            if decisions.expire(approval_id) and run is not None:
                runs.wake(run, runs.clock(run))
    with ledger.transaction():
        runs.wake_switched(switches.forgotten(BATCH))
    for approval_id, run_id in claims.left_behind(BATCH):
        with ledger.transaction():
            runs.lock(run_id)
            claims.hand_on(approval_id)
    claims.forget_ended(BATCH)
    _beat()
    _look_at_clock()
    if many_wait:
        lately = Now() - timedelta(seconds=2 * settings.SWEEP_SECONDS)
        return list(_due(Q(wake_at__gt=lately) | Q(state=Run.State.RUNNING, lease_until__gt=lately)))
    return _DUE.rows()


def _due(only: Q) -> "QuerySet[Run, uuid.UUID]":
    return Run.objects.filter(runs.due(), only).order_by("updated_at").values_list("pk", flat=True)[:BATCH]


_DUE = Prepared(lambda: _due(Q()))


def is_due() -> bool:
    """Whether the last sweep ended long enough ago for another.

    A last sweep in the future means that the database's clock was put back since.
    """
    lately = Now() - timedelta(seconds=settings.SWEEP_SECONDS / 2)
    return not Heartbeat.objects.filter(pk=health_figures.SWEEP, at__gt=lately, at__lte=Now()).exists()


def _beat() -> None:
    """Record that the sweep is done, and so that a beat was sent, delivered and handled."""
    if not Heartbeat.objects.filter(pk=health_figures.SWEEP).update(at=Now()):
        Heartbeat.objects.get_or_create(pk=health_figures.SWEEP, defaults={"at": Now()})


def _look_at_clock() -> None:
    """Note if the clock of this worker is off. Each sweep is another worker's, so all get their turn."""
    clock.asked()
    if abs(clock.off()) > health_figures.CLOCKS_MAY_DIFFER:
        logger.warning("The clock of this worker is %s off the database's", abs(clock.off()))
        Heartbeat.objects.update_or_create(pk=health_figures.WORKER_CLOCK, defaults={"at": Now()})
