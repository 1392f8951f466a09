"""People's words in the ledger: as a digest made with a random salt, never as text.

The row that an event is about keeps the words and the salt. Anyone with both can show that these were the words. Once
the row has lost them, nobody can find out what they were, even by trying, and the chain still holds.
"""

import secrets
from typing import Any

from approvals.digest import sha256

SALT_CHARS = 32


def new_salt() -> str:
    return secrets.token_hex(SALT_CHARS // 2)


def digest_of(text: str, salt: str) -> str:
    """The digest of a text that cannot be guessed without the salt. A text without a salt gets one nobody knows."""
    return sha256(f"{salt or new_salt()}\n{text}")


def sealed(text: str, salt: str) -> dict[str, Any]:
    """What an event says of a text: its digest and its length. For no text, nothing."""
    return {"digest": digest_of(text, salt), "characters": len(text)} if text else {}


def opens(text: str, salt: str, said: object) -> bool:
    """Whether a text is the one that an event speaks of."""
    return isinstance(said, dict) and bool(text) and said == sealed(text, salt)


ERASED = "(erased)"
"""What replaces words that were erased."""
GONE = ""
"""What replaces the salt erased with them."""
