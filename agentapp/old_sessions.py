"""Deletes expired sessions: nothing else does, and anybody who opens the sign-in page can begin one."""

from datetime import timedelta
from typing import Any

from allauth.account.signals import user_logged_in
from allauth.usersessions import signals
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from approvals.clock import Now

# The most rows that one statement and one pass delete. The next pass continues.
BATCH = 1000
MOST = 200 * BATCH
# During a sign-in, one of the two rows exists before the other.
_SETTLES = timedelta(hours=1)


def end_none_at_sign_in() -> None:
    """Let a sign-in list its own session and load no other.

    allauth loads every other session of the person to see whether it has expired. Loading a session signed with an
    earlier SECRET_KEY replaces it, and its browser would never learn the new key. `forget` deletes expired sessions.
    """
    user_logged_in.disconnect(signals.on_user_logged_in)
    user_logged_in.connect(_list_own)


def _list_own(request: HttpRequest, **_: Any) -> None:
    UserSession.objects.create_from_request(request)


def forget() -> int:
    """Delete expired sessions, and the entries in people's lists whose session is gone. Returns the number of rows."""
    gone = 0
    while gone < MOST and (some := _forget_some()):
        gone += some
    while gone < MOST and (some := _unlist_some()):
        gone += some
    return gone


def _forget_some() -> int:
    over = Session.objects.filter(expire_date__lt=Now())
    keys = list(over.order_by("expire_date").values_list("pk", flat=True)[:BATCH])
    # The condition is checked again: a session that was used meanwhile stays.
    return over.filter(pk__in=keys).delete()[0]


def _unlist_some() -> int:
    session = Session.objects.filter(pk=OuterRef("session_key"))
    alone = UserSession.objects.filter(~Exists(session), last_seen_at__lt=Now() - _SETTLES)
    keys = list(alone.order_by("pk").values_list("pk", flat=True)[:BATCH])
    deleted: int = UserSession.objects.filter(pk__in=keys).delete()[0]
    return deleted
