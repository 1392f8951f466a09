"""Whether somebody has shown anew, a moment ago, that it is them: where an open screen must not be enough."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY, get_authentication_records
from allauth.account.internal.flows import reauthentication
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

# By as much the clock of a provider may be off.
CLOCKS_DIFFER_SECONDS = 60
# In a session: when it was sent to a provider to show anew whose it is.
_ASKED = "asked_provider_at"


def is_renewed(request: HttpRequest) -> bool:
    """Whether they did within the last five minutes; a sign-in alone does not count.

    Nobody is let off it. allauth asks nothing of whoever has neither a password nor a factor.
    """
    if not isinstance(request.user, User):
        return False
    now, counts = time.time(), settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    records = get_authentication_records(request, request.user)
    return any(each.get("reauthenticated") and now - counts < each.get("at", 0) <= now for each in records)


def renewal_required(
    view: Callable[..., HttpResponse], when: Callable[[HttpRequest], bool] = lambda request: True
) -> Callable[..., HttpResponse]:
    """The same view; who has not shown anew that it is them does that first, and goes on then."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if when(request) and not is_renewed(request):
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    return wrapped


def has_provider_alone(user: User) -> bool:
    """Whether somebody has neither a password nor a factor, so that only their provider can say that it is them."""
    return not reauthentication.get_reauthentication_flows(user)


def ask_provider(request: HttpRequest) -> str:
    """What a provider is asked for, so that it lets somebody sign in anew and says when they did."""
    request.session[_ASKED] = time.time()
    return "prompt=login&max_age=0"


def was_asked(request: HttpRequest) -> float | None:
    """When this session was sent to a provider last to show something anew; None: it was not.

    It is kept: whoever is sent there twice and comes back twice is held to it both times.
    """
    asked: float | None = request.session.get(_ASKED)
    return asked


def is_anew(auth_time: object, asked: float) -> bool:
    """Whether a sign-in at a provider, by the time that its ID token tells, came of what was asked and counts still."""
    if isinstance(auth_time, bool) or not isinstance(auth_time, int | float):
        return False
    now = time.time()
    earliest = max(asked, now - settings.ACCOUNT_REAUTHENTICATION_TIMEOUT)
    return earliest - CLOCKS_DIFFER_SECONDS <= auth_time <= now + CLOCKS_DIFFER_SECONDS


def renew_last(request: HttpRequest, user: User) -> None:
    """What was shown last was shown anew, and not to sign in."""
    records = get_authentication_records(request, user)
    if records:
        request.session[AUTHENTICATION_METHODS_SESSION_KEY] = [*records[:-1], {**records[-1], "reauthenticated": True}]
