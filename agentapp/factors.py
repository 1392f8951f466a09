"""Helping somebody who has lost what they sign in with: an administrator takes their factors away."""

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User

from agentapp import account_changes
from approvals import ledger


def forget(user: User, actor: str) -> int:
    """Remove a person's passkeys, authenticator app and recovery codes, and end their sessions. Returns how many.

    From then on their password alone, or their provider, lets them in: who asked for it is for the administrator
    to know. Whoever had been signed in as them is not any more.
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
