"""Notes checkpoints outside the database: in an append-only file and at an address.

Somebody who can change only the database cannot change what is known there. Each place receives the checkpoints in
order and is told later what it missed. What it does not accept is tried again, at growing intervals.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import F

from approvals import clock, ledger
from approvals.models import Anchor, Checkpoint

FILE, URL = Anchor.Target.FILE, Anchor.Target.URL
# The most lines in one pass.
MOST = 500
_AGAIN_AFTER = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=1))
_LAST_BYTES = 64 * 1024
# A place that fails this long is a problem for people to look at.
FAILING_LONG = timedelta(hours=2)


@dataclass(frozen=True)
class Noted:
    """A checkpoint as a place outside knows it."""

    number: int
    statement: str
    signature: str


def line(checkpoint: Checkpoint) -> str:
    """A checkpoint as it is noted outside: one line without its end."""
    told = {"number": checkpoint.number, "statement": checkpoint.statement, "signature": checkpoint.signature}
    return json.dumps({"kind": "checkpoint", **told, "key_id": checkpoint.key_id}, separators=(",", ":"))


def write_file() -> int:
    """Add what the file does not have. Returns how many lines. A failure to write is noted, and tried again."""
    path: Path = settings.LEDGER.anchor_file
    reached = _reached(FILE)
    if not Checkpoint.objects.filter(number__gt=reached).exists() or not is_due(FILE):
        return 0
    try:
        written = _written_to(path)
        if written < reached:
            # The database may no longer hold what was noted then; nothing here can tell.
            failed(FILE, f"{path} ends before checkpoint {reached}, which was noted in it. Restore the file.")
            return 0
        missing = list(Checkpoint.objects.filter(number__gt=written).order_by("number")[:MOST])
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("a", encoding="utf-8") as file:
            if new:
                # Nothing in it is secret, and it may be checked by another user than the one that writes it.
                os.fchmod(file.fileno(), 0o644)
            file.writelines(f"{line(row)}\n" for row in missing)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, ValueError) as error:
        failed(FILE, f"{path} cannot be written: {type(error).__name__}.")
        return 0
    noted(FILE, missing[-1].number if missing else written)
    return len(missing)


def begin_anew() -> Path | None:
    """Put the file aside and note everything in a new one: after a restore, or if the file is lost for good.

    Only for somebody on the machine who has understood why; doing so is an event. Returns where the old file is.
    """
    path: Path = settings.LEDGER.anchor_file
    aside = path.with_name(f"{path.name}.until-{clock.now():%Y%m%dT%H%M%SZ}") if path.exists() else None
    with ledger.transaction():
        ledger.record(ledger.LEDGER, "ledger.anchor_begun_anew", {"file": path.name, "had": _reached(FILE)})
        Anchor.objects.filter(pk=FILE).delete()
        if aside is not None:
            path.rename(aside)
    while write_file() == MOST:
        pass
    return aside


def read_file(path: Path) -> Iterator[Noted]:
    """What a file has noted. Raises OSError, and ValueError for a line that is not ours."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            told: dict[str, Any] = json.loads(text)
            yield Noted(int(told["number"]), str(told["statement"]), str(told["signature"]))


# --- How far each place is ---------------------------------------------------------------------


def waiting(target: str) -> list[Checkpoint]:
    """What a place does not know yet and is due to be told, oldest first."""
    if not is_due(target):
        return []
    return list(Checkpoint.objects.filter(number__gt=_reached(target)).order_by("number")[:MOST])


def is_due(target: str) -> bool:
    now = clock.now()
    # Nothing waits longer than that. A later moment was not written here, or by a clock that was wrong.
    return not Anchor.objects.filter(pk=target, next_at__gt=now, next_at__lte=now + _AGAIN_AFTER[-1]).exists()


def reached() -> dict[str, int]:
    """The last checkpoint that each place is recorded as knowing."""
    return dict(Anchor.objects.values_list("target", "reached"))


def noted(target: str, number: int) -> None:
    """Note that a place knows the checkpoints up to this one."""
    told = {"attempts": 0, "next_at": None, "failing_since": None, "problem": "", "reached_at": clock.now()}
    if not Anchor.objects.filter(pk=target, reached__lte=number).update(reached=number, **told):
        Anchor.objects.get_or_create(pk=target, defaults={"reached": number, **told})


def failed(target: str, problem: str) -> None:
    """Note that a place did not accept the next one. `problem` never quotes the answer word for word."""
    now = clock.now()
    row, _ = Anchor.objects.get_or_create(pk=target)
    wait = _AGAIN_AFTER[min(row.attempts, len(_AGAIN_AFTER) - 1)]
    Anchor.objects.filter(pk=target).update(
        attempts=F("attempts") + 1, next_at=now + wait, problem=problem[:500], failing_since=row.failing_since or now
    )


def _reached(target: str) -> int:
    return Anchor.objects.filter(pk=target).values_list("reached", flat=True).first() or 0


def _written_to(path: Path) -> int:
    """The number in the last line of the file. An incomplete line is removed, so that the next one stands alone."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LAST_BYTES))
        *whole, rest = file.read().split(b"\n")
        if rest:
            # A worker died while writing: remove the incomplete line.
            file.truncate(size - len(rest))
    return int(json.loads(whole[-1])["number"]) if whole and whole[-1] else 0
