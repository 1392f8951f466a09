"""A new password by mail: who gets a link, what it is worth, and what using it changes.

A link lets its owner choose a password and nothing else: a person with a second factor still needs it to sign in.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from allauth.account.utils import user_pk_to_url_str
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.urls import reverse

from agentapp import account_changes
from approvals import ledger, mail
from approvals.channels.base import ChannelError

logger = logging.getLogger(__name__)

_MAIL_FAILED = "mail_failed"


@dataclass(frozen=True)
class Asking:
    """Where a link was asked for, as far as known. Our mails quote it, so none of it is text from outside."""

    ip: str = ""
    device: str = ""
    who: str = ""


class Links(PasswordResetTokenGenerator):
    """Signed with the password, the address and the last sign-in: any change to these makes a link worthless."""

    def check_token(self, user: Any, token: str | None) -> bool:
        return user is not None and _refusal(user) == "" and super().check_token(user, token)


def mail_links(address: str, asking: Asking) -> None:
    """Mail a link to each account with this address and a usable password. Every request is in the ledger."""
    _answer(address, partial(_mail_link, asking=asking))


def give_up(address: str) -> None:
    """Record that the links were not mailed in time."""
    _answer(address, lambda _: _MAIL_FAILED)


def _answer(address: str, mail_link: Callable[[User], str]) -> None:
    found = [user for user in User.objects.filter(email__iexact=address).order_by("pk") if _has(user, address)]
    facts: list[dict[str, Any]] = []
    for user in found:
        reason = _refusal(user) or mail_link(user)
        why = {"reason": reason} if reason else {}
        facts.append({"user": user.get_username(), "known": True, "mailed": not reason, **why})
    with ledger.transaction():
        # An unknown address is not recorded, and neither is an unknown name.
        for data in facts or [{"user": "", "known": False, "mailed": False}]:
            ledger.record(ledger.CONFIGURATION, "signin.reset_asked", data)


def use(link_of: User, key: str, password: str) -> bool:
    """Use a link: set the password and end every session. False: it was already used, or is no longer valid."""
    with ledger.transaction():
        user = User.objects.select_for_update().get(pk=link_of.pk)
        if not Links().check_token(user, key):
            return False
        user.set_password(password)
        user.save(update_fields=["password"])
        sessions = list(UserSession.objects.filter(user=user))
        for session in sessions:
            session.end()
        actor = ledger.actor_of(user, "link by mail")
        data = {"user": user.pk, "name": str(user), "usable": True, "by": "mail"}
        account_changes.record(user, account_changes.PASSWORD_CHANGED, data, actor)
        if sessions:
            ended = {"user": user.get_username(), "number": len(sessions)}
            ledger.record(ledger.CONFIGURATION, "signin.sessions_ended", ended, actor)
    return True


def _has(user: User, address: str) -> bool:
    """Compares again, because databases fold case differently: two addresses that only look alike are not the same."""
    return user.email.lower() == address.lower()


def _refusal(user: User) -> str:
    """Why this account gets no link. Empty: it gets one."""
    if not user.is_active:
        return "switched_off"
    return "" if user.has_usable_password() else "no_password"


def _mail_link(user: User, asking: Asking) -> str:
    """Send one link to the account's address. Returns why it was not sent, or an empty string."""
    place = {"uidb36": user_pk_to_url_str(user), "key": Links().make_token(user)}
    context = {
        "user": user,
        "asking": asking,
        "minutes": settings.PASSWORD_RESET_TIMEOUT // 60,
        # Never from the request: anybody can put anything in its Host header.
        "link": settings.BASE_URL + reverse("account_reset_password_from_key", kwargs=place),
    }
    try:
        mail.send("reset", context, [user.email])
    except ChannelError as error:
        logger.warning("No link for a new password could be mailed to user %s: %s", user.pk, error)
        return _MAIL_FAILED
    return ""
