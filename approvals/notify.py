"""The only writer of a Notification's outcome. A channel that fails never stops an approval.

A notification is sent at least once. An attempt is claimed by counting it, for as long as one may take, so that two
workers do not send it together, however slow its server is. If a worker dies while sending, the next attempt follows.
"""

import logging
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta

import pydantic
from django.db.models import F, Q, QuerySet

from approvals import absences, channels, clock, follow_ups, people, roundups, sending
from approvals.channels.base import ChannelError
from approvals.clock import Now
from approvals.manners import MAIL, Manners, manners
from approvals.models import Notification

logger = logging.getLogger(__name__)

# How long after it was queued each attempt is due. After the last one it has failed, at `sending_until`. The gaps also
# space the attempts.
DUE_AFTER = (
    timedelta(0),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=20),
    timedelta(hours=1),
    timedelta(hours=4),
)
# No attempt takes longer than this.
_AN_ATTEMPT_TAKES = timedelta(minutes=10)
MAX_ERROR_CHARS = 500
# For so many rows, one statement of retention is quick.
FORGOTTEN_AT_ONCE = 5000


def due() -> Q:
    """Notifications whose next attempt is due, by the database's clock."""
    due = Q(pk__in=[])
    for attempts, after in enumerate(DUE_AFTER):
        due |= Q(attempts=attempts, created_at__lte=Now() - after)
    return Q(state=Notification.State.QUEUED) & _at_rest() & due


def _at_rest() -> Q:
    """Notifications with no attempt under way."""
    return Q(sending_until__isnull=True) | Q(sending_until__lte=Now())


def ways_due() -> list[str]:
    """The ways by which something should be sent now: mail, or the channel with this id."""
    channels_due = _sendable().order_by().values_list("channel", flat=True).distinct()
    return [str(channel_id) if channel_id else MAIL for channel_id in channels_due]


def due_ids(limit: int, way: str | None = None) -> list[uuid.UUID]:
    """What should be sent now, oldest first; with a way, only what goes that way."""
    queued = _sendable()
    if way is not None:
        queued = queued.filter(channel=None if way == MAIL else uuid.UUID(way))
    return list(queued.order_by("created_at").values_list("pk", flat=True)[:limit])


def _sendable() -> QuerySet[Notification]:
    """What is due and need not wait. Messages for somebody in quiet hours wait without an attempt, and so do those they
    receive as a roundup.
    """
    known = people.manners_of_queued()
    queued = Notification.objects.filter(due())
    if known:
        # A message that is only changed disturbs nobody.
        changed = Q(follows__isnull=False, channel__kind__in=channels.editing()) & ~Q(follows__receipt="")
        queued = queued.filter(~_disturbing(known, clock.now()) | Q(user__isnull=True) | changed)
    together = roundups.wanted_by(known)
    if together:
        queued = queued.exclude(pk__in=roundups.rows_of(together).values("pk"))
    return queued


def _disturbing(known: Mapping[int, Manners], now: datetime) -> Q:
    """Messages for somebody in quiet hours. If a deputy reads for somebody away, the deputy's quiet hours count."""
    deputies = absences.standing_in(known)
    quiet = people.in_quiet_hours(known, now)
    resting = people.in_quiet_hours(manners({deputy.pk for deputy in deputies.values()}), now) if deputies else set()
    # If both or neither are in quiet hours, it does not matter who reads.
    differing = {user_id for user_id, deputy in deputies.items() if (user_id in quiet) != (deputy.pk in resting)}
    if not differing:
        return Q(user__in=quiet)
    held = sending.read_by(quiet | resting, Notification.objects.filter(due(), user__in=differing), deputies)
    return Q(user__in=quiet - differing) | Q(pk__in=held)


def give_up() -> int:
    """End notifications whose last attempt died with its worker. Returns how many."""
    lost = Notification.objects.filter(
        _at_rest(),
        state=Notification.State.QUEUED,
        attempts__gte=len(DUE_AFTER),
        created_at__lte=Now() - DUE_AFTER[-1] - _AN_ATTEMPT_TAKES,
    )
    error = "It is not known whether the last attempt was sent: the worker died."
    return lost.update(state=Notification.State.FAILED, error=error, sending_until=Now())


def queue_again(approval_id: uuid.UUID) -> int:
    """Queue again what was not sent because a request no longer waited: it waits again. Returns how many.

    Call it in the transaction of that change.
    """
    kept_back = Notification.objects.filter(
        approval=approval_id, state=Notification.State.FAILED, follows__isnull=True, error=sending.OVER
    )
    return kept_back.update(state=Notification.State.QUEUED, attempts=0, error="", sending_until=None)


def send(notification_id: uuid.UUID) -> bool:
    """Make one attempt at one notification. False: it is not due, another worker is making it, or it failed."""
    claimed = Notification.objects.filter(due(), pk=notification_id).update(
        attempts=F("attempts") + 1, sending_until=Now() + _AN_ATTEMPT_TAKES
    )
    if not claimed:
        return False
    read = Notification.objects.select_related("approval", "channel", "user", "comment__author", "follows")
    notification = read.get(pk=notification_id)
    try:
        receipt = _send(notification)
    except ChannelError as error:
        _mark_failed(notification, error)
        return False
    sent = Notification.objects.filter(pk=notification.pk, state=Notification.State.QUEUED)
    is_sent = bool(sent.update(state=Notification.State.SENT, error="", receipt=receipt, sent_at=Now()))
    if is_sent and notification.follows is None:
        follow_ups.catch_up(notification.approval_id)
    return is_sent


def _send(notification: Notification) -> str:
    """Raises ChannelError, whatever goes wrong."""
    try:
        return sending.send(notification)
    except ChannelError:
        raise
    except (LookupError, pydantic.ValidationError) as error:
        raise ChannelError(f"The channel is not set up correctly: {error}", permanent=True) from error
    except Exception as error:  # a channel can fail in any way its author did not foresee
        logger.exception("%s failed", notification)
        raise ChannelError(f"{type(error).__name__}: {error}") from error


def _mark_failed(notification: Notification, error: ChannelError) -> None:
    made = notification.attempts
    for_good = error.permanent or made >= len(DUE_AFTER)
    state = Notification.State.FAILED if for_good else Notification.State.QUEUED
    logger.warning("%s failed: %s", notification, error)
    # The same pause as for a message just queued: one held back for hours would be due at once.
    pause = timedelta(0) if for_good else DUE_AFTER[made] - DUE_AFTER[made - 1]
    Notification.objects.filter(pk=notification.pk, state=Notification.State.QUEUED).update(
        state=state, error=str(error)[:MAX_ERROR_CHARS], sending_until=Now() + pause
    )


def old(before: datetime) -> QuerySet[Notification]:
    """Old messages, sent or given up before a moment, that still say where they went."""
    ended = Notification.objects.filter(created_at__lt=before).exclude(state=Notification.State.QUEUED)
    return ended.exclude(receipt="", error="")


def forget(before: datetime) -> int:
    """Forget the receipts of old messages and what went wrong, some at a time. The fact that they were sent stays."""
    gone = 0
    while keys := list(old(before).values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE]):
        gone += old(before).filter(pk__in=keys).update(receipt="", error="")
    return gone
