"""A backup does not know what was done after it: once it is restored, nothing runs until a person says so."""

import contextlib
import errno
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from agentapp import actions, continuity, health, loop
from agentapp.models import Continuity, KillSwitch, Run
from agentapp.sweep import sweep
from approvals.models import Event
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=20))


def with_postgresql(command: str, *options: str) -> None:
    server = connection.settings_dict
    place = ["--host", server["HOST"], "--port", str(server["PORT"] or 5432), "--username", server["USER"]]
    environment = {**os.environ, "PGPASSWORD": server["PASSWORD"]}
    done = subprocess.run([command, *place, *options], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def beside(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Path]:
    """The file outside the database, for this test alone; the database becomes the one that other tests know."""
    settings.LEDGER = replace(settings.LEDGER, anchor_file=tmp_path / "noted.jsonl")
    yield tmp_path / "witness.json"
    Continuity.objects.update(tables=continuity.tables_of(connection))


@pytest.fixture
def restore(tmp_path: Path) -> Callable[[], Callable[[], None]]:
    """`restore()` makes a backup, and returns what puts it back by the database's own means."""

    def back_up() -> Callable[[], None]:
        folder = tmp_path / "backups"
        folder.mkdir()
        call_command("back_up", folder, stdout=StringIO())
        [backup] = folder.iterdir()

        def put_back() -> None:
            if connection.vendor == "sqlite":
                connection.ensure_connection()
                with contextlib.closing(sqlite3.connect(backup)) as copy:
                    copy.backup(connection.connection)
                return
            name = f"--dbname={connection.settings_dict['NAME']}"
            connection.close()
            with_postgresql("pg_restore", "--clean", "--if-exists", "--single-transaction", name, str(backup))

        return put_back

    return back_up


@pytest.fixture
def paid_after_the_backup(clerk: Clerk, dana: User, restore: Callable[[], Callable[[], None]]) -> Run:
    """A run whose payment was approved before the backup and made after it, so that its outcome is unknown now."""
    sweep()
    run = clerk.run(PAY, says("paid"))
    clerk.decide(clerk.open(run)[0], dana)
    put_back = restore()
    sweep()
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1
    put_back()
    run.refresh_from_db()
    assert run.state == "waiting"
    return run


def codes() -> list[str]:
    return [problem.code for problem in health.look()]


def test_after_a_restore_nothing_runs_before_anybody_has_noticed_it(clerk, paid_after_the_backup):
    assert loop.drive(paid_after_the_backup.pk) is None
    assert clerk.drive(paid_after_the_backup).state == "waiting"
    assert len(effects_of("pay")) == 1
    assert "restored" in codes()


def test_after_a_restore_everything_is_held_until_a_person_releases_it(clerk, mia, paid_after_the_backup):
    run = paid_after_the_backup
    sweep()
    switch = KillSwitch.objects.get()
    assert (switch.scope, switch.engaged_by) == ("all", None)
    assert "not on record" in switch.reason
    sweep()
    assert clerk.drive(run).waiting_for == "switch"
    assert clerk.run(says("new")).waiting_for == "switch"
    assert len(effects_of("pay")) == 1
    assert "restored" in codes()

    # A person who looks finds that it was paid: the run is cancelled, and everything else goes on.
    actions.cancel_run(run.pk, clerk.starter)
    actions.release_switch(switch.pk, mia, "ana was paid; the run is cancelled.")
    sweep()
    assert clerk.run(says("done")).state == "succeeded"
    assert len(effects_of("pay")) == 1
    assert "restored" not in codes()
    told = Event.objects.filter(type__startswith="switch.").order_by("seq")
    assert [(event.type, event.actor.partition(":")[0]) for event in told] == [
        ("switch.engaged", "system"), ("switch.released", "user"),
    ]  # fmt: skip


def test_whoever_looks_after_a_restore_finds_the_banner_and_the_button(client, mia, paid_after_the_backup):
    sweep()
    client.force_login(mia)
    page = client.get("/switches/").content.decode()
    assert "Everything</b>" in page
    assert "not on record" in page
    assert f"/switches/{KillSwitch.objects.get().pk}/release/" in page
    assert client.get("/readyz/").json()["status"] == "degraded"


def test_a_database_that_goes_on_as_it_was_is_never_held(clerk, beside):
    for _ in range(3):
        sweep()
    assert str(Continuity.objects.get().sweeps) in beside.read_text()
    assert clerk.run(says("done")).state == "succeeded"
    assert not KillSwitch.objects.exists()


def test_a_database_behind_what_was_seen_of_it_is_held(clerk, beside):
    sweep()
    Continuity.objects.update(sweeps=0)
    assert loop.drive(clerk.start(says("done")).pk) is None
    sweep()
    assert "earlier state" in KillSwitch.objects.get().reason
    sweep()
    assert KillSwitch.objects.count() == 1


def test_what_was_seen_of_another_database_holds_none(clerk, beside):
    beside.write_text('{"mark": "00000000-0000-0000-0000-000000000001", "sweeps": 900}')
    assert clerk.run(says("done")).state == "succeeded"
    sweep()
    assert not KillSwitch.objects.exists()


def test_a_file_that_cannot_be_understood_holds_everything(clerk, beside):
    beside.write_text("{")
    assert loop.drive(clerk.start(says("done")).pk) is None
    sweep()
    assert KillSwitch.objects.get().engaged_by is None
    assert continuity.witnessed().sweeps == Continuity.objects.get().sweeps


def test_what_holds_everything_is_written_anew_and_a_release_lasts(clerk, mia, beside):
    beside.write_text("")
    sweep()
    actions.release_switch(KillSwitch.objects.get().pk, mia, "The file was empty.")
    sweep()
    assert clerk.run(says("done")).state == "succeeded"
    assert not KillSwitch.objects.exists()


def test_web_processes_of_another_user_may_read_the_file(beside):
    sweep()
    assert beside.stat().st_mode & 0o777 == 0o644


def test_the_file_is_on_the_disk_before_it_takes_the_place_of_the_one_of_before(beside, monkeypatch):
    sweep()
    before, synced, replace_with = beside.read_text(), [], os.replace

    def replaced(draft: str, file: Path) -> None:
        assert synced == [Path(draft).read_text()]
        replace_with(draft, file)

    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.pread(handle, 1000, 0).decode()))
    monkeypatch.setattr(os, "replace", replaced)
    continuity.note()
    assert synced == [before] == [beside.read_text()]


