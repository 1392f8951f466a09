"""Keep the list of sessions up to date: when each was last used, and its current key.

Writes at most once a minute, so that not every page is a write.
"""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.core.cache import caches
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

_NOTE_EVERY_SECONDS = 60


def note(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware. Sessions that did not begin on the sign-in page are not listed."""

    def middleware(request: HttpRequest) -> HttpResponse:
        before = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        response = get_response(request)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return response  # most likely the database is away: asking it again would take as long again
        key = request.session.session_key
        listed = key and AUTHENTICATION_METHODS_SESSION_KEY in request.session and request.user.is_authenticated
        if key and listed and before and before != key:
            _follow(before, key)
        if listed and caches["process"].add(f"seen:{key}", True, _NOTE_EVERY_SECONDS):
            with suppress(DatabaseError):  # a database that refuses writes can still be read
                UserSession.objects.filter(session_key=key).update(last_seen_at=timezone.now())
        return response

    return middleware


def _follow(before: str, key: str) -> None:
    """Keep a session in the list when its key changes, as after a new password. Otherwise nobody could end it."""
    if not UserSession.objects.filter(session_key=key).exists():
        UserSession.objects.filter(session_key=before).update(session_key=key)
