"""The first administrator of an empty installation. The only writer of SetupToken.

The person who starts the server gets a token that makes one administrator, once. The token's row is the lock: if two
people use it together, one finds it gone.
"""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import Group, User

from agentapp.models import SetupToken
from agentapp.refused import Refused
from agentapp.roles import ensure_roles
from approvals import ledger
from approvals.clock import Now

VALID_FOR = timedelta(days=1)


def is_needed() -> bool:
    """Whether nobody can sign in yet."""
    return not User.objects.exists()


def issue_token() -> str:
    """Make a token, which invalidates every earlier one. Shown to the person who runs the server, stored nowhere."""
    token = secrets.token_urlsafe(32)
    SetupToken.objects.update_or_create(
        pk=SetupToken.ONLY, defaults={"digest": _digest(token), "expires_at": Now() + VALID_FOR}
    )
    return token


def is_valid(token: str) -> bool:
    return SetupToken.objects.filter(digest=_digest(token), expires_at__gt=Now()).exists()


def make(token: str, user: User, password: str) -> User:
    """Use the token up and store its bearer as an administrator. Raises Refused for everybody but the first."""
    with ledger.transaction():
        used, _ = SetupToken.objects.filter(digest=_digest(token), expires_at__gt=Now()).delete()
        if not used or not is_needed():
            raise Refused("token_invalid", "This link has been used, replaced, or is too old. Nobody was made.")
        ensure_roles()
        user.is_staff = True
        user.set_password(password)
        user.save()
        user.groups.set(Group.objects.filter(name="admin"))
        data = {"user": user.get_username(), "role": "admin"}
        ledger.record(ledger.CONFIGURATION, "setup.first_admin", data, ledger.actor_of(user, "setup"))
    return user


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
