"""Checks whether the whole ledger holds, in the background and in slices: the only writer of Verification.

First every chain, then whether rows say what the chains say, every checkpoint, what is noted outside, and every signed
decision. A slice is claimed, records how far it is, and lets go. If its worker dies, its claim runs out.
"""

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet, Sum

from approvals import as_recorded, clock, signatures
from approvals.as_recorded import Compared
from approvals.models import Approval, ChainHead, Verification
from approvals.proof import vouched
from approvals.proof.chains import Break, Cursor, Scope, Walk
from approvals.proof.checkpoints import CLOCKS_DIFFER
from approvals.proof.columns import run_chain
from approvals.proof.snapshot import one_moment
from approvals.proof.vouched import Passed

logger = logging.getLogger(__name__)

State = Verification.State
EVERY = timedelta(days=1)
SLICE_SECONDS = 10.0
_A_STEP_TAKES = timedelta(minutes=2)
_WHOLE = Q(chain="", since=None, until=None)
# This many rows at a time are compared with the chains that record them.
_ROWS = 2000
# A break names the signed decisions by this.
DECISIONS = "decisions"


type Source = Callable[[uuid.UUID | None, int], list[tuple[uuid.UUID, uuid.UUID]]]


def _requests(after: uuid.UUID | None, most: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    rows = Approval.objects.filter(pk__gt=after) if after else Approval.objects.all()
    return list(rows.order_by("pk").values_list("pk", "run_id")[:most])


told_of: list[Source] = [_requests]
"""Rows that came with an event of their run's chain: given the last key, the next keys in order, each with its run."""

type Comparison = Callable[[uuid.UUID | None, int], Compared]

compared: list[Comparison] = [as_recorded.compare]
"""Rows that must say what events say. As `as_recorded.compare`: given the last key, the next rows are compared."""


def start(user: AbstractBaseUser | None, scope: Scope | None = None) -> Verification:
    """Begin a check, or return the one under way. Nothing is checked here: a worker does that."""
    scope = scope or Scope()
    asked = {"chain": scope.chain, "since": scope.since, "until": scope.until}
    running = Verification.objects.filter(state=State.RUNNING, **asked).first()
    if running is not None:
        return running
    now = clock.now()
    where, values = scope.where
    heads = ChainHead.objects.extra(where=[where], params=values)  # noqa: S610  (the scope's own words)
    total = heads.aggregate(total=Sum("seq"))["total"] or 0
    return Verification.objects.create(
        **asked, started_by_id=user.pk if user else None, started_at=now, seen_at=now, events_total=total
    )


def status(id: uuid.UUID) -> Verification | None:
    return Verification.objects.filter(pk=id).select_related("started_by").first()


def latest() -> Verification | None:
    """The last check of the whole ledger, under way or over."""
    return past().select_related("started_by").first()


def due(now: datetime | None = None) -> list[uuid.UUID]:
    """Checks that are under way and unclaimed. A day after the last, the whole ledger is checked again."""
    now = now or clock.now()
    last = past(now).values_list("started_at", flat=True).first()
    if ahead := _whole().filter(started_at__gt=now + CLOCKS_DIFFER).first():
        logger.warning("A verification says that it was begun at %s, which is in the future.", ahead.started_at)
    if (last is None or last <= now - EVERY) and ChainHead.objects.exists():
        start(None)
    return list(_free(now).values_list("pk", flat=True))


def go_on(id: uuid.UUID, seconds: float = SLICE_SECONDS) -> bool:
    """Check the next slice. False: the check is over, or another worker has it."""
    until = time.monotonic() + seconds
    row = _claimed(id)
    while row is not None and row.state == State.RUNNING:
        held = row.claimed_until
        _PHASES[row.cursor.get("phase", "chains")](row)
        over = row.state == State.DONE or time.monotonic() >= until
        row.seen_at = clock.now()
        row.claimed_until = None if over else row.seen_at + _A_STEP_TAKES
        written = {name: getattr(row, name) for name in _WRITTEN}
        if not Verification.objects.filter(pk=id, claimed_until=held).update(**written):
            return False  # the claim had run out: another worker continues from before this step
        if over:
            return row.state == State.RUNNING
    return False


def look(scope: Scope | None = None) -> Verification:
    """Check chains and checkpoints here and now, without a row. The caller checks the signed decisions."""
    now, scope = clock.now(), scope or Scope()
    row = Verification(chain=scope.chain, since=scope.since, until=scope.until, started_at=now, seen_at=now)
    while row.state == State.RUNNING and row.cursor.get("phase") != "decisions":
        _PHASES[row.cursor.get("phase", "chains")](row)
    return row


_WRITTEN = (
    "state", "seen_at", "finished_at", "claimed_until", "cursor", "events", "checkpoints", "signed", "holds", "broken",
)  # fmt: skip


def _whole() -> QuerySet[Verification]:
    return Verification.objects.filter(_WHOLE).order_by("-started_at")


def past(now: datetime | None = None) -> QuerySet[Verification]:
    """Checks of the whole ledger, latest first. One dated in the future does not count."""
    return _whole().filter(started_at__lte=(now or clock.now()) + CLOCKS_DIFFER)


def _free(now: datetime) -> QuerySet[Verification]:
    # A claim that lasts longer than any was made by a clock that was wrong.
    free = Q(claimed_until=None) | Q(claimed_until__lte=now) | Q(claimed_until__gt=now + _A_STEP_TAKES + CLOCKS_DIFFER)
    return Verification.objects.filter(free, state=State.RUNNING).order_by("started_at")


def _claimed(id: uuid.UUID) -> Verification | None:
    now = clock.now()
    if not _free(now).filter(pk=id).update(claimed_until=now + _A_STEP_TAKES):
        return None
    return Verification.objects.get(pk=id)


# --- The parts ---------------------------------------------------------------------------------


def _look_at_chains(row: Verification) -> None:
    walk = Walk(Scope(row.chain, row.since, row.until), Cursor(**row.cursor.get("at", {})))
    more = walk.go_on()
    row.events += walk.held
    if walk.broken is not None:
        _end(row, walk.broken)
    elif more:
        row.cursor = {"phase": "chains", "at": asdict(walk.cursor)}
    else:
        # What was signed about all chains is not checked for single ones.
        row.cursor = {"phase": "rows" if row.whole else "decisions"}


def _look_at_rows(row: Verification) -> None:
    """Whether there is a chain for each row that came with an event, since one removed as a whole leaves no gap; then
    whether rows say what events say.
    """
    place, after = row.cursor.get("source", 0), row.cursor.get("after")
    after = uuid.UUID(after) if after else None
    if place >= len(told_of) + len(compared):
        row.cursor = {"phase": "checkpoints"}
        return
    look = _chains_of(told_of[place]) if place < len(told_of) else compared[place - len(told_of)]
    with one_moment():  # rows and events go on changing
        last, broken = look(after, _ROWS)
    if broken is not None:
        _end(row, broken)
    elif last is not None:
        row.cursor = {"phase": "rows", "source": place, "after": str(last)}
    else:
        row.cursor = {"phase": "rows", "source": place + 1}


def _chains_of(source: Source) -> Comparison:
    def look(after: uuid.UUID | None, most: int) -> Compared:
        rows = source(after, most)
        wanted = {run_chain(run): None for _, run in rows}
        there = set(ChainHead.objects.filter(pk__in=wanted).values_list("pk", flat=True))
        missing = next((chain for chain in wanted if chain not in there), None)
        gone = Break(missing, 1, "its chain is missing, but what it records is there") if missing is not None else None
        return (rows[-1][0] if len(rows) == most else None), gone

    return look


def _look_at_checkpoints(row: Verification) -> None:
    passed = Passed(**row.cursor.get("at", {}))
    held, broken = vouched.go_on(passed)
    # Without a known key, nothing vouches for them.
    row.checkpoints += held if vouched.known_here() else 0
    if broken is None and not held:
        broken = vouched.ending(passed, settings.LEDGER.anchor_file)
        row.cursor = {"phase": "decisions"}
    else:
        row.cursor = {"phase": "checkpoints", "at": asdict(passed)}
    if broken is not None:
        _end(row, broken)


def _look_at_decisions(row: Verification) -> None:
    # For a period nobody can tell which decisions were signed in it. They are checked with the whole.
    if row.whole or row.chain.startswith("run:"):
        row.signed, forged = signatures.verify_all(row.chain or None)
        if forged is not None:
            problem = f"the signed decision {forged.decision} about {forged.reference} does not hold: {forged.problem}"
            _end(row, Break(DECISIONS, 0, problem))
            return
    _end(row, None)


_PHASES: dict[str, Callable[[Verification], None]] = {
    "chains": _look_at_chains, "rows": _look_at_rows, "checkpoints": _look_at_checkpoints,
    "decisions": _look_at_decisions,
}  # fmt: skip


def _end(row: Verification, broken: Break | None) -> None:
    row.state, row.finished_at = State.DONE, clock.now()
    row.holds, row.cursor = broken is None, {}
    row.broken = asdict(broken) if broken is not None else None
    if broken is not None:
        logger.error("The ledger is broken at %s, event %s: %s.", broken.chain, broken.seq, broken.problem)


def named(broken: dict[str, Any]) -> str:
    """A break as a sentence, as it is kept with a verification."""
    if broken["chain"] == DECISIONS:
        return f"{broken['problem'][0].upper()}{broken['problem'][1:]}."
    what = "checkpoint" if broken["chain"] == vouched.CHECKPOINTS else f"{broken['chain']}, event"
    return f"The ledger is broken at {what} {broken['seq']}: {broken['problem']}."
