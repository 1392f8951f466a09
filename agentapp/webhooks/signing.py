"""Standard Webhooks signatures: HMAC-SHA256 of id, moment and body, with each of an endpoint's secrets."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from agentapp.tools import credentials
from agentapp.tools.results import ToolError

SECRET_BEGINS = "whsec_"  # noqa: S105
# Shorter keys can be guessed. The standard sets these bounds.
_KEY_BYTES = range(24, 65)


class NoSecret(Exception):
    """A secret is missing or malformed. The message names its variable, never its value."""


def secrets_named(names: Iterable[str]) -> list[str]:
    """The secrets behind some names, the current one first. Raises NoSecret."""
    found = []
    for name in filter(None, names):
        try:
            value = credentials.named(name)
        except ToolError as error:
            raise NoSecret(str(error)) from None
        _key(name, value)
        found.append(value)
    return found


def headers(secrets: Iterable[str], id: str, moment: int, body: bytes) -> dict[str, str]:
    """The headers that prove to the receiver who sent the request, when, and that nothing was changed."""
    signed = f"{id}.{moment}.".encode() + body
    marks = [hmac.digest(_key("", secret), signed, hashlib.sha256) for secret in secrets]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(moment),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks),
    }


def _key(name: str, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_BEGINS), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(SECRET_BEGINS) or len(key) not in _KEY_BYTES:
        raise NoSecret(
            f"{credentials.PREFIX}{name} is not a webhook secret: it must be {SECRET_BEGINS}, then "
            f"{_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} bytes in base64. Nothing was sent."
        )
    return key
