"""Tells workers that there is something to send, by a task's name: so that whatever makes it can say so."""

from approvals import broker

SEND_QUEUED = "approvals.tasks.send_queued"


def nudge() -> None:
    """Have queued notifications sent soon. Never raises: the beat finds them anyway."""
    broker.tell(SEND_QUEUED, about="that notifications wait; the beat will find them")
