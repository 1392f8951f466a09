"""What is wrong with the installation now, and what that means for people who wait. Reads only.

Nothing here stops or allows anything: whatever is down, a request waits for people. This only reports it.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis
from django.conf import settings
from django.core.cache import caches
from django.db import DatabaseError, InterfaceError, ProgrammingError
from django.utils import timezone

from agentapp.health_figures import CLOCKS_MAY_DIFFER, figures
from approvals.proof import signing_key, verifying

logger = logging.getLogger(__name__)

# How long one look serves all pages of a process; how long pages that do not look themselves show it.
LOOKED_AT_FOR_SECONDS = 5
# That nothing can be served is soon looked at again: nothing is sent to a web server that says so.
UNAVAILABLE_FOR_SECONDS = 1
SHOWN_FOR_SECONDS = 90
LATE = timedelta(seconds=60)
# The whole ledger is checked every day.
UNLOOKED_LONG = 2 * verifying.EVERY
BROKER_ANSWERS_WITHIN_SECONDS = 1.0
BROKER_NOTE_SECONDS = 10


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `details` name rows, for people who are signed in. `fatal`: nothing can be served."""

    code: str
    message: str
    means: str
    details: str = ""
    fatal: bool = False


AWAY = Problem(
    "database",
    "The database does not answer.",
    "Nothing can be seen, decided or run until it is back. Nothing is lost.",
    fatal=True,
)

REFUSES = Problem(
    "database",
    "The database answers, but refuses what this release reads. It may lack tables, columns or rights.",
    "Nothing can be seen, decided or run before that is mended, perhaps by manage.py migrate and grant_tables of this "
    "release; the log has what it refuses. Nothing is lost.",
    fatal=True,
)


_looking = threading.Lock()


def current() -> list[Problem]:
    """What is wrong, as of the last few seconds: one query and one request to the broker."""
    found: list[Problem] | None = caches["process"].get("health")
    if found is not None:
        return found
    # While the database is away, a look takes a second; anybody may ask, and one look is enough.
    shown: list[Problem] | None = caches["process"].get("health-shown")
    if not _looking.acquire(blocking=shown is None):
        return shown or []
    try:
        found = caches["process"].get("health")  # somebody may have looked while this one waited
        if found is None:
            found = look()
            lasts = UNAVAILABLE_FOR_SECONDS if any(problem.fatal for problem in found) else LOOKED_AT_FOR_SECONDS
            caches["process"].set("health", found, lasts)
            caches["process"].set("health-shown", found, SHOWN_FOR_SECONDS)
    finally:
        _looking.release()
    return found


def last_known() -> list[Problem]:
    """What this process found when it last looked, for pages: costs no query."""
    found: list[Problem] = caches["process"].get("health-shown", [])
    return found


def look() -> list[Problem]:
    return [*_of_broker(), *_of_database()]


def _of_broker() -> Iterator[Problem]:
    if settings.EMBEDDED:
        return
    timeout = BROKER_ANSWERS_WITHIN_SECONDS
    means = (
        "Decisions are kept, and nothing is approved by itself. Workers are told nothing until it is back. Then "
        "they find every run that is due."
    )
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=timeout, socket_timeout=timeout) as asked:
            # A full broker, or a replica, still answers reads, so this writes.
            asked.set(f"{settings.CELERY_TASK_DEFAULT_QUEUE}:health", 1, ex=BROKER_NOTE_SECONDS)
    except redis.ResponseError as refused:
        yield Problem("broker", "The broker takes no messages: it is full, or refuses them.", means, str(refused))
    except (redis.RedisError, OSError):
        yield Problem("broker", "The broker cannot be reached.", means)


def _of_database() -> Iterator[Problem]:
    try:
        row = figures()
    except ProgrammingError as refused:
        # What it says names tables, which nobody is told who is not signed in.
        logger.error("The database refuses what this release reads: %s", refused)
        yield REFUSES
        return
    except (DatabaseError, InterfaceError):
        yield AWAY
        return
    for check in _CHECKS:
        problem = check(row)
        if problem is not None:
            yield problem


