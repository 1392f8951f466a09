"""How sure we are, right now, that it is this person: for approvals that ask their approver to prove it."""

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
    """How somebody has proved who they are in the last five minutes: the strongest way, the latest time, the expiry."""

    level: str
    at: datetime
    until: datetime
    anew: bool
    """They authenticated again, rather than only signing in."""


def shown(request: HttpRequest, needed: str = "") -> Shown | None:
    """What this person has shown recently that is as strong as needed, or None.

    A sign-in counts like authenticating again. A single sign-on provider's word counts as a password.
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
    """The strongest this person has shown in the last five minutes: password, totp or passkey; else empty."""
    found = shown(request)
    return found.level if found else ""


def lacks(user: User, needed: str) -> tuple[bool, str]:
    """Whether this person has a passkey; and, in words, what they must add before they can show what is needed."""
    kinds = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    has_passkey = Authenticator.Type.WEBAUTHN in kinds
    if needed in ("passkey", step_up.SIGNED):
        return has_passkey, "" if has_passkey else "You have no passkey"
    return has_passkey, "" if kinds or needed != "totp" else "You have neither an authenticator app nor a passkey"


def _level(record: dict[str, object]) -> str:
    return _LEVELS.get(str(record.get("type")), "password")
