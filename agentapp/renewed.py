"""Whether a person has just confirmed their identity again, for actions where an unlocked screen is not enough."""

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

# How far a provider's clock may be off.
CLOCKS_DIFFER_SECONDS = 60
# Session key: when the session was sent to a provider to confirm whose it is.
_ASKED = "asked_provider_at"


def is_renewed(request: HttpRequest) -> bool:
    """Whether they did so within the last five minutes. A sign-in alone does not count.

    Nobody is exempt. allauth would ask nothing of a person with neither a password nor a second factor.
    """
    if not isinstance(request.user, User):
        return False
    now, counts = time.time(), settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    records = get_authentication_records(request, request.user)
    return any(each.get("reauthenticated") and now - counts < each.get("at", 0) <= now for each in records)


def renewal_required(
    view: Callable[..., HttpResponse], when: Callable[[HttpRequest], bool] = lambda request: True
) -> Callable[..., HttpResponse]:
    """The same view, but a person who has not just confirmed their identity does that first and then continues."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if when(request) and not is_renewed(request):
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    return wrapped


def has_provider_alone(user: User) -> bool:
    """Whether a person has neither a password nor a second factor, so that only their provider can identify them."""
    return not reauthentication.get_reauthentication_flows(user)


def ask_provider(request: HttpRequest) -> str:
    """The parameters that make a provider ask the person to sign in again and report when they did."""
    request.session[_ASKED] = time.time()
    return "prompt=login&max_age=0"


def was_asked(request: HttpRequest) -> float | None:
    """When this session was last sent to a provider to confirm the person's identity. None: it was not.

    It is not deleted: a person who is sent there twice and returns twice must meet it both times.
    """
    asked: float | None = request.session.get(_ASKED)
    return asked


def is_anew(auth_time: object, asked: float) -> bool:
    """Whether the sign-in time in a provider's ID token is after we asked for it, and recent enough to count."""
    if isinstance(auth_time, bool) or not isinstance(auth_time, int | float):
        return False
    now = time.time()
    earliest = max(asked, now - settings.ACCOUNT_REAUTHENTICATION_TIMEOUT)
    return earliest - CLOCKS_DIFFER_SECONDS <= auth_time <= now + CLOCKS_DIFFER_SECONDS


def renew_last(request: HttpRequest, user: User) -> None:
    """Mark the latest proof of identity as a confirmation rather than a sign-in."""
    records = get_authentication_records(request, user)
    if records:
        request.session[AUTHENTICATION_METHODS_SESSION_KEY] = [*records[:-1], {**records[-1], "reauthenticated": True}]
