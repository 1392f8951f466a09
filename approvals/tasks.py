"""Celery: tell people. Losing or doubling one of these messages changes nothing: the rows say what is due."""

import uuid

from celery import shared_task

from approvals import notify, people, roundups

# One pass takes no more, so that a dead mail server cannot keep a worker for long.
BATCH = 50


@shared_task
def send_notification(notification_id: str) -> bool:
    """Make one attempt at one notification. Returns whether it was sent."""
    return notify.send(uuid.UUID(notification_id))


@shared_task
def send_queued() -> int:
    """Hand out every notification that is due. Returns how many."""
    notify.give_up()
    people.tell_of_due(BATCH)
    due = notify.due_ids(BATCH)
    for notification_id in due:
        send_notification.delay(str(notification_id))
    for user_id in roundups.due_people(BATCH):
        send_roundup.delay(user_id)
    return len(due)


@shared_task
def send_roundup(user_id: int) -> bool:
    """Mail one person what waits for them together. Returns whether somebody was mailed."""
    return roundups.send(user_id)
