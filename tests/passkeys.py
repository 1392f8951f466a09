"""A passkey in software: what a device would keep, and what it would answer."""

import os
from typing import Any

from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth.models import User
from fido2 import cbor
from fido2.cose import ES256
from fido2.utils import sha256, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

from approvals.signatures import Assertion, Statement

HOST = "testserver"
PRESENT, VERIFIED = AuthenticatorData.FLAG.UP, AuthenticatorData.FLAG.UV


class Passkey:
    """One credential for one person at one domain name."""

    def __init__(self, host: str = HOST, id: bytes = b"") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._host = host
        self.id = id or os.urandom(16)

    @property
    def public_key(self) -> Any:
        return ES256.from_cryptography_key(self._key.public_key())

    def keep_for(self, user: User) -> Authenticator:
        """The row that adding it in the settings would create."""
        credential = AttestedCredentialData.create(bytes(16), self.id, self.public_key)
        flags = PRESENT | VERIFIED | AuthenticatorData.FLAG.AT
        data = AuthenticatorData.create(sha256(self._host.encode()), flags, 0, credential)
        client = CollectedClientData.create("webauthn.create", os.urandom(32), f"https://{self._host}")
        response = {
            "clientDataJSON": websafe_encode(client),
            "attestationObject": websafe_encode(AttestationObject.create("none", data, {})),
        }
        made = {**self._named, "response": response}
        return Authenticator.objects.create(
            user=user, type=Authenticator.Type.WEBAUTHN, data={"name": "Passkey", "credential": made}
        )

    def answer(self, challenge: bytes, *, origin: str = "", flags: int = PRESENT | VERIFIED) -> dict[str, Any]:
        """What the browser sends when asked to sign this challenge."""
        data = AuthenticatorData.create(sha256(self._host.encode()), flags, 0)
        client = CollectedClientData.create("webauthn.get", challenge, origin or f"https://{self._host}")
        signature = self._key.sign(data + client.hash, ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": websafe_encode(client),
            "authenticatorData": websafe_encode(data),
            "signature": websafe_encode(signature),
        }
        return {**self._named, "response": response}

    def assertion(self, statement: Statement, **how: Any) -> Assertion:
        """The same as the decision receives it, with what is known of the credential."""
        said = self.answer(statement.challenge, **how)["response"]
        return Assertion(
            credential_id=websafe_encode(self.id),
            authenticator_data=said["authenticatorData"],
            client_data=said["clientDataJSON"],
            signature=said["signature"],
            public_key=websafe_encode(cbor.encode(self.public_key)),
            rp_id=self._host,
            nonce=statement.nonce,
        )

    @property
    def _named(self) -> dict[str, Any]:
        return {
            "id": websafe_encode(self.id), "rawId": websafe_encode(self.id), "type": "public-key",
            "clientExtensionResults": {},
        }  # fmt: skip
