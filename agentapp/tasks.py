"""Celery: claim, call, return. A message is a nudge; losing or doubling one changes nothing."""

import logging
import uuid

from celery import shared_task

from agentapp import loop, runs
from agentapp import sweep as sweeping

log = logging.getLogger(__name__)


@shared_task
def drive_run(run_id: str) -> None:
    again = loop.drive(uuid.UUID(run_id))
    if again is not None:
        nudge(uuid.UUID(run_id), again.delay)
    else:
        nudge_following(uuid.UUID(run_id))


@shared_task
def sweep() -> None:
    for run_id in sweeping.sweep():
        nudge(run_id)


def nudge_following(run_id: uuid.UUID) -> None:
    """When a run has ended, the next of its conversation may be due."""
    following = runs.following(run_id)
    if following is not None:
        nudge(following)


def nudge(run_id: uuid.UUID, delay: float = 0) -> None:
    """Tell a worker that a run may be due. Never raises: the sweep finds what a lost nudge leaves."""
    try:
        drive_run.apply_async((str(run_id),), countdown=delay, retry=False)
    except Exception:  # the broker may be down in any way
        log.warning("No worker could be told about run %s; the sweep will find it", run_id, exc_info=True)
