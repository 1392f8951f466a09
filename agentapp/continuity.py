"""The only writer of Continuity: whether this database is the one last worked in, with nothing missing.

A restored backup does not know what was done after it was taken: an approval in it would let its call run a second
time. So runs are claimed only if two things hold, checked in the very statement that claims:

- these are the tables the row was written in: another server, another database or recreated tables have other
  numbers, which no dump carries;
- nothing outside the database has seen more of it: each sweep is counted here and then noted in a file next to that
  of the checkpoints. A database put back to an earlier state, by whatever means, is behind the file.

Otherwise the next sweep stops everything until a person lets it go on.
"""

import json
import os
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, Exists, F, Q, Value
from django.db.models.expressions import RawSQL

from agentapp.models import Continuity, Run
from approvals.prepared import Given

HERE = "here"
FILE = "witness.json"
ELSEWHERE = (
    "This database was restored, copied or moved: its tables are not those that were last worked in. What was done "
    "after the copy was made is not on record in it."
)
BEHIND = "This database was put back to an earlier state: {} sweeps that were made are not on record in it."
UNKNOWN = "This database does not say whether it is the one that was last worked in."
UNREAD = "The note of this database's progress, kept outside it, cannot be read ({}): {}."

# The numbers of server, database and table. Each is assigned once, by the server that creates it.
_TABLES = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' || "
    "to_regclass('agentapp_continuity')::oid::text"
)


@dataclass(frozen=True)
class Witnessed:
    """What the outside file has seen of a database. `sweeps` None: the file cannot be read, so nobody can say."""

    mark: uuid.UUID | None = None
    sweeps: int | None = 0
    problem: str = ""


def intact() -> Exists:
    """Whether runs may be claimed here, given what the outside file now says."""
    return Exists(Continuity.objects.filter(_known(witnessed()), pk=HERE, tables=_here()))


def intact_by(mark: Given, sweeps: Given, here: Given) -> Exists:
    """The same for the statement that claims a run, which gets what was seen from `as_seen` each time.

    A missing value is compared as NULL, which nothing equals or exceeds. For an unreadable file both values are
    missing, so nothing is claimed. Without a file 0 sweeps have been seen, and there cannot be fewer.
    """
    tables = _here() if connection.vendor == "postgresql" else here
    return Exists(Continuity.objects.filter(~Q(mark=mark) | Q(sweeps__gte=sweeps), pk=HERE, tables=tables))


def as_seen() -> dict[str, Any]:
    """The values for `intact_by`."""
    seen = witnessed()
    here = {} if connection.vendor == "postgresql" else {"here": tables_of(connection)}
    return {"mark": seen.mark, "sweeps": seen.sweeps, **here}


def look() -> str:
    """Count a sweep and note it outside. Returns why everything must be held first, or empty if nothing must be.

    Each reason is given only once: from then on this database is the one. The caller is inside a transaction, in which
    it stops everything.
    """
    # The file first: others can only increase the table's count meanwhile.
    seen = witnessed()
    here = tables_of(connection)
    row = Continuity.objects.select_for_update().filter(pk=HERE).first()
    if row is None:
        row = Continuity.objects.create(tables=here)
        why = UNKNOWN if Run.objects.exists() else ""
    else:
        why = _why(row, here, seen)
    if why:
        at_least = seen.sweeps if seen.mark == row.mark and seen.sweeps is not None else 0
        Continuity.objects.filter(pk=HERE).update(tables=here, sweeps=max(row.sweeps, at_least) + 1)
    else:
        Continuity.objects.filter(pk=HERE).update(sweeps=F("sweeps") + 1)
    transaction.on_commit(note, robust=True)
    return why


def begin() -> None:
    """Mark an emptied database as a new one. The caller has emptied it."""
    Continuity.objects.update_or_create(pk=HERE, defaults={"mark": uuid.uuid4(), "tables": tables_of(connection)})


def _why(row: Continuity, here: str, seen: Witnessed) -> str:
    if row.tables != here:
        return ELSEWHERE
    if seen.sweeps is None:
        return UNREAD.format(path(), seen.problem)
    if seen.mark == row.mark and seen.sweeps > row.sweeps:
        return BEHIND.format(seen.sweeps - row.sweeps)
    return ""


def _known(seen: Witnessed) -> Q:
    """The condition that the file has not seen more than the database has."""
    if seen.sweeps is None:
        return Q(pk__in=[])
    return ~Q(mark=seen.mark) | Q(sweeps__gte=seen.sweeps) if seen.mark is not None else Q()


def tables_of(database: BaseDatabaseWrapper) -> str:
    """Which tables these are: on PostgreSQL by numbers that no dump carries, on SQLite by the file they are in."""
    if database.vendor == "postgresql":
        with database.cursor() as cursor:
            cursor.execute(_TABLES)
            return str(cursor.fetchone()[0])
    try:
        return f"file/{Path(str(database.settings_dict['NAME'])).stat().st_ino}"
    except OSError:
        return "memory"


def _here() -> Any:
    if connection.vendor == "postgresql":
        return RawSQL(_TABLES, [], CharField())  # noqa: S611  # a constant of ours
    return Value(tables_of(connection), CharField())


# --- The file outside --------------------------------------------------------------------------


def path() -> Path:
    """Next to the file of checkpoints, which every worker sees and which is not stored with the database."""
    beside: Path = settings.LEDGER.anchor_file
    return beside.with_name(FILE)


def witnessed() -> Witnessed:
    try:
        told = json.loads(_read())
        return Witnessed(uuid.UUID(told["mark"]), int(told["sweeps"]))
    except FileNotFoundError:
        return Witnessed()
    except OSError as error:
        return Witnessed(None, None, error.strerror or type(error).__name__)
    except (ValueError, KeyError, TypeError):
        return Witnessed(None, None, "its content is not what belongs there")


def _read() -> str:
    """The file's content. On a network disk, reading fails once if the file is replaced at that moment."""
    try:
        return path().read_text()
    except FileNotFoundError:
        raise
    except OSError:
        return path().read_text()


def note() -> None:
    """Note the database's committed progress outside: what is not stored was never seen."""
    row = Continuity.objects.filter(pk=HERE).first()
    if row is None:
        return
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    # Written whole or not at all, whoever else writes.
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{FILE}-")
    try:
        with open(handle, "w") as written:
            json.dump({"mark": str(row.mark), "sweeps": row.sweeps}, written)
            # Nothing in it is secret, and web processes, which may run as another user, read it.
            os.fchmod(handle, 0o644)
            # Otherwise the file may be empty after a power failure, which would stop everything.
            written.flush()
            os.fsync(handle)
        os.replace(draft, file)
    except OSError:
        # On a full disk, each sweep would leave a draft behind.
        os.unlink(draft)
        raise
