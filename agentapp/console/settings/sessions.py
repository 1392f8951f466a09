"""Where somebody is signed in, and how to end it there."""

import re
from collections.abc import Iterator

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe

from agentapp import auth
from agentapp.console.settings.sections import SESSIONS, page, saved
from agentapp.console.shell import signed_in
from approvals import ledger

# Every browser also claims to be its predecessors, so the first match counts.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def device(user_agent: str) -> str:
    """What somebody signed in with, as far as it can be told."""
    return known_device(user_agent) or re.sub(r"[^\w ./-].*", "", user_agent)[:40].strip() or "Unknown device"


def known_device(user_agent: str) -> str:
    """The same, in our own words only; empty if it is not a known device."""
    browser = next((name for sign, name in _BROWSERS if sign in user_agent), "")
    system = next((name for sign, name in _SYSTEMS if sign in user_agent), "")
    if not browser and not system:
        return ""
    return " on ".join(part for part in (browser or "A browser", system) if part)


@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    own = _own_keys(request)
    listed = [
        {"session": session, "device": device(session.user_agent), "is_this": session.session_key in own}
        for session in _going_on(signed_in(request), own)
    ]
    listed.sort(key=lambda one: (not one["is_this"], -one["session"].last_seen_at.timestamp()))
    return page(request, SESSIONS, {"listed": listed})


@require_POST
def end(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one of one's own sessions. One that is gone counts as ended."""
    user = signed_in(request)
    found = UserSession.objects.filter(user=user, pk=session_id).exclude(session_key__in=_own_keys(request))
    return saved(request, SESSIONS, "Ended" if _end(user, list(found)) else "It had already ended")


@require_POST
def end_others(request: HttpRequest) -> HttpResponse:
    """End every session of one's own but this one."""
    user = signed_in(request)
    others = UserSession.objects.filter(user=user).exclude(session_key__in=_own_keys(request))
    number = _end(user, list(others))
    return saved(request, SESSIONS, f"{number} ended" if number else "There was no other")


def _end(user: User, ending: list[UserSession]) -> int:
    with ledger.transaction():
        for session in ending:
            session.end()
        if ending:
            data = {"user": user.get_username(), "number": len(ending)}
            ledger.record(ledger.CONFIGURATION, "signin.sessions_ended", data, ledger.actor_of(user))
    return len(ending)


def _going_on(user: User, own: list[str]) -> Iterator[UserSession]:
    """The sessions that still count. Looking at the list ends nothing; old sessions are cleared in time."""
    for session in UserSession.objects.filter(user=user):
        if session.session_key in own or auth.person_of(session.session_key) == user:
            yield session


def _own_keys(request: HttpRequest) -> list[str]:
    """The keys of this session, including one that this request has replaced."""
    keys = (request.session.session_key, request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return [key for key in keys if key]
