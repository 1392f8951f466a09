import contextlib
import fcntl
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from agentapp.postgresql import past_poolers

# One name for all: what was cut off, by a full disk or a machine that stopped, is overwritten and never adds up.
UNFINISHED = "unfinished"


class Command(BaseCommand):
    help = (
        "Back up the database into a folder, for its user alone to read, and then remove old backups there. With "
        "PostgreSQL, pg_dump does it."
    )
    # Somebody may want a backup all the more when something is wrong.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="A folder for nothing but backups.")
        parser.add_argument(
            "--keep-days",
            type=int,
            default=14,
            help="Once a new backup is made, older ones than this are removed. Default: 14.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        folder, days = options["folder"], options["keep_days"]
        if days < 1:
            raise CommandError("--keep-days must be 1 or more.")
        ending, write = (".sqlite3", _copy) if connection.vendor == "sqlite" else (".dump", _dump)
        try:
            with _alone(folder):
                made = folder / f"{timezone.localtime():%Y-%m-%d-%H%M%S}{ending}"
                _write(made, write)
                removed = _remove(folder, ending, days)
        except OSError as error:
            raise CommandError(f"{error.filename or folder}: {error.strerror}.") from error
        self.stdout.write(f"{made} has {filesizeformat(made.stat().st_size)}. Older backups removed: {removed}.")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else backs up into this folder meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CommandError(f"Another backup into {folder} is under way.") from None
    finally:
        os.close(descriptor)


def _write(made: Path, write: Callable[[Path], None]) -> None:
    unfinished = made.with_name(UNFINISHED)
    try:
        unfinished.unlink(missing_ok=True)
        unfinished.touch(mode=0o600, exist_ok=False)
        write(unfinished)
        unfinished.replace(made)
    finally:
        unfinished.unlink(missing_ok=True)


def _dump(file: Path) -> None:
    server = past_poolers()
    # Every user of the machine can read the arguments of a process.
    password = {"PGPASSWORD": str(server.pop("password"))} if server.get("password") else {}
    command = ["pg_dump", "--format=custom", f"--file={file}", f"--dbname={make_conninfo(**server)}"]
    try:
        ended = subprocess.run(command, env={**os.environ, **password}, check=False).returncode  # noqa: S603
    except FileNotFoundError:
        raise CommandError("pg_dump is not installed. It comes with PostgreSQL's client programs.") from None
    if ended != 0:
        raise CommandError(f"pg_dump failed with status {ended}. There is no new backup, and old ones are kept.")


def _copy(file: Path) -> None:
    connection.ensure_connection()
    with contextlib.closing(sqlite3.connect(file)) as copy:
        connection.connection.backup(copy)


def _remove(folder: Path, ending: str, days: int) -> int:
    """Remove backups that were made longer ago. Returns how many."""
    old = [file for file in folder.glob(f"*{ending}") if file.stat().st_mtime < time.time() - days * 86400]
    for file in old:
        file.unlink()
    return len(old)
