"""Whether checkpoints hold: their order, their signatures, their roots, and what is noted of them outside.

`chains` compares what they cover with the events; this module compares it with what was signed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

from approvals.digest import load, sha256
from approvals.models import Checkpoint, LedgerKey
from approvals.proof import anchors, keys, signing_key
from approvals.proof.chains import GENESIS, Break
from approvals.proof.checkpoints import KIND, leaf_of
from approvals.proof.merkle import Tree

# A break names the series of checkpoints by this, next to the names of chains.
CHECKPOINTS = "checkpoints"


@dataclass
class Passed:
    """How far the check has come."""

    number: int = 0
    digest: str = GENESIS
    events: int = 0


def go_on(passed: Passed, most: int = 100) -> tuple[int, Break | None]:
    """Check the next checkpoints. Returns how many hold and the first that does not; neither: there are no more.

    If no key is known, what they state is checked all the same, but not who signed it.
    """
    known = known_here()
    trusted = keys.trusted(LedgerKey.objects.all(), known) if known else None
    held = 0
    for row in Checkpoint.objects.filter(number__gt=passed.number).order_by("number")[:most]:
        problem = _problem(row, passed, trusted)
        if problem:
            return held, Break(CHECKPOINTS, row.number, problem)
        passed.number, passed.digest = row.number, row.digest
        passed.events, held = row.events, held + 1
    return held, None


def ending(passed: Passed, anchor_file: Path) -> Break | None:
    """Whether what was noted outside is what is here, and the file contains all that is said to be noted in it."""
    reached = anchors.reached()  # before the file, which may grow meanwhile
    known = 0
    try:
        for noted in anchors.read_file(anchor_file) if anchor_file.exists() else ():
            here = Checkpoint.objects.filter(pk=noted.number).values_list("statement", flat=True).first()
            if here != noted.statement and (here is not None or noted.number <= passed.number):
                return Break(CHECKPOINTS, noted.number, "a different one was noted outside the database")
            if here is None:
                return Break(CHECKPOINTS, noted.number, "it was noted outside the database but is not here")
            known = noted.number
    except (OSError, ValueError, KeyError, TypeError):
        return Break(CHECKPOINTS, known + 1, "what was noted outside the database cannot be read")
    last = Checkpoint.objects.order_by("-number").values_list("number", flat=True).first() or 0
    for number in reached.values():
        if number > last:
            return Break(CHECKPOINTS, last + 1, "it was noted outside the database but is not here")
    if reached.get(anchors.FILE, 0) > known:
        return Break(CHECKPOINTS, known + 1, f"it was noted in {anchor_file.name}, which no longer has it")
    return None


def known_here() -> Sequence[str]:
    """The key in use and those in the settings; never one merely because it is in the table. Without any, nothing
    vouches.
    """
    own = [] if signing_key.problem() else [signing_key.public_key().key_id]
    return [*own, *settings.LEDGER.trusted_keys]


def _problem(row: Checkpoint, passed: Passed, trusted: dict[str, str] | None) -> str:
    """What is wrong with one checkpoint, or an empty text."""
    if row.number != passed.number + 1:
        return f"checkpoint {passed.number + 1} is missing"
    if row.digest != sha256(row.statement):
        return "what it states does not match its digest"
    if trusted is not None:
        if row.key_id not in trusted:
            return f"it is signed with a key that no trusted key leads to ({row.key_id})"
        if not signing_key.holds(row.statement, row.signature, trusted[row.key_id]):
            return "its signature does not hold"
    said = load(row.statement)
    columns = (KIND, row.number, passed.digest, row.events, row.made_at.isoformat(), row.key_id)
    if tuple(said.get(name) for name in _STATED) != columns or said["events_in_all"] != passed.events + said["events"]:
        return "its columns do not match what it states"
    return _problem_of_leaves(row.number, said["root"], said["leaves"], said["events"])


_STATED = ("kind", "number", "previous", "events_in_all", "made_at", "key_id")


def _problem_of_leaves(number: int, root: str, leaves: int, events: int) -> str:
    tree, counted = Tree(), 0
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT position, chain, "first", "last", hash, root FROM approvals_checkpointleaf '
            "WHERE checkpoint_id = %s ORDER BY position",
            [number],
        )
        for place, (position, *part) in enumerate(cursor.fetchall()):
            if position != place:
                return "a part of what it covers is missing"
            tree.add(leaf_of(*part))
            counted += part[2] - part[1] + 1
    if (tree.root.hex(), tree.size, counted) != (root, leaves, events):
        return "its root is not that of what it covers"
    return ""