def _restored(row: dict[str, Any]) -> Problem | None:
    if row["intact"] and not row["held"]:
        return None
    return Problem(
        "restored",
        "The database was restored, copied or moved, or the note of it kept outside cannot be read: it may not know "
        "what was done last. Everything is held.",
        "No run makes a call. Requests can be decided. Somebody who may engage kill switches must check what was under "
        "way, and then release the switch for everything on the page Controls.",
    )


def _late(row: dict[str, Any]) -> Problem | None:
    if row["due_since"] is None or row["now"] - row["due_since"] < LATE:
        return None
    return Problem(
        "workers_late",
        f"A run has been due for {_long(row['now'] - row['due_since'])}, and no worker has taken it.",
        "Decisions are kept, and nothing is approved by itself. What was approved runs when a worker is free. If "
        f"its time is over by then, it does not run, and its agent is told.{_of_queues()}",
    )


def _of_queues() -> str:
    found = " If other runs go on, no worker takes the queue of this run's agent (AGENT_QUEUES)."
    return found if settings.AGENT_QUEUES else ""


def _unswept(row: dict[str, Any]) -> Problem | None:
    allowed = max(LATE, 4 * timedelta(seconds=settings.SWEEP_SECONDS))
    # An installation that was never swept has had no worker yet: overdue runs show that.
    if row["swept_at"] is None or row["now"] - row["swept_at"] < allowed:
        return None
    return Problem(
        "not_swept",
        f"Nothing has looked after what is overdue for {_long(row['now'] - row['swept_at'])}: beat, the broker or "
        "every worker is down.",
        "Requests wait and can be decided. Until it is back, no request expires, and what a lost message left behind "
        "is not found; nothing is approved by itself.",
    )


def _untold(row: dict[str, Any]) -> Problem | None:
    if not row["untold"]:
        return None
    return Problem(
        "people_not_told",
        f"{_count(row['untold'], 'message', 'messages')} about requests could not be sent.",
        "People may not know that something waits for them. Requests still wait in the inbox; nothing is approved by "
        "itself.",
    )


def _broken(row: dict[str, Any]) -> Problem | None:
    if not row["broken"]:
        return None
    more = f" and {row['broken'] - 1} more" if row["broken"] > 1 else ""
    return Problem(
        "breaker_open",
        f"{_count(row['broken'], 'breaker is', 'breakers are')} open: what keeps failing is not called for now.",
        "What is approved stays approved until its time is over. Nothing is called instead.",
        f"{row['first_broken']}{more}",
    )


def _losing_workers(row: dict[str, Any]) -> Problem | None:
    if not row["paused"]:
        return None
    more = f" and {row['paused'] - 1} more" if row["paused"] > 1 else ""
    return Problem(
        "runs_lose_workers",
        f"{_count(row['paused'], 'run is', 'runs are')} paused, because worker after worker vanished while it had "
        f"{'it' if row['paused'] == 1 else 'them'}.",
        "The workers' logs, or the system's, say what ended them: too much memory, or a tool or model library that "
        "crashes. Then resume the run, or cancel it. Other runs go on.",
        f"run_{row['first_paused'].hex[-6:]}{more}",
    )


def _unsynced(row: dict[str, Any]) -> Problem | None:
    if not row["unsynced"]:
        return None
    more = f" and {row['unsynced'] - 1} more" if row["unsynced"] > 1 else ""
    return Problem(
        "tools_not_synced",
        f"{_count(row['unsynced'], 'tool is', 'tools are')} of another version on record than in the code of this web "
        "server.",
        "A process with this code calls none of them. Runs that need them are left to processes that have the version "
        "on record. If there are none, the calls are refused or asked about again. Restart the processes of the "
        "older release. If this is the release that should run, run its manage.py sync_tools.",
        f"{row['first_unsynced']}{more}",
    )


