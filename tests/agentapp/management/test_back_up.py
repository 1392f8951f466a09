"""A backup is whole or not there, is of the database that the product uses, and shows nobody the password."""

import fcntl
import os
import stat
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentapp.management.commands.back_up import UNFINISHED

# SQLite copies nothing while a transaction is open.
pytestmark = pytest.mark.django_db(transaction=True)

DUMPS = """#!/bin/sh
for argument; do case $argument in --file=*) file=${argument#--file=};; esac; done
echo "$PGPASSWORD" > "$file"
echo "$*" > "$(dirname "$0")/told"
"""


def backed_up(folder: Path, **options: Any) -> Path:
    """The one backup that this makes."""
    before = set(folder.iterdir())
    call_command("back_up", folder, stdout=StringIO(), **options)
    [made] = set(folder.iterdir()) - before
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture
def instead_of_pg_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a program in place of pg_dump. It can read what it was told in the file `told`."""

    def put(program: str) -> Path:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin/pg_dump").write_text(program)
        (tmp_path / "bin/pg_dump").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        return tmp_path / "bin/told"

    return put


def aged(file: Path, days: float) -> Path:
    file.touch()
    os.utime(file, (time.time() - days * 86400,) * 2)
    return file


def test_only_its_user_reads_it(folder: Path) -> None:
    """That it is whole is shown by restoring it: `tests/test_restoring.py`."""
    made = backed_up(folder)
    assert made.stat().st_size > 100_000
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


@pytest.mark.postgresql
def test_it_asks_the_server_itself_and_no_process_list_has_the_password(
    folder: Path, settings: Any, instead_of_pg_dump: Any
) -> None:
    settings.DATABASE_LISTENED_TO = {"host": "db.internal", "dbname": "of agents", "password": "pass 'word'"}
    told = instead_of_pg_dump(DUMPS)
    assert backed_up(folder).read_text() == "pass 'word'\n"
    assert "--dbname=host=db.internal dbname='of agents'" in told.read_text()
    assert "word" not in told.read_text()


@pytest.mark.postgresql
@pytest.mark.parametrize("fails", ["#!/bin/sh\necho half > $2; exit 3\n", DUMPS + "exit 3\n"])
def test_one_that_fails_leaves_nothing_and_takes_nothing_away(
    folder: Path, fails: str, instead_of_pg_dump: Any
) -> None:
    instead_of_pg_dump(fails)
    old = aged(folder / "old.dump", 400)
    with pytest.raises(CommandError, match="pg_dump failed with status 3"):
        backed_up(folder)
    assert list(folder.iterdir()) == [old]


@pytest.mark.postgresql
def test_without_pg_dump_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(CommandError, match="pg_dump is not installed"):
        backed_up(folder)


def test_what_was_cut_off_is_overwritten_and_what_is_too_old_goes(folder: Path) -> None:
    ending = "sqlite3" if connection.vendor == "sqlite" else "dump"
    (folder / UNFINISHED).write_text("half")
    aged(folder / f"old.{ending}", 8)
    recent, other = aged(folder / f"recent.{ending}", 6), aged(folder / "notes.txt", 8)
    said = StringIO()
    call_command("back_up", folder, keep_days=7, stdout=said)
    made, *kept = sorted(folder.iterdir())
    assert kept == [other, recent]
    assert said.getvalue().startswith(f"{made} has ")
    assert said.getvalue().endswith("Older backups removed: 1.\n")


def test_two_do_not_write_to_one_file(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(CommandError, match=r"Another backup into .* is under way"):
            backed_up(folder)
    finally:
        os.close(descriptor)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("path", "days", "said"), [("none", 14, "none: No such file"), ("backups", 0, "1 or more")])
def test_what_cannot_be_done_is_said(folder: Path, path: str, days: int, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("back_up", folder.parent / path, keep_days=days)
