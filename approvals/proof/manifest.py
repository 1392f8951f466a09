"""What ends an export: how many events it holds, the digest of its bytes, and a signature over both.

The only module that knows the format. In JSON lines the manifest is the last line; for CSV it is a separate file. The
writer of an export feeds it every byte it sends and each event's hash, and then sends what `finish` returns.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from approvals import clock
from approvals.digest import canonical
from approvals.proof import signing_key

KIND = "manifest"
VERSION = 1


class Manifest:
    """Collects what the manifest of one export says while its bytes are written."""

    def __init__(
        self,
        filter: Mapping[str, Any],
        by: str,
        keys: Sequence[Mapping[str, str]] = (),
        succession: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """`filter` is what was asked for, empty for everything; `by` the actor, as the ledger names them.

        A whole ledger also has its keys in order: a known one leads to those that signed the rest, and a verifier knows
        a whole ledger by them. A part has the `succession` of keys to the one that signs it.
        """
        self._filter, self._by = dict(filter), by
        self._leading = {"keys": list(keys), "succession": list(succession)}
        self._sha256 = hashlib.sha256()
        self._count, self._first, self._last = 0, "", ""

    def feed(self, content: bytes) -> bytes:
        """Take in bytes of the export that come before the manifest, in order. Returns them."""
        self._sha256.update(content)
        return content

    def note(self, event_hash: str) -> None:
        """Note that one event has been written."""
        self._count += 1
        self._first = self._first or event_hash
        self._last = event_hash

    def finish(self) -> str:
        """The manifest as one line of canonical JSON, with its line end.

        The signature is over the canonical text of everything else. Without a key there is no signature, and the
        manifest says why: people may take what they may read, but nobody mistakes it for a signed export.
        """
        said = {
            "kind": KIND,
            "version": VERSION,
            "filter": self._filter,
            "count": self._count,
            "first_hash": self._first,
            "last_hash": self._last,
            "sha256": self._sha256.hexdigest(),
            "made_at": clock.now().isoformat(),
            "by": self._by,
            **{name: rows for name, rows in self._leading.items() if rows},
        }
        try:
            return f"{signed(said)}\n"
        except signing_key.NoKey as error:
            return f"{canonical({**said, 'unsigned': str(error)})}\n"


def signed(said: Mapping[str, Any]) -> str:
    """A JSON object as canonical text, including the key id, the public key and the signature. Raises NoKey.

    The signature covers the canonical text without `signature`: to check it, take that out and write the text again.
    """
    key = signing_key.public_key()
    stated = {**said, "key_id": key.key_id, "public_key": key.value_b64}
    return canonical({**stated, "signature": signing_key.sign(canonical(stated)).value_b64})
