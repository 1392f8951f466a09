"""A passkey that signs one decision: the challenge for the browser, and its answer.

The nonce of a signature is kept in the session of the person who asked for it, under its decision, for five minutes
and for one use.
"""

import secrets
import time
import uuid
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth as webauthn
from django.contrib.auth.models import User
from django.http import HttpRequest
from fido2 import cbor
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import UserVerificationRequirement

from agentapp import actions
from approvals.digest import MalformedJSON, parse
from approvals.models import Approval, Decision
from approvals.signatures import Assertion

SECONDS = 300
# How many decisions one session can be signing at the same time.
_MOST = 10
_KEPT = "signing"


def options(request: HttpRequest, found: Approval, new: actions.NewDecision, user: User) -> dict[str, Any]:
    """The passkey challenge that makes this person sign exactly this decision. Raises Refused."""
    nonce = secrets.token_urlsafe(32)
    statement = actions.statement_of(found.pk, new, user, nonce)
    credentials = webauthn.get_credentials(user)
    if not credentials:
        raise actions.Refused("signature", "You have no passkey to sign with. Add one in your settings.")
    asked, _ = webauthn.get_server().authenticate_begin(
        credentials, user_verification=UserVerificationRequirement.REQUIRED, challenge=statement.challenge
    )
    now = time.time()
    open_ = {key: (kept, at) for key, (kept, at) in _open(request).items() if now - SECONDS < at}
    request.session[_KEPT] = dict([*open_.items(), (str(new.id), (nonce, now))][-_MOST:])
    return dict(asked)


def presented(request: HttpRequest, user: User, decision_id: uuid.UUID) -> tuple[Assertion, Authenticator] | None:
    """The signature that came back, and its passkey. None: nothing was signed, or this decision already counts.

    Uses up the nonce, whatever becomes of the decision. Raises Refused for what cannot be this person's signature.
    """
    raw = request.POST.get("assertion", "")
    if not raw or Decision.objects.filter(pk=decision_id).exists():
        return None
    nonce = _taken(request, decision_id)
    if nonce is None:
        raise _refused("The five minutes to sign are over, or that signature was already used.")
    try:
        answer = parse(raw)
        credential_id, said = websafe_decode(answer["rawId"]), answer["response"]
        parts = [said["authenticatorData"], said["clientDataJSON"], said["signature"]]
        authenticator = webauthn.get_authenticator_by_credential_id(user, credential_id)
    except (MalformedJSON, ValueError, KeyError, TypeError) as error:
        raise _refused("What came back is not a signature.") from error
    if authenticator is None or not all(isinstance(part, str) for part in parts):
        raise _refused("That is not a passkey of yours.")
    credential = authenticator.wrap().authenticator_data.credential_data
    assertion = Assertion(
        credential_id=websafe_encode(credential_id),
        authenticator_data=parts[0],
        client_data=parts[1],
        signature=parts[2],
        public_key=websafe_encode(cbor.encode(credential.public_key)),
        rp_id=str(webauthn.get_server().rp.id),
        nonce=nonce,
    )
    return assertion, authenticator


def _taken(request: HttpRequest, decision_id: uuid.UUID) -> str | None:
    """The nonce for this decision, used up. None: there is none, or it is too old."""
    open_ = _open(request)
    nonce, at = open_.pop(str(decision_id), ("", 0.0))
    request.session[_KEPT] = open_
    return nonce if nonce and time.time() - SECONDS < at else None


def _open(request: HttpRequest) -> dict[str, tuple[str, float]]:
    kept = request.session.get(_KEPT)
    return dict(kept) if isinstance(kept, dict) else {}


def _refused(why: str) -> actions.Refused:
    return actions.Refused("signature", f"{why} Sign again. Nothing was decided.")
