"""Tells workers, by a task's name, that there is something to send, so that whatever queues it can say so."""

from approvals import broker

SEND_QUEUED = "approvals.tasks.send_queued"


def nudge() -> None:
    """Have queued notifications sent soon. Never raises: the beat finds them anyway."""
    broker.tell(SEND_QUEUED, about="that notifications wait; the beat will find them")
