"""Celery: claim, call, return. A message is a nudge; losing or doubling one changes nothing."""

import uuid

from celery import shared_task

from agentapp import loop
from agentapp import sweep as sweeping
from agentapp.nudges import nudge

__all__ = ["drive_run", "nudge", "sweep"]


@shared_task
def drive_run(run_id: str) -> None:
    again = loop.drive(uuid.UUID(run_id))
    if again is not None:
        nudge(uuid.UUID(run_id), again.delay)


@shared_task
def sweep() -> None:
    for run_id in sweeping.sweep():
        nudge(run_id)
