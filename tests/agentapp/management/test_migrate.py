"""Migrations while other work goes on: they wait for a table for a while, but not for ever."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

# Adds a column to the credits of the demo shop.
APP, BEFORE, MIGRATION = "demo", "0001_initial", "0002_credit_cancelled"


@pytest.fixture
def held() -> Iterator[None]:
    """Something long, such as a backup, that reads the credits, whose table the migration changes. The server ends it
    if a migration would keep waiting.
    """
    asked = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}
    try:
        with psycopg.connect(**{name: value for name, value in asked.items() if name != "pool"}) as other:
            other.execute("SET idle_in_transaction_session_timeout = '20s'")
            other.commit()
            other.execute("LOCK TABLE demo_credit IN ACCESS SHARE MODE")
            yield
    finally:
        call_command("migrate", APP, verbosity=0)


def limits() -> tuple[str, str]:
    """How long this process's connection waits for a lock, and for a statement."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
        lock, statement = cursor.fetchone()
    return lock, statement


def applied() -> set[Any]:
    return {name for app, name in MigrationRecorder(connection).applied_migrations() if app == APP}


def test_one_that_is_not_given_its_table_is_undone_and_says_what_to_do(held: None, settings: Any) -> None:
    settings.MIGRATION_LOCK_SECONDS = 1
    usual, done = limits(), applied()
    with pytest.raises(CommandError, match=r"Something else held a table for 1 s .* `migrate` again") as given_up:
        call_command("migrate", APP, BEFORE, verbosity=0)
    assert "pg_stat_activity" in str(given_up.value)
    assert MIGRATION in applied() == done
    assert limits() == usual


def test_behind_a_pgbouncer_it_sets_nothing_that_would_be_somebody_elses(settings: Any) -> None:
    settings.MIGRATION_LOCK_SECONDS = 7
    settings.DATABASE_LISTENED_TO = {"host": "127.0.0.1"}
    with CaptureQueriesContext(connection) as asked:
        call_command("migrate", APP, verbosity=0)
    assert not any("lock_timeout" in query["sql"] for query in asked)


def test_one_that_is_given_its_table_leaves_the_connection_as_it_was(settings: Any) -> None:
    settings.MIGRATION_LOCK_SECONDS = 7
    usual = limits()
    call_command("migrate", APP, verbosity=0)
    assert limits() == usual != ("7s", "0")


def test_one_may_take_as_long_as_it_takes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MIGRATION_LOCK_SECONDS = 7
    with connection.cursor() as cursor:  # as an administrator sets it for a role
        cursor.execute("SET statement_timeout = '20s'")
    meanwhile: list[tuple[str, str]] = []
    monkeypatch.setattr(migrate.Command, "handle", lambda self, *args, **options: meanwhile.append(limits()))
    call_command("migrate", APP, verbosity=0)
    assert meanwhile == [("7s", "0")]
    assert limits()[1] == "20s"
    with connection.cursor() as cursor:
        cursor.execute("RESET statement_timeout")
