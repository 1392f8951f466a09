"""The state of the ledger, for a page: what the last check found, and how far it is anchored."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef

from approvals import clock
from approvals.models import Anchor, Checkpoint, Verification
from approvals.proof import signing_key, verifying, vouched
from approvals.proof.checkpoints import CLOCKS_DIFFER


@dataclass(frozen=True)
class Standing:
    """Cheap: two queries, and nothing is counted."""

    holds: bool | None
    """None: not checked yet."""
    events: int
    """How many held at the last check."""
    verified_at: datetime | None
    broken: dict[str, Any] | None
    running: Verification | None
    """A check of the whole that is under way."""
    anchored_at: datetime | None
    """When the last checkpoint was signed. None also if nobody can say whose signature it is."""
    anchored: str
    """The digest of its statement."""
    anchored_events: int
    noted_outside: bool
    """Whether a place outside the database knows that checkpoint."""
    not_anchored: str
    """Why no checkpoint can be signed now, or why nothing vouches for them. Empty: neither is so."""


_NOT_VOUCHED = "The checkpoints cannot be vouched for: they were checked without a known key."


def standing() -> Standing:
    rows = list(verifying.past()[:2])
    running = next((row for row in rows if row.state == Verification.State.RUNNING), None)
    done = next((row for row in rows if row.state == Verification.State.DONE), None)
    # A place said to know a checkpoint that does not exist yet knows nothing.
    known = Exists(Anchor.objects.filter(reached=OuterRef("number")))
    last = Checkpoint.objects.annotate(known=known).order_by("-number").first()
    problem = signing_key.problem()
    if last is not None and (doubt := _doubt(done, last)):
        last, problem = None, problem or doubt
    return Standing(
        holds=done.holds if done else None,
        events=done.events if done else 0,
        verified_at=done.finished_at if done else None,
        broken=done.broken if done else None,
        running=running,
        anchored_at=last.made_at if last else None,
        anchored=last.digest if last else "",
        anchored_events=last.events if last else 0,
        noted_outside=bool(last and last.known),
        not_anchored=problem,
    )


def _doubt(done: Verification | None, last: Checkpoint) -> str:
    """Why the last checkpoint does not count. Empty: it does."""
    if last.made_at > clock.now() + CLOCKS_DIFFER:
        return f"The last checkpoint is dated {last.made_at:%Y-%m-%d}, which is in the future."
    return _NOT_VOUCHED if _without_a_word(done, last) else ""


def _without_a_word(done: Verification | None, last: Checkpoint) -> bool:
    """Whether nobody can vouch for this checkpoint: it was checked where no key is known, or none is known here."""
    if done is None or last.made_at > done.started_at:
        return not vouched.known_here()
    return bool(done.holds) and not done.checkpoints
