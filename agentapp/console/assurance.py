"""How sure we are, right now, that it is this person: for approvals that ask whoever gives them to show it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from allauth.account.authentication import get_authentication_records
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from approvals import step_up

_LEVELS = {"webauthn": "passkey", "totp": "totp", "recovery_codes": "totp"}


@dataclass(frozen=True)
class Shown:
    """What somebody has shown in the last five minutes: the strongest of it, when they last did, how long it counts."""

    level: str
    at: datetime
    until: datetime
    anew: bool
    """Renewed, and not only signed in."""


def shown(request: HttpRequest, needed: str = "") -> Shown | None:
    """What is as strong as needed of what somebody has shown. None: nothing is.

    A sign-in counts like a renewed one. What a provider of single sign-on vouches for counts as a password.
    """
    if not request.user.is_authenticated:
        return None
    now, counts = time.time(), settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    records = [
        record
        for record in get_authentication_records(request, request.user)
        if now - counts < record.get("at", 0) <= now and step_up.is_enough(_level(record), needed)
    ]
    if not records:
        return None
    last = max(records, key=lambda record: record["at"])
    return Shown(
        level=max((_level(record) for record in records), key=step_up.LEVELS.index),
        at=datetime.fromtimestamp(last["at"], UTC),
        until=datetime.fromtimestamp(last["at"] + counts, UTC),
        anew=bool(last.get("reauthenticated")),
    )


def level(request: HttpRequest) -> str:
    """The strongest that this person has shown in the last five minutes: password, totp, passkey; else empty."""
    found = shown(request)
    return found.level if found else ""


def lacks(user: User, needed: str) -> tuple[bool, str]:
    """Whether somebody has a passkey, and in words what they would have to add to show what is needed at all."""
    kinds = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    has_passkey = Authenticator.Type.WEBAUTHN in kinds
    if needed in ("passkey", step_up.SIGNED):
        return has_passkey, "" if has_passkey else "You have no passkey"
    return has_passkey, "" if kinds or needed != "totp" else "You have neither an authenticator app nor a passkey"


def _level(record: dict[str, object]) -> str:
    return _LEVELS.get(str(record.get("type")), "password")
