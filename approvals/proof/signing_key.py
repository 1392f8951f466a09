"""The key that signs for the ledger: Ed25519, and never in the database.

It comes from the environment (LEDGER_SIGNING_KEY) or a file (LEDGER_SIGNING_KEY_FILE), never from both. One is made
automatically only if everything is one process on one machine. Without a key nothing is signed, and anyone who needs a
signature is told.
"""

import base64
import binascii
import functools
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django.conf import settings

_SEED_BYTES = 32


class NoKey(Exception):
    """There is no key to sign with. The message says why, and reveals nothing of the key."""


@dataclass(frozen=True)
class Signature:
    """`key_id` says whose it is: the SHA-256 of the public key's 32 bytes."""

    key_id: str
    value_b64: str


@dataclass(frozen=True)
class PublicKey:
    key_id: str
    value_b64: str


def sign(text: str) -> Signature:
    """Sign the UTF-8 bytes of a text. Raises NoKey."""
    key = _key()
    return Signature(_public(key).key_id, _b64(key.sign(text.encode())))


def public_key() -> PublicKey:
    """The public half of the key in use. Raises NoKey."""
    return _public(_key())


def problem() -> str:
    """Why nothing can be signed here. Empty: it can."""
    try:
        _key()
    except NoKey as error:
        return str(error)
    return ""


def holds(text: str, value_b64: str, public_b64: str) -> bool:
    """Whether this is the signature of a text by the owner of a public key."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_b64, validate=True))
        raw = base64.b64decode(value_b64, validate=True)
        key.verify(raw, text.encode())
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return _b64(raw) == value_b64  # only this spelling: no changed byte passes


def fingerprint(public_b64: str) -> str:
    """The id of a public key, which somebody notes elsewhere to recognise it."""
    return sha256(base64.b64decode(public_b64)).hexdigest()


def generate(path: Path) -> PublicKey:
    """Make a key in a file that only its owner can read, unless the file exists. Returns the public half of its key."""
    if path.exists():
        # Nothing can be written next to mounted secrets.
        return _public(read_file(path))
    seed = base64.b64encode(os.urandom(_SEED_BYTES)) + b"\n"
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(seed)
        file.flush()
        os.fsync(file.fileno())
    # The file appears whole or not at all, and never replaces an existing one.
    with suppress(FileExistsError):
        os.link(beside, path)
    beside.unlink()
    return _public(read_file(path))


def read_file(path: Path) -> Ed25519PrivateKey:
    """The key in a file. Raises NoKey."""
    try:
        return _read(path.read_text(encoding="ascii"))
    except FileNotFoundError as error:
        raise NoKey("Neither LEDGER_SIGNING_KEY nor the file that LEDGER_SIGNING_KEY_FILE names exists.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise NoKey("The file of the signing key cannot be read.") from error


def signed_by(key: Ed25519PrivateKey, text: str) -> Signature:
    return Signature(_public(key).key_id, _b64(key.sign(text.encode())))


def _key() -> Ed25519PrivateKey:
    place = settings.LEDGER
    if place.signing_key:
        return _of_text(place.signing_key)
    with suppress(NoKey):
        return _of_file(place.signing_key_file)
    if place.makes_key:
        with suppress(OSError):
            generate(place.signing_key_file)
    return _of_file(place.signing_key_file)


# A missing file is looked for again, as exceptions are not cached. Another key takes effect when a process restarts.
_of_file = functools.cache(read_file)


@functools.cache
def _of_text(text: str) -> Ed25519PrivateKey:
    return _read(text)


def _read(text: str) -> Ed25519PrivateKey:
    """A key from its seed in base64, or from PEM. Raises NoKey."""
    try:
        if "-----BEGIN" in text:
            # An environment variable often has \n where a file has line breaks.
            key = load_pem_private_key(text.replace("\\n", "\n").encode(), password=None)
            if isinstance(key, Ed25519PrivateKey):
                return key
        else:
            seed = base64.b64decode(text.strip(), validate=True)
            if len(seed) == _SEED_BYTES:
                return Ed25519PrivateKey.from_private_bytes(seed)
    except (ValueError, TypeError):
        pass
    raise NoKey("The signing key is neither an Ed25519 key in PEM nor the base64 of its 32 bytes.") from None


def _public(key: Ed25519PrivateKey) -> PublicKey:
    raw = key.public_key().public_bytes_raw()
    return PublicKey(sha256(raw).hexdigest(), _b64(raw))


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
