"""What is handed out signed and comes back: places in lists, addresses of conversations, what a form was made from.

As `django.core.signing`, but for the signature, which is in hex: in base64, one in 90,000 has the shape of a key, and
is masked where it is shown (`approvals.detectors`).
"""

from typing import Any

from django.core.signing import BadSignature as BadSignature
from django.core.signing import Signer, b64_decode


class _InHex(Signer):
    def signature(self, value: str | bytes, key: str | bytes | None = None) -> str:
        return b64_decode(super().signature(value, key).encode()).hex()


def sign(value: Any, salt: str) -> str:
    """A JSON value as a text for addresses and fields. `salt` names the use: signed for another, it is not read."""
    return _InHex(salt=salt).sign_object(value)


def read(text: str, salt: str) -> Any:
    """The value of a signed text. Raises BadSignature."""
    return _InHex(salt=salt).unsign_object(text)
