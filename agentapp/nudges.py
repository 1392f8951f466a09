"""Tells workers that a run may be due, by the task's name: so that whatever moves a run can say so."""

import logging
import uuid

from celery import current_app

log = logging.getLogger(__name__)

DRIVE_RUN = "agentapp.tasks.drive_run"


def nudge(run_id: uuid.UUID, delay: float = 0) -> None:
    """Tell a worker that a run may be due. Never raises: the sweep finds what a lost nudge leaves."""
    try:
        current_app.send_task(DRIVE_RUN, (str(run_id),), countdown=delay, retry=False)
    except Exception:  # the broker may be down in any way
        log.warning("No worker could be told about run %s; the sweep will find it", run_id, exc_info=True)
