"""Proves that one event was there when a checkpoint was signed, for somebody who may see this event and no other.

Of all other events the proof contains at most hashes. Its cost grows with the chain's part of the checkpoint and with
the number of chains in it.
"""

import uuid
from typing import Any

from approvals.models import CheckpointLeaf, Event, LedgerKey
from approvals.proof import merkle
from approvals.proof.checkpoints import leaf_of

KIND = "inclusion"
VERSION = 1


class NotCovered(LookupError):
    """No checkpoint covers the event yet: the next one will."""


def inclusion(event_id: uuid.UUID) -> dict[str, Any]:
    """The proof for one event, as `verify_proof.py` reads it. Raises Event.DoesNotExist, NotCovered."""
    event = Event.objects.only("chain", "seq", "body", "hash").get(pk=event_id)
    covered = CheckpointLeaf.objects.filter(chain=event.chain, first__lte=event.seq, last__gte=event.seq)
    part = covered.select_related("checkpoint").order_by("last").first()
    if part is None:
        raise NotCovered("No checkpoint covers this event yet.")
    beside = Event.objects.filter(chain=event.chain, seq__gte=part.first, seq__lte=part.last).order_by("seq")
    hashes = [merkle.leaf(bytes.fromhex(hash)) for hash in beside.values_list("hash", flat=True)]
    others = part.checkpoint.leaves.order_by("position").values_list("chain", "first", "last", "hash", "root")
    leaves = [leaf_of(*told) for told in others]
    signed = part.checkpoint
    return {
        "kind": KIND,
        "version": VERSION,
        "event": {"body": event.body, "hash": event.hash},
        "part": {
            "chain": part.chain,
            "first": part.first,
            "last": part.last,
            "hash": part.hash,
            "root": part.root,
            "path": [step.hex() for step in merkle.path(hashes, event.seq - part.first)],
        },
        "tree": {
            "index": part.position,
            "size": len(leaves),
            "path": [step.hex() for step in merkle.path(leaves, part.position)],
        },
        "checkpoint": {
            "number": signed.number,
            "statement": signed.statement,
            "signature": signed.signature,
            "key_id": signed.key_id,
        },
        "keys": [_key(row) for row in LedgerKey.objects.order_by("number")],
    }


def _key(row: LedgerKey) -> dict[str, str]:
    names = ("key_id", "public_key", "statement", "signature", "endorsement")
    return {name: str(getattr(row, name)) for name in names}
