"""The list of sessions as they are: when each was last used, and what it is called by now.

At most once a minute: not every page is a write.
"""

from collections.abc import Callable
from contextlib import suppress

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.core.cache import caches
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

_NOTE_EVERY_SECONDS = 60


def note(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware. Sessions that were not begun on the sign-in page are in no list."""

    def middleware(request: HttpRequest) -> HttpResponse:
        before = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        response = get_response(request)
        key = request.session.session_key
        listed = key and AUTHENTICATION_METHODS_SESSION_KEY in request.session and request.user.is_authenticated
        if key and listed and before and before != key:
            _follow(before, key)
        if listed and caches["process"].add(f"seen:{key}", True, _NOTE_EVERY_SECONDS):
            with suppress(DatabaseError):  # one that takes no changes can be read all the same
                UserSession.objects.filter(session_key=key).update(last_seen_at=timezone.now())
        return response

    return middleware


def _follow(before: str, key: str) -> None:
    """A session that has got another key, as with a new password, stays in the list: else nobody could end it."""
    if not UserSession.objects.filter(session_key=key).exists():
        UserSession.objects.filter(session_key=before).update(session_key=key)
