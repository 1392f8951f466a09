"""A server that goes away and comes back is reconnected to; one that has vanished is detected."""

import copy
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection

from agentapp import connections
from agentapp.celery import app
from agentapp.postgresql.base import DatabaseWrapper
from benchmarks.servers import free_port
from tests.processes import until

KEPT = 8


def options(url: str) -> dict[str, object]:
    found = connections.database(url, pool_size=4)["OPTIONS"]
    assert isinstance(found, dict)
    return found


class TestOptions:
    def test_what_a_url_asks_for_is_kept(self) -> None:
        found = options("postgres://anna@db.example/countersign?sslmode=verify-full&connect_timeout=20")
        assert found["sslmode"] == "verify-full"
        assert found["connect_timeout"] == 20

    def test_a_server_is_not_waited_for_without_end(self) -> None:
        found = options("postgres://anna@db.example/countersign")
        assert found["connect_timeout"] == 5
        assert found["keepalives_idle"] == 30
        assert found["tcp_user_timeout"] == 30_000

    def test_however_long_the_server_was_away_it_is_tried_every_few_seconds(self) -> None:
        """Each wait between two tries is twice as long as the one before, until they begin anew."""
        pool = options("postgres://anna@db.example/countersign")["pool"]
        assert isinstance(pool, dict)
        assert pool["reconnect_timeout"] == 3

    def test_what_sqlite_has_taken_is_stored(self, tmp_path: Path) -> None:
        """Otherwise a power cut loses the last commits, and a call that was begun is begun again."""
        said = str(options(f"sqlite:///{tmp_path / 'db.sqlite3'}")["init_command"])
        with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as database:
            database.executescript(said)
            assert database.execute("PRAGMA synchronous").fetchone() == (2,)
            assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_only_who_asks_for_it_prepares_statements(self) -> None:
        url = "postgres://anna@db.example/countersign"
        assert "prepare_threshold" not in options(url)
        found = connections.database(url, pool_size=4, prepares=True)["OPTIONS"]
        assert isinstance(found, dict)
        assert (found["server_side_binding"], found["prepare_threshold"]) == (True, 2)

    @pytest.mark.postgresql
    @pytest.mark.django_db
    def test_no_statement_is_compiled_before_it_runs(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW jit")
            assert cursor.fetchone() == ("off",)

    def test_a_worker_waits_for_the_broker_for_as_long_as_it_takes(self) -> None:
        """By itself, Celery ends a worker after a hundred tries, which take three quarters of an hour."""
        assert app.conf.broker_connection_max_retries is None

    def test_a_worker_soon_notices_that_its_connection_leads_nowhere(self) -> None:
        """Nothing closes the connections to a server that has vanished. By itself, kombu asks twice a minute."""
        assert connections.broker_options(embedded=False)["health_check_interval"] == 5

    def test_other_databases_are_refused(self) -> None:
        with pytest.raises(ValueError, match="Only sqlite"):
            connections.database("mysql://anna@db.example/countersign", pool_size=4)


@pytest.fixture
def apart(db: None) -> Iterator[DatabaseWrapper]:
    """A connection as this process's threads have it, to the same server, with a pool of its own."""
    made = DatabaseWrapper(copy.deepcopy(settings.DATABASES["default"]), "apart")
    yield made
    made.close()
    made.close_pool()


def idle(apart: DatabaseWrapper) -> set[int]:
    """The server processes behind connections that have been used, and now lie in the pool."""
    apart.pool.open()
    taken = [apart.pool.getconn() for _ in range(KEPT)]
    try:
        return {one.execute("SELECT pg_backend_pid()").fetchone()[0] for one in taken}
    finally:
        for one in taken:
            apart.pool.putconn(one)


def asked(apart: DatabaseWrapper) -> int:
    """The server process that answered. Raises OperationalError if none did."""
    try:
        with apart.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])
    finally:
        apart.close()


@pytest.mark.postgresql
def test_after_a_restart_of_the_server_the_first_to_ask_is_answered(apart: DatabaseWrapper) -> None:
    broken = idle(apart)
    assert len(broken) == KEPT
    with psycopg.connect(**apart.pool.kwargs) as server:  # as a restart of the server would
        for backend in broken:
            server.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])
    assert asked(apart) not in broken


@pytest.mark.postgresql
def test_connections_that_are_well_are_given_out_again(apart: DatabaseWrapper) -> None:
    assert asked(apart) in idle(apart)


@pytest.mark.postgresql
def test_while_the_server_is_known_to_be_away_nobody_waits_for_long(apart: DatabaseWrapper) -> None:
    apart.pool.kwargs["port"], port = free_port(), apart.pool.kwargs["port"]
    assert apart.pool.timeout == connections.DATABASE_CONNECTS_WITHIN_SECONDS
    with pytest.raises(OperationalError, match=r"after 5\.00 sec"):
        asked(apart)
    with pytest.raises(OperationalError, match=r"after 1\.00 sec"):
        asked(apart)
    apart.pool.kwargs["port"] = port
    until(lambda: apart.pool.get_stats()["pool_available"], "the pool to find the server again, though nobody asks")
    assert asked(apart)
    assert apart.pool.timeout == connections.DATABASE_CONNECTS_WITHIN_SECONDS


