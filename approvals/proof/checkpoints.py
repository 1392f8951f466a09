"""Checkpoints: signed statements about everything that has happened since the one before.

A checkpoint covers, for each chain that has grown, the events that no checkpoint covers yet. Their hashes are the
leaves of a small tree per chain, and these trees are the leaves of one tree whose root is signed. The cost depends on
what has happened since, and one event can be proven with hashes alone. Each statement names the digest of the one
before. A time in which nothing happened has no checkpoint.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from approvals import clock, ledger
from approvals.digest import canonical, load, sha256
from approvals.models import ChainHead, Checkpoint, CheckpointLeaf
from approvals.proof import keys, signing_key
from approvals.proof.chains import GENESIS
from approvals.proof.merkle import Tree, leaf

logger = logging.getLogger(__name__)

KIND = "checkpoint"
VERSION = 1
# No correct clock of another worker can be further ahead than this.
CLOCKS_DIFFER = timedelta(minutes=5)
# The most chains in one statement: an installation that starts with millions gets several.
MOST_CHAINS = 10_000


@dataclass(frozen=True)
class _Part:
    """What has to be covered of one chain."""

    chain: str
    first: int
    last: int
    hash: str
    root: str

    @property
    def leaf(self) -> bytes:
        return leaf_of(self.chain, self.first, self.last, self.hash, self.root)


def leaf_of(chain: str, first: int, last: int, hash: str, root: str) -> bytes:
    """The hash of a chain's leaf in the tree of a checkpoint."""
    return leaf("\n".join((chain, str(first), str(last), hash, root)).encode())


def make_due(now: datetime | None = None) -> list[Checkpoint]:
    """Make what is due once another of the periods that settings.LEDGER counts has begun since the last.

    Also after a time in which nothing ran. Without a key nothing is made; `status` says so. Several workers may try:
    one makes it.
    """
    now = now or clock.now()
    last = Checkpoint.objects.order_by("-number").values_list("made_at", flat=True).first()
    if last is not None and last > now + CLOCKS_DIFFER:
        logger.warning("The last checkpoint says that it was made at %s, which is in the future.", last)
    elif last is not None and _period(last) >= _period(now):
        return []
    return make()


def make() -> list[Checkpoint]:
    """Cover everything not covered yet, in as many checkpoints as needed. Empty if nothing has happened."""
    if not ChainHead.objects.filter(uncovered=True).exists():
        return []
    try:
        keys.introduce()
    except (signing_key.NoKey, IntegrityError) as error:
        logger.warning("No checkpoint of the ledger is made: %s", error)
        return []
    made: list[Checkpoint] = []
    after = ""
    while True:
        # Read before the uncovered events: if somebody covers some of them meanwhile, they have taken this number.
        before = Checkpoint.objects.order_by("-number").first()
        parts, after, more = _parts(after)
        if parts:
            try:
                made.append(_make(parts, before))
            except IntegrityError:  # another worker has made this one
                return made
        if not more:
            return made


def _parts(after: str) -> tuple[list[_Part], str, bool]:
    """What the next chains have to be covered, the last of them, and whether there are more.

    A chain that is not whole is left out: `verifying` will find it, and nothing vouches for it meanwhile.
    """
    # One statement, so that heads and events are of the same moment.
    sql = (
        "SELECT head.chain, head.covered_seq, head.seq, head.hash, event.seq, event.hash FROM "  # noqa: S608
        "(SELECT chain, covered_seq, seq, hash FROM approvals_chainhead WHERE uncovered AND chain > %s "
        f"ORDER BY chain LIMIT {MOST_CHAINS:d}) head "
        "LEFT JOIN approvals_event event ON event.chain = head.chain "
        "AND event.seq > head.covered_seq AND event.seq <= head.seq ORDER BY head.chain, event.seq"
    )
    parts, chains = [], 0
    with connection.cursor() as cursor:
        cursor.execute(sql, [after])
        rows = cursor.fetchall()
    for (chain, covered, seq, hash), events in groupby(rows, key=itemgetter(0, 1, 2, 3)):
        tree, place, last = Tree(), covered, ""
        for *_, event_seq, event_hash in events:
            if event_seq != place + 1:
                break
            place, last = event_seq, event_hash
            tree.add(leaf(bytes.fromhex(event_hash)))
        chains, after = chains + 1, chain
        if (place, last) == (seq, hash):
            parts.append(_Part(chain, covered + 1, seq, hash, tree.root.hex()))
        else:
            logger.error("The chain %s is not whole, so no checkpoint covers it. Verify the ledger.", chain)
    return parts, after, chains == MOST_CHAINS


def _make(parts: list[_Part], before: Checkpoint | None) -> Checkpoint:
    tree = Tree()
    for part in parts:
        tree.add(part.leaf)
    with transaction.atomic():
        events = sum(part.last - part.first + 1 for part in parts)
        now = clock.now()
        said: dict[str, Any] = {
            "kind": KIND,
            "version": VERSION,
            "number": before.number + 1 if before is not None else 1,
            "made_at": now.isoformat(),
            "root": tree.root.hex(),
            "leaves": len(parts),
            "events": events,
            "events_in_all": events + (before.events if before is not None else 0),
            "previous": before.digest if before is not None else GENESIS,
            "key_id": signing_key.public_key().key_id,
        }
        statement = canonical(said)
        made = Checkpoint(
            number=said["number"],
            statement=statement,
            digest=sha256(statement),
            key_id=said["key_id"],
            signature=signing_key.sign(statement).value_b64,
            events=said["events_in_all"],
            made_at=now,
        )
        made.save(force_insert=True)
        CheckpointLeaf.objects.bulk_create(
            (
                CheckpointLeaf(
                    checkpoint=made,
                    position=place,
                    chain=part.chain,
                    first=part.first,
                    last=part.last,
                    hash=part.hash,
                    root=part.root,
                )
                for place, part in enumerate(parts)
            ),
            batch_size=1000,
        )
        _cover(made.number)
    return made


def _cover(number: int) -> None:
    """Note on the heads how far they are covered. Done last, in the order in which writers lock them."""
    mine = "SELECT chain FROM approvals_checkpointleaf WHERE checkpoint_id = %s"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"SELECT 1 FROM approvals_chainhead WHERE chain IN ({mine}) ORDER BY chain = %s, chain FOR UPDATE",  # noqa: S608
                [number, ledger.CONFIGURATION],
            )
        cursor.execute(
            'UPDATE approvals_chainhead SET covered_seq = part."last", uncovered = (seq > part."last") '
            "FROM approvals_checkpointleaf part "
            "WHERE part.checkpoint_id = %s AND part.chain = approvals_chainhead.chain",
            [number],
        )


def said_by(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint states."""
    said: dict[str, Any] = load(checkpoint.statement)
    return said


def _period(at: datetime) -> int:
    every: int = settings.LEDGER.checkpoint_seconds
    return int(at.timestamp() // every)
