"""Sessions that are over: nothing else deletes them, and anybody who opens the sign-in page can begin one."""

from datetime import timedelta

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.utils import timezone

# One statement deletes no more, and one pass makes no more of them than this; the next goes on.
BATCH = 1000
MOST = 200 * BATCH
# Whoever is signing in right now has one of the two rows before the other.
_SETTLES = timedelta(hours=1)


def forget() -> int:
    """Delete sessions past their end, and the lines in people's lists whose session is gone. Returns how many rows."""
    gone = 0
    while gone < MOST and (some := _forget_some()):
        gone += some
    while gone < MOST and (some := _unlist_some()):
        gone += some
    return gone


def _forget_some() -> int:
    over = Session.objects.filter(expire_date__lt=timezone.now())
    keys = list(over.order_by("expire_date").values_list("pk", flat=True)[:BATCH])
    # Asked again: one that was used meanwhile goes on.
    return over.filter(pk__in=keys).delete()[0]


def _unlist_some() -> int:
    session = Session.objects.filter(pk=OuterRef("session_key"))
    alone = UserSession.objects.filter(~Exists(session), last_seen_at__lt=timezone.now() - _SETTLES)
    keys = list(alone.order_by("pk").values_list("pk", flat=True)[:BATCH])
    deleted: int = UserSession.objects.filter(pk__in=keys).delete()[0]
    return deleted
