"""How sure we are, right now, that it is this person: for decisions that ask for a sign-in of a moment ago."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from allauth.account.authentication import get_authentication_records
from django.conf import settings
from django.http import HttpRequest

_STRENGTH = ("", "password", "totp", "passkey")
_LEVELS = {"webauthn": "passkey", "totp": "totp", "recovery_codes": "totp"}


@dataclass(frozen=True)
class Shown:
    """What somebody has shown in the last five minutes: the strongest of it, when they last did, how long it counts."""

    level: str
    at: datetime
    until: datetime
    anew: bool
    """Renewed, and not only signed in."""


def shown(request: HttpRequest) -> Shown | None:
    """A sign-in counts like a renewed one. What a provider of single sign-on vouches for counts as a password."""
    if not request.user.is_authenticated:
        return None
    now, counts = time.time(), settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    records = [
        record
        for record in get_authentication_records(request, request.user)
        if now - counts < record.get("at", 0) <= now
    ]
    if not records:
        return None
    last = max(records, key=lambda record: record["at"])
    return Shown(
        level=max((_level(record) for record in records), key=_STRENGTH.index),
        at=datetime.fromtimestamp(last["at"], UTC),
        until=datetime.fromtimestamp(last["at"] + counts, UTC),
        anew=bool(last.get("reauthenticated")),
    )


def level(request: HttpRequest) -> str:
    """The strongest that this person has shown in the last five minutes: password, totp, passkey; else empty."""
    found = shown(request)
    return found.level if found else ""


def _level(record: dict[str, object]) -> str:
    return _LEVELS.get(str(record.get("type")), "password")
