"""Helps a person who has lost what they sign in with: an administrator removes their factors."""

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User

from agentapp import account_changes
from approvals import ledger


def forget(user: User, actor: str) -> int:
    """Remove a person's passkeys, authenticator app and recovery codes, and end their sessions. Returns how many.

    From then on only their password or their provider lets them in; the administrator must know who asked for this.
    Anybody who was signed in as them is signed out.
    """
    with ledger.transaction():
        kinds = sorted(Authenticator.objects.filter(user=user).values_list("type", flat=True))
        Authenticator.objects.filter(user=user).delete()
        for session in UserSession.objects.filter(user=user):
            session.end()
        if kinds:
            data = {"user": user.get_username(), "kinds": kinds}
            account_changes.record(user, account_changes.FACTORS_FORGOTTEN, data, actor)
    return len(kinds)
