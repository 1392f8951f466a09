"""The public keys that the ledger was signed with, in order: which follows which, and which are trusted.

Only `rotate_ledger_key`, which has both keys at hand, makes one follow another, and the older key signs that. A key
that appears by itself names no predecessor: anybody may have put it in the table. So trust passes only from an older
key to a newer one. To trust an older one as well, say so.
"""

from collections.abc import Iterable
from pathlib import Path

from approvals import clock, ledger
from approvals.digest import canonical, load
from approvals.models import LedgerKey
from approvals.proof import signing_key
from approvals.proof.signing_key import PublicKey, Signature, holds

KIND = "key"


def introduce() -> LedgerKey:
    """The row of the key in use. Making it, for a new key, is an event of the ledger. Raises signing_key.NoKey."""
    key = signing_key.public_key()
    known = LedgerKey.objects.filter(pk=key.key_id).first()
    return known or _note(key)


def rotate(file: Path) -> PublicKey:
    """Have the key in use state that the key in a file follows it; the file is made if missing. Raises
    signing_key.NoKey.

    From then on checkpoints may be signed with either; the settings say which.
    """
    introduce()
    before, new = signing_key.public_key(), signing_key.generate(file)
    if new == before:
        raise signing_key.NoKey("This key is already in use.")
    row = LedgerKey.objects.filter(pk=new.key_id).first() or _note(new, file)
    if new.key_id not in trusted(LedgerKey.objects.all(), [before.key_id]):
        raise signing_key.NoKey(f"The key {row.key_id} is already known, but not as one that follows the key in use.")
    return new


def trusted(keys: Iterable[LedgerKey], known: Iterable[str]) -> dict[str, str]:
    """The public keys by id: those known, and those that a known one says follow it."""
    rows = {row.key_id: row for row in keys if _is_its_own(row)}
    before = {row.key_id: one.key_id for row in rows.values() if (one := _before(row, rows)) is not None}
    found = {key_id for key_id in known if key_id in rows}
    while more := {key_id for key_id, one in before.items() if key_id not in found and one in found}:
        found |= more
    return {key_id: rows[key_id].public_key for key_id in found}


def succession() -> list[dict[str, str]]:
    """The chain of keys up to the one in use, oldest first: each has signed that the next follows it. Empty: none does.

    Included in what the key signs, for anyone who trusts an older one. The verifiers read it so.
    """
    if signing_key.problem():
        return []
    rows = {row.key_id: row for row in LedgerKey.objects.all() if _is_its_own(row)}
    found: list[LedgerKey] = []
    row = rows.get(signing_key.public_key().key_id)
    while row is not None and row not in found:
        found.insert(0, row)
        row = _before(row, rows)
    told = [{"public_key": one.public_key, "statement": one.statement, "endorsement": one.endorsement} for one in found]
    return told if len(told) > 1 else []


def _is_its_own(row: LedgerKey) -> bool:
    try:
        return signing_key.fingerprint(row.public_key) == row.key_id
    except ValueError:
        return False


def _before(row: LedgerKey, rows: dict[str, LedgerKey]) -> LedgerKey | None:
    """The key that has signed that this one follows it, if any."""
    try:
        said = load(row.statement)
        before = rows.get(str(said["previous"]))
    except (ValueError, KeyError, TypeError):
        return None
    stated = (said.get("kind"), said.get("key_id"), said.get("public_key")) == (KIND, row.key_id, row.public_key)
    if before is None or not stated or not holds(row.statement, row.endorsement, before.public_key):
        return None
    return before


def _note(key: PublicKey, file: Path | None = None) -> LedgerKey:
    """A key by itself, or the one in a file as the successor of the key in use."""
    with ledger.transaction():
        last = LedgerKey.objects.order_by("-number").first()
        previous = signing_key.public_key().key_id if file is not None else ""
        now = clock.now()
        statement = canonical(
            {
                "kind": KIND,
                "version": 1,
                "key_id": key.key_id,
                "public_key": key.value_b64,
                "previous": previous,
                "at": now.isoformat(),
            }
        )
        own, endorsement = _signatures(statement, file)
        row = LedgerKey.objects.create(
            key_id=key.key_id,
            public_key=key.value_b64,
            number=last.number + 1 if last is not None else 1,
            statement=statement,
            signature=own.value_b64,
            endorsement=endorsement,
            introduced_at=now,
        )
        said = {"key": key.key_id, "public_key": key.value_b64, "previous": previous, "endorsed": bool(endorsement)}
        ledger.record(ledger.LEDGER, "ledger.key_introduced", said)
    return row


def _signatures(statement: str, file: Path | None) -> tuple[Signature, str]:
    """Signatures by the new key itself, and by the one in use if it says that the new one follows."""
    if file is None:
        return signing_key.sign(statement), ""
    return signing_key.signed_by(signing_key.read_file(file), statement), signing_key.sign(statement).value_b64