@pytest.mark.postgresql
def test_whoever_waits_for_a_connection_that_others_use_waits_as_long_as_the_one_before(
    apart: DatabaseWrapper,
) -> None:
    """The server is well. To be told otherwise would take this web server out of use, and give its load to others."""
    apart.pool.open()
    taken = [apart.pool.getconn() for _ in range(apart.pool.max_size)]
    with pytest.raises(OperationalError, match=r"after 5\.00 sec"):
        asked(apart)
    assert apart.pool.timeout == connections.DATABASE_CONNECTS_WITHIN_SECONDS
    for one in taken:
        apart.pool.putconn(one)


def of_a_process(asked: str, **variables: str) -> list[str]:
    """The lines a process of its own prints. It works on the tests' database."""
    database = connection.settings_dict
    server = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    own = {"DATABASE_URL": f"postgres://{server}/{database['NAME']}", "DJANGO_SETTINGS_MODULE": "agentapp.settings"}
    command, environment = [sys.executable, "-c", asked], {**os.environ, **own, **variables}
    told = subprocess.run(command, env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize(("prepares", "count"), [("true", "1"), ("false", "0")])
def test_a_process_that_prepares_has_its_statements_planned_once(prepares: str, count: str) -> None:
    asked = """
import django; django.setup()
from django.contrib.auth.models import Group
from django.db import connection
for key in range(5): list(Group.objects.filter(pk=key))
cursor = connection.cursor()
cursor.execute("SELECT statement FROM pg_prepared_statements")
print(sum("auth_group" in statement for [statement] in cursor.fetchall()))
"""
    assert of_a_process(asked, PREPARED_STATEMENTS=prepares) == [count]


@pytest.mark.postgresql
@pytest.mark.django_db
def test_a_table_that_a_migration_changes_under_a_worker_is_noticed_by_nobody_outside_of_a_transaction() -> None:
    asked = """
import os
import django; django.setup()
import psycopg
from django.db import Error, connection, transaction

def ask():
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM planned WHERE id = %s", [1])
        return len(cursor.fetchall())

def within():
    try:
        with transaction.atomic():
            return ask()
    except Error as error:
        return type(error).__name__

with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
    other.execute("CREATE TABLE planned AS SELECT 1 AS id, 'a'::varchar(10) AS name")
    try:
        print(*(ask() for _ in range(4)))
        other.execute("ALTER TABLE planned ALTER COLUMN name TYPE varchar(11)")
        print(*(ask() for _ in range(4)))
        other.execute("ALTER TABLE planned ALTER COLUMN name TYPE varchar(12)")
        print(*(within() for _ in range(4)))
        print(len(connection.execute_wrappers), connection.connection.info.status.name)
    finally:
        other.execute("DROP TABLE planned")
"""
    outside, changed, within, state = of_a_process(asked, PREPARED_STATEMENTS="true", DATABASE_POOL_SIZE="1")
    assert outside == changed == "1 1 1 1"
    assert within == "OperationalError 1 1 1"  # work under way is given up, as when the database was away
    assert state == "1 OK"


LISTENS_ELSEWHERE = """
import asyncio, os
import django; django.setup()
import psycopg
from django.db import connection
from agentapp import wakeups
from approvals.append_only import ANNOUNCED_ON

async def heard():
    told, listens = [], asyncio.Event()
    def publish(facts):
        told.extend(fact.type for fact in facts)
        listens.set()
    follow = asyncio.create_task(wakeups.listen(publish))
    await asyncio.wait_for(listens.wait(), 10)
    listens.clear()
    with psycopg.connect(os.environ["DATABASE_LISTEN_URL"], autocommit=True) as server:
        server.execute(f"NOTIFY {ANNOUNCED_ON}, 'draft:1'")
        await asyncio.wait_for(listens.wait(), 10)
    follow.cancel()
    return told

print(connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"])
connection.settings_dict["PORT"] = "1"  # whoever stands between passes nothing on
print(*asyncio.run(heard()))
"""


@pytest.mark.postgresql
@pytest.mark.django_db
def test_behind_what_pools_transactions_pages_are_told_by_postgresql_itself_and_no_cursor_is_left_open() -> None:
    database = connection.settings_dict
    server = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    listened_to = f"postgres://{server}/{database['NAME']}"
    assert of_a_process(LISTENS_ELSEWHERE, DATABASE_LISTEN_URL=listened_to) == ["True", " draft"]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db.example/name",
        "postgres://db.example/name?colour=red",
        "postgres://anna:hunter3%@db.example/name",
        "postgres://anna:hunter3@db.example:port/name",
        "postgres://anna:hunter3@db.example:65536/name",
    ],
)
def test_an_address_that_cannot_be_listened_at_stops_the_start_and_is_not_quoted(url: str) -> None:
    with pytest.raises(ValueError, match=r"postgres|library|port") as refused:
        connections.listening(url)
    assert "hunter3" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url", ["postgres://db.example/name", "postgres://[::1]:6432/name", "postgres://a.example:1,b.example/name"]
)
def test_an_address_of_postgresql_is_listened_at_with_its_port_or_without(url: str) -> None:
    assert connections.listening(url)["dbname"] == "name"
