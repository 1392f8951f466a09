"""A passkey that signs a decision: what it signs, and whether a signature holds, now and years later. Reads only.

The passkey's challenge is the SHA-256 of the statement, which is made from the decision: any other version, digest,
type, person or id gives another challenge. The decision keeps everything needed to check it again, so that neither the
account nor its passkeys need still exist.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, cast

from fido2 import cbor
from fido2.cose import CoseKey
from fido2.server import Fido2Server
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestedCredentialData, PublicKeyCredentialRpEntity, UserVerificationRequirement

from approvals import digest
from approvals.digest import canonical
from approvals.models import Approval, Decision, Event
from approvals.proof.snapshot import one_moment
from approvals.step_up import SIGNED
from approvals.streaming import streamed

_NO_MODEL = bytes(16)  # the make of the device is not asked
_RECORDED = ("approval.changed", "approval.approved", "approval.rejected")


@dataclass(frozen=True)
class Statement:
    """What exactly somebody says by signing. `nonce` is the server's, for one use."""

    approval: str
    version: int
    action_digest: str
    view_digest: str
    type: str
    user: int
    decision: str
    nonce: str

    @property
    def text(self) -> str:
        return canonical(asdict(self))

    @property
    def challenge(self) -> bytes:
        return sha256(self.text.encode()).digest()


@dataclass(frozen=True)
class Assertion:
    """What a passkey of this person answered, each part in base64url, and to which nonce."""

    credential_id: str
    authenticator_data: str
    client_data: str
    signature: str
    public_key: str
    """The credential's public key, in COSE, as kept when the passkey was added."""
    rp_id: str
    """The name this installation is reached under."""
    nonce: str

    def as_json(self, statement: Statement) -> dict[str, str]:
        """As it is kept with the decision."""
        kept = {name: value for name, value in asdict(self).items() if name != "nonce"}
        return {"statement": statement.text, **kept}


@dataclass(frozen=True)
class Broken:
    """A signed decision that does not hold, and why."""

    decision: uuid.UUID
    reference: str
    problem: str


def statement_of(decision: Decision, nonce: str) -> Statement:
    """What is signed for a decision, stored or about to be."""
    assert decision.user_id is not None
    return Statement(
        approval=str(decision.approval_id),
        version=decision.approval_version,
        action_digest=decision.action_digest,
        view_digest=decision.view_digest,
        type=str(decision.type),
        user=decision.user_id,
        decision=str(decision.pk),
        nonce=nonce,
    )


def signs(statement: Statement, kept: Mapping[str, Any]) -> bool:
    """Whether what is kept is the signature of this statement, by a person whom the device has recognised."""
    try:
        credential_id = websafe_decode(kept["credential_id"])
        # A decoded COSE key is a mapping; anything else fails below.
        key = CoseKey.parse(cast(Mapping[int, Any], cbor.decode(websafe_decode(kept["public_key"]))))
        credential = AttestedCredentialData.create(_NO_MODEL, credential_id, key)
        server = Fido2Server(PublicKeyCredentialRpEntity(name="", id=kept["rp_id"]))
        state = {
            "challenge": websafe_encode(statement.challenge),
            "user_verification": UserVerificationRequirement.REQUIRED,
        }
        answered = {
            "id": kept["credential_id"],
            "rawId": kept["credential_id"],
            "type": "public-key",
            "response": {
                "clientDataJSON": kept["client_data"],
                "authenticatorData": kept["authenticator_data"],
                "signature": kept["signature"],
            },
        }
        server.authenticate_complete(state, [credential], answered)
    except Exception:  # bytes from outside can be wrong in any way their parsers did not foresee
        return False
    return True


def verify(decision: Decision) -> bool:
    """Whether a signed decision is, to the letter, what its person signed. False for one that is not signed."""
    return not problem_of(decision)


def problem_of(decision: Decision) -> str:
    """What is wrong with the signature of a decision. Empty: it holds."""
    kept = decision.signature
    if not isinstance(kept, dict) or decision.user_id is None:
        return "it has no signature"
    try:
        nonce = digest.load(kept["statement"])["nonce"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "what was signed cannot be read"
    statement = statement_of(decision, nonce if isinstance(nonce, str) else "")
    if kept["statement"] != statement.text:
        return "it is not the decision that was signed"
    return "" if signs(statement, kept) else "its signature does not verify"


def digest_of(signature: Mapping[str, Any]) -> str:
    """The digest of a kept signature, as the ledger records it."""
    return digest.sha256(canonical(dict(signature)))


def hold(approval: Approval, given: Iterable[Decision]) -> bool:
    """Whether every approval of a request that must be signed is what its person signed. `given`: the decisions that
    stand.
    """
    if approval.mocked or approval.assurance_needed != SIGNED:
        return True
    return all(verify(decision) for decision in given if decision.type in ("approve", "edit"))


def verify_all(chain: str | None = None) -> tuple[int, Broken | None]:
    """Check every signed decision again, or those of one run. Returns how many hold, and the first that does not.

    Decisions that the ledger says were signed are looked for too, so that a removed signature is noticed.
    """
    events = Event.objects.filter(type__in=_RECORDED, body__contains='"signature":').order_by("id")
    signed = Decision.objects.filter(assurance=SIGNED).select_related("approval").order_by("decided_at", "pk")
    if chain is not None:
        events = events.filter(chain=chain)
        signed = signed.filter(approval__run_id=uuid.UUID(chain.removeprefix("run:")))
    with one_moment():  # what is signed meanwhile is in both, or in neither
        with streamed(events) as found:
            recorded = {
                str(event.data["decision"]): str(event.data["signature"])
                for event in found
                if "signature" in event.data
            }
        with streamed(signed, 500) as decisions:
            return _checked(decisions, recorded)


def _checked(signed: Iterable[Decision], recorded: dict[str, str]) -> tuple[int, Broken | None]:
    held, first = 0, None
    for decision in signed:
        noted = recorded.pop(str(decision.pk), "")
        problem = problem_of(decision)
        if not problem and noted != digest_of(decision.signature or {}):
            problem = "its signature is not the one the ledger knows"
        if problem:
            first = first or Broken(decision.pk, decision.approval.reference, problem)
        else:
            held += 1
    for key in recorded if first is None else ():
        gone = Decision.objects.filter(pk=key).select_related("approval").first()
        reference = gone.approval.reference if gone is not None else "a request"
        return held, Broken(uuid.UUID(key), reference, "its signature is gone")
    return held, first
