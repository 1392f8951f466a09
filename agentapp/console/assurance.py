"""How sure we are, right now, that it is this person: for decisions that ask for a sign-in of a moment ago."""

import time

from allauth.account.authentication import get_authentication_records
from django.conf import settings
from django.http import HttpRequest

_STRENGTH = ("", "password", "totp", "passkey")
_LEVELS = {"webauthn": "passkey", "totp": "totp", "recovery_codes": "totp"}


def level(request: HttpRequest) -> str:
    """The strongest that this person has shown in the last five minutes: password, totp, passkey; else empty.

    A sign-in counts like a renewed one. What a provider of single sign-on vouches for counts as a password.
    """
    if not request.user.is_authenticated:
        return ""
    since = time.time() - settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
    shown = [
        _LEVELS.get(str(record.get("type")), "password")
        for record in get_authentication_records(request, request.user)
        if since < record.get("at", 0) <= time.time()
    ]
    return max(shown, key=_STRENGTH.index, default="")
