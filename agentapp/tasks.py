"""Celery: claim, call, return. A message is a nudge; losing or doubling one changes nothing."""

import uuid

from celery import shared_task

from agentapp import account_changes, loop, password_reset, runs, webhooks
from agentapp import sweep as sweeping
from agentapp.nudges import nudge

__all__ = [
    "drive_run", "forget_webhooks", "mail_account_change", "mail_reset_links", "nudge", "send_to_endpoint",
    "send_webhooks", "sweep",
]  # fmt: skip


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


@shared_task
def mail_reset_links(address: str, asking: dict[str, str]) -> None:
    """Nothing repeats this when it is lost: the page says to ask again."""
    password_reset.mail_links(address, password_reset.Asking(**asking))


@shared_task
def mail_account_change(user_id: int, event: str, kind: str, moment: str) -> None:
    account_changes.mail_change(user_id, event, kind, moment)


@shared_task
def send_webhooks() -> None:
    """Have what happened sent to every endpoint that wants it, each by a task of its own."""
    webhooks.collect()
    webhooks.give_up()
    for endpoint_id in webhooks.due_endpoints():
        send_to_endpoint.delay(str(endpoint_id))


@shared_task
def send_to_endpoint(endpoint_id: str) -> None:
    webhooks.send_due(uuid.UUID(endpoint_id))


@shared_task
def forget_webhooks() -> None:
    webhooks.forget_old()


def nudge_following(run_id: uuid.UUID) -> None:
    """When a run has ended, the next of its conversation may be due."""
    following = runs.following(run_id)
    if following is not None:
        nudge(following)