def test_a_file_that_cannot_be_read_holds_everything_and_is_named(clerk, beside):
    sweep()
    beside.unlink()
    beside.mkdir()
    assert loop.drive(clerk.start(says("done")).pk) is None
    assert [problem.code for problem in health.look()] == ["restored"]
    sweep()
    assert f"cannot be read ({beside}): Is a directory" in KillSwitch.objects.get().reason


def test_a_file_that_is_replaced_while_it_is_read_holds_nothing(clerk, beside, monkeypatch):
    sweep()
    fails = [OSError(errno.ESTALE, "Stale file handle")]
    read = Path.read_text

    def once(file: Path, *given: Any, **more: Any) -> str:
        if file == beside and fails:
            raise fails.pop()
        return read(file, *given, **more)

    monkeypatch.setattr(Path, "read_text", once)
    sweep()
    assert (fails, KillSwitch.objects.exists()) == ([], False)


def test_what_cannot_be_noted_leaves_nothing_behind(beside):
    beside.mkdir()
    sweep()
    assert list(beside.parent.iterdir()) == [beside]


def test_tables_that_are_a_copy_are_held(clerk):
    Continuity.objects.update(tables="another/1/2")
    assert loop.drive(clerk.start(says("done")).pk) is None
    sweep()
    assert "restored, copied or moved" in KillSwitch.objects.get().reason


def test_a_switch_of_before_goes_into_the_one_that_holds_everything(clerk, mia):
    actions.engage_switch("all", "", "We move.", mia)
    Continuity.objects.update(tables="another/1/2")
    sweep()
    [switch] = KillSwitch.objects.all()
    assert switch.engaged_by is None
    assert "We move." in switch.reason


def test_a_database_that_was_emptied_is_known_as_a_new_one(clerk, beside):
    sweep()
    Continuity.objects.all().delete()
    run = clerk.start(says("done"))
    assert loop.drive(run.pk) is None
    continuity.begin()
    assert clerk.drive(run).state == "succeeded"
    sweep()
    assert not KillSwitch.objects.exists()