def _deaf(row: dict[str, Any]) -> Problem | None:
    if not row["deaf"]:
        return None
    return Problem(
        "webhooks_failing",
        f"{_count(row['deaf'], 'webhook endpoint takes', 'webhook endpoints take')} nothing.",
        "Programs elsewhere are not told what happens. Requests still wait for people.",
    )


def _clocks(row: dict[str, Any]) -> Problem | None:
    off = abs(_process_time() - row["now"])
    if off <= CLOCKS_MAY_DIFFER:
        return None
    return Problem(
        "clock",
        f"The clock of this server is {_long(off)} off the database's.",
        "Countdowns on pages are wrong by as much. Only the database's clock decides what expires when.",
    )


def _workers_clocks(row: dict[str, Any]) -> Problem | None:
    lately = max(LATE, 8 * timedelta(seconds=settings.SWEEP_SECONDS))
    if row["worker_was_off_at"] is None or row["now"] - row["worker_was_off_at"] > lately:
        return None
    return Problem(
        "worker_clock",
        "The clock of a worker is off the database's.",
        "Its log says by how much. Times in its logs and traces are wrong by as much, and it may refuse certificates "
        "of models and tools. Only the database's clock decides what is due and what expires.",
    )


def _read_only(row: dict[str, Any]) -> Problem | None:
    if row["read_only"] == "off":
        return None
    return Problem(
        "database_read_only",
        "The database accepts no changes.",
        "Nothing can be decided, and nothing runs, until it does. Whatever waits goes on waiting.",
    )


def _ledger_broken(row: dict[str, Any]) -> Problem | None:
    if not row["ledger_broken"]:
        return None
    return Problem(
        "ledger_broken",
        "The ledger does not hold: somebody has changed what is on record, or the database has lost some of it.",
        "Approvals and runs do not depend on this, and go on. Find out what happened before you rely on the record. A "
        "backup may have what is missing.",
        verifying.named(row["ledger_broken"]),
    )


def _unlooked(row: dict[str, Any]) -> Problem | None:
    if row["ledger_looked_at"] is None or row["now"] - row["ledger_looked_at"] < UNLOOKED_LONG:
        return None
    return Problem(
        "ledger_not_checked",
        f"No check of the whole ledger has ended for {_long(row['now'] - row['ledger_looked_at'])}.",
        "Approvals and runs do not depend on this, and go on. Whether the record holds is not known. The workers' logs "
        "say what keeps the check from ending.",
    )


def _ahead(row: dict[str, Any]) -> Problem | None:
    if row["ahead"] is None:
        return None
    return Problem(
        "ledger_ahead",
        f"A check of the ledger says that it was begun on {row['ahead']:%Y-%m-%d}, which is yet to come.",
        "A clock was wrong, or somebody has written to the database. The check does not count: the ledger is still "
        "checked every day.",
    )


def _unanchored(row: dict[str, Any]) -> Problem | None:
    if row["unanchored"] is None:
        return None
    return Problem(
        "ledger_not_anchored",
        "Checkpoints of the ledger cannot be noted outside of the database.",
        "The ledger goes on and checkpoints are signed. Until they are noted outside, anybody who may change the "
        "database could remove them.",
        row["unanchored"],
    )


def _unsigned(row: dict[str, Any]) -> Problem | None:
    why = signing_key.problem() if row["signs"] else ""
    if not why:
        return None
    return Problem(
        "ledger_not_signed",
        "The key that signs the ledger's checkpoints cannot be used here.",
        "The ledger goes on, but nothing new in it is signed or noted outside. Give this process the key that it had.",
        why,
    )


_CHECKS: tuple[Callable[[dict[str, Any]], Problem | None], ...] = (
    _read_only, _restored, _ledger_broken, _unlooked, _ahead, _unswept, _late, _untold, _losing_workers, _unsynced,
    _broken, _deaf, _unanchored, _unsigned, _clocks, _workers_clocks,
)  # fmt: skip


def _process_time() -> datetime:
    return timezone.now()


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _long(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
