"""The only writer of Roundup: one mail about everything that waits for somebody's team, for people who want that.

Their rows stay queued, without an attempt, until it is due. A roundup is claimed for as long as a worker needs, and its
period is used up once it is sent; if a worker dies, the next one takes over. High-risk requests are not held back.
"""

import logging
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Min, Q, QuerySet

from approvals import absences, follow_ups, mail, sending
from approvals.channels.base import ChannelError
from approvals.clock import Now
from approvals.manners import AT_ONCE, Manners, last_due, manners, quiet_until
from approvals.models import Approval, Notification, Risk, Roundup
from approvals.standing import may_decide

logger = logging.getLogger(__name__)

State = Notification.State
_HELD_RISKS = (Risk.LOW, Risk.MEDIUM)
# No worker needs longer for one. After a failure, the next attempt is due then.
_TAKES = timedelta(minutes=10)
ATTEMPTS = 6
# A mail lists this many, of this many looked at. The inbox has the rest.
LISTED, _LOOKED_AT = 50, 200
_NOT_THEIRS = "Not sent: they may no longer decide about it."


def wanted_by(known: Mapping[int, Manners]) -> list[int]:
    """Which of these people want one mail about everything that waits."""
    return [user_id for user_id, one in known.items() if one.rhythm != AT_ONCE]


def rows_of(user_ids: Collection[int]) -> QuerySet[Notification]:
    """What is held back for these people until their roundup is due."""
    return Notification.objects.filter(
        state=State.QUEUED,
        kind=Notification.Kind.WAITING,
        channel__isnull=True,
        user__in=user_ids,
        approval__risk__in=_HELD_RISKS,
    )


def due_people(limit: int) -> list[int]:
    """People whose roundup is due, by the database's clock."""
    queued = Notification.objects.filter(
        state=State.QUEUED, kind=Notification.Kind.WAITING, channel__isnull=True, user__isnull=False
    )
    users = [user_id for user_id in queued.values_list("user_id", flat=True).order_by().distinct() if user_id]
    known = manners(users) if users else {}
    together = wanted_by(known)
    if not together:
        return []
    held = rows_of(together).order_by("user").values("user").annotate(first=Min("created_at"), now=Now())
    done = dict(Roundup.objects.filter(user__in=together).values_list("user_id", "period"))
    found = held.values_list("user", "first", "now")
    away = absences.standing_in(together)
    return [
        user_id
        for user_id, first, now in found
        if user_id is not None
        and _is_due(known[user_id], first, now, done.get(user_id))
        and (user_id in away or not quiet_until(known[user_id], now))
    ][:limit]


def send(user_id: int) -> bool:
    """Send a person's roundup, if it is due and unclaimed. False: it is not, or there was nothing to say."""
    one = manners([user_id])[user_id]
    Roundup.objects.bulk_create([Roundup(user_id=user_id)], ignore_conflicts=True)
    now: datetime = Roundup.objects.annotate(now=Now()).values_list("now", flat=True).get(user=user_id)
    period = last_due(one, now)
    if period is None or not rows_of([user_id]).filter(created_at__lte=period).exists():
        return False
    if quiet_until(one, now) and not absences.standing_in([user_id]):
        return False
    if not _unsent(user_id, period).filter(_free()).update(sending_until=Now() + _TAKES):
        return False
    held = rows_of([user_id]).filter(created_at__lte=now)
    waiting = held.filter(approval__state__in=Approval.UNDECIDED).select_related("approval", "user")
    decided = held.exclude(approval__state__in=Approval.UNDECIDED)
    rows, over = list(waiting.order_by("approval__expires_at")[:_LOOKED_AT]), decided.count()
    return _send(user_id, rows, over, period, now)


def _is_due(one: Manners, created_at: datetime, now: datetime, done: datetime | None) -> bool:
    period = last_due(one, now)
    return period is not None and created_at <= period and (done is None or done < period)


def _unsent(user_id: int, period: datetime) -> QuerySet[Roundup]:
    return Roundup.objects.filter(Q(period__isnull=True) | Q(period__lt=period), user=user_id)


def _free() -> Q:
    return Q(sending_until__isnull=True) | Q(sending_until__lte=Now())


def _send(user_id: int, rows: list[Notification], decided: int, period: datetime, now: datetime) -> bool:
    """`decided`: how many of the held requests no longer wait. While one of its readers is in quiet hours the whole
    roundup waits, and is looked at again when the claim is over.
    """
    waiting: dict[User, list[Notification]] = {}
    not_theirs: list[uuid.UUID] = []
    for row in rows:
        assert row.user is not None
        reader = sending.reader_of(row.user, row.approval)
        if not reader.is_active or not reader.email or may_decide(reader, row.approval) is not None:
            not_theirs.append(row.pk)
        else:
            waiting.setdefault(reader, []).append(row)
    if any(quiet_until(one, now) for one in manners([reader.pk for reader in waiting]).values()):
        return False
    sent: dict[str, list[Notification]] = {}
    for reader, theirs in waiting.items():
        try:
            sent[_mail(reader, theirs, period, decided)] = theirs
        except ChannelError as error:
            logger.warning("The roundup of user %s failed: %s", user_id, error)
            _failed(theirs, str(error))
            return False
    if not _finish(user_id, period, sent, not_theirs):
        return False
    for row in [row for theirs in sent.values() for row in theirs]:
        follow_ups.catch_up(row.approval_id)
    return bool(sent)


def _mail(reader: User, rows: list[Notification], period: datetime, decided: int) -> str:
    one = manners([reader.pk])[reader.pk]
    user = rows[0].user
    context = {
        "items": [{"approval": row.approval, "link": mail.link_to(row.approval)} for row in rows[:LISTED]],
        "number": len(rows),
        "more": max(len(rows) - LISTED, 0),
        "decided": decided,
        "shows": one.shows_arguments,
        "instead_of": user if reader != user else None,
        "link": mail.inbox(),
    }
    thread = mail.Thread(mail.own_id(f"roundup-{rows[0].user_id}-{reader.pk}-{period:%Y%m%d%H%M}"))
    return mail.send("roundup", context, [reader.email], thread=thread)


def _finish(user_id: int, period: datetime, sent: dict[str, list[Notification]], not_theirs: list[uuid.UUID]) -> bool:
    """Use the period up, and note on each row what became of it. False: another worker has."""
    with transaction.atomic():
        if not _unsent(user_id, period).update(period=period, sending_until=None):
            return False
        for receipt, rows in sent.items():
            queued = Notification.objects.filter(pk__in=[row.pk for row in rows], state=State.QUEUED)
            queued.update(state=State.SENT, receipt=receipt, error="", sent_at=Now(), attempts=F("attempts") + 1)
        ended = Notification.objects.filter(pk__in=not_theirs, state=State.QUEUED)
        ended.update(state=State.FAILED, error=_NOT_THEIRS)
        # All of them: otherwise the rows of a busy team would crowd out what still waits.
        over = rows_of([user_id]).exclude(approval__state__in=Approval.UNDECIDED)
        over.update(state=State.FAILED, error=sending.OVER)
    return True


def _failed(rows: list[Notification], error: str) -> None:
    """Count an attempt for what was to be sent. The claim stays until its time is over; then it is tried again."""
    mine = Notification.objects.filter(pk__in=[row.pk for row in rows], state=State.QUEUED)
    mine.update(attempts=F("attempts") + 1, error=error[:500])
    mine.filter(attempts__gte=ATTEMPTS).update(state=State.FAILED, sending_until=Now())
