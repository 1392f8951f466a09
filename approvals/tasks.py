"""Celery: tell people. Losing or doubling one of these messages changes nothing: the rows say what is due."""

from celery import shared_task

from approvals import notify, nudges, outgoing, people, roundups
from approvals.manners import MAIL

# The most that one pass takes.
BATCH = 50


@shared_task
def send_queued() -> int:
    """Send what is due, with a task of its own for each way. Returns the number of ways."""
    notify.give_up()
    people.tell_of_due(BATCH)
    ways = set(notify.ways_due())
    if roundups.due_people(1):
        ways.add(MAIL)
    for way in ways:
        send_over.delay(way)
    return len(ways)


@shared_task
def send_over(way: str) -> None:
    """Send what is due by mail, or over the channel with this id, one after the other.

    One thread of a worker at a time, so that a hanging server holds up no more than that.
    """
    with outgoing.turn(way) as mine:
        if not mine:
            return
        answers = outgoing.one_after_another(notify.due_ids(BATCH, way), notify.send)
        if answers and way == MAIL:
            answers = outgoing.one_after_another(roundups.due_people(BATCH), roundups.send)
    if answers and notify.due_ids(1, way):
        nudges.nudge()
