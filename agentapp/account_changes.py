"""Changes to how a person signs in: recorded in the ledger and mailed to the person, who may not have made them."""

import logging
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from agentapp import nudges
from approvals import ledger, mail
from approvals.channels.base import ChannelError

logger = logging.getLogger(__name__)

PASSWORD_CHANGED, FACTOR_ADDED, FACTOR_REMOVED, FACTORS_FORGOTTEN = (
    "user.password_changed", "signin.factor_added", "signin.factor_removed", "signin.factors_forgotten",
)  # fmt: skip
ADDRESS_CHANGED = "address_changed"  # not an event: the ledger records it like any other change to an account
CODES = "recovery_codes"
_KINDS = {"totp": "An authenticator app", "passkey": "A passkey", CODES: "A set of recovery codes"}
_SAID = {
    PASSWORD_CHANGED: "The password of your account was changed.",
    FACTOR_ADDED: "{kind} was added to your account.",
    FACTOR_REMOVED: "{kind} was removed from your account.",
    FACTORS_FORGOTTEN: "An administrator removed the passkeys and second factors of your account.",
    ADDRESS_CHANGED: "The mail address of your account was changed.",
}


def record(user: User, event: str, data: dict[str, Any], actor: str) -> None:
    """Write a change to the ledger, and tell the person once it is stored. Call inside `ledger.transaction()`.

    `data` may name the kind of factor.
    """
    ledger.record(ledger.CONFIGURATION, event, data, actor)
    if (event, data.get("kind")) == (FACTOR_REMOVED, CODES):
        return  # codes go with the factor they stand in for, or because new ones replace them
    _tell(user, event, data.get("kind", ""))


def address_changed(user: User, was: str) -> None:
    """Tell the previous address, once the change is stored: the next password-reset link will not reach it."""
    if was:
        _tell(user, ADDRESS_CHANGED, was)


def _tell(user: User, event: str, detail: str) -> None:
    now = timezone.now().isoformat()
    transaction.on_commit(partial(nudges.account_changed, user.pk, event, detail, now), robust=True)


def mail_change(user_id: int, event: str, detail: str, moment: str) -> None:
    """Mail one change to the person. A failed mail is not repeated: the ledger has the change.

    `detail` is the kind of factor, or the previous address.
    """
    user = User.objects.filter(pk=user_id, is_active=True).first()
    address = detail if event == ADDRESS_CHANGED else user.email if user else ""
    if user is None or not address:
        return
    # A password-reset link would go to the new address.
    resets = reverse("account_reset_password") if settings.PASSWORD_RESET and event != ADDRESS_CHANGED else ""
    context = {
        "user": user,
        "said": _SAID[event].format(kind=_KINDS.get(detail, "A second factor")),
        "moment": datetime.fromisoformat(moment),
        "link": resets and settings.BASE_URL + resets,
    }
    try:
        mail.send("account", context, [address])
    except ChannelError as error:
        logger.warning("User %s could not be told that their account has changed: %s", user_id, error)
