"""Databases for processes that are started as people start them: the tables that `migrate` leaves, without rows."""

import functools
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.processes import ROOT

FILE = "db.sqlite3"


def with_tables(folder: Path) -> Path:
    """The folder, with such a database in it. Creating the tables takes longer than most tests, so it is done once."""
    file = folder / FILE
    file.write_bytes(_tables())
    with closing(sqlite3.connect(file)) as copy, copy:
        # The database records which file it is: a copy of another would be held.
        copy.execute("UPDATE agentapp_continuity SET tables = ?", [f"file/{file.stat().st_ino}"])
    return folder


@functools.cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory(prefix="countersign-tables-") as folder:
        kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=ROOT, env={**kept, "DEBUG": "true", "DATA_DIR": folder}, timeout=240, check=True,
        )  # fmt: skip
        with closing(sqlite3.connect(Path(folder, FILE))) as made:
            made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(folder, FILE).read_bytes()
