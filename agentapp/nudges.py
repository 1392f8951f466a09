"""Tells workers what may be due, by a task's name: so that whatever moves a run, or hears of something, can say so."""

import logging
import uuid

from celery import current_app

log = logging.getLogger(__name__)

DRIVE_RUN = "agentapp.tasks.drive_run"
MAIL_ACCOUNT_CHANGE = "agentapp.tasks.mail_account_change"
REFRESH_SOURCE = "agentapp.refreshing.refresh_source"


def nudge(run_id: uuid.UUID, delay: float = 0) -> None:
    """Tell a worker that a run may be due. Never raises: the sweep finds what a lost nudge leaves."""
    try:
        current_app.send_task(DRIVE_RUN, (str(run_id),), countdown=delay, retry=False)
    except Exception:  # the broker may be down in any way
        log.warning("No worker could be told about run %s; the sweep will find it", run_id, exc_info=True)


def source_changed(source: str) -> None:
    """Tell a worker that the tools of this source have changed. Never raises: sources are looked at anyway."""
    try:
        current_app.send_task(REFRESH_SOURCE, (source,), retry=False)
    except Exception:  # the broker may be down in any way
        log.warning("No worker could be told that the tools of %s have changed", source, exc_info=True)


def account_changed(user_id: int, event: str, kind: str, moment: str) -> None:
    """Tell a worker to mail somebody that their account has changed. Never raises: the ledger has it anyway."""
    try:
        current_app.send_task(MAIL_ACCOUNT_CHANGE, (user_id, event, kind, moment), retry=False)
    except Exception:  # the broker may be down in any way
        log.warning("No worker could be told to mail user %s about their account", user_id, exc_info=True)
