"""Statements sent separately from their values, and ended if they take too long."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
from django.db import OperationalError, connection

from agentapp.postgresql import LIMIT, limit_statements
from agentapp.postgresql.base import DatabaseWrapper, NumberedCursor, numbered


@pytest.mark.parametrize(
    ("statement", "sent"),
    [
        ("SELECT 1", b"SELECT 1"),
        ("SELECT %s, %s", b"SELECT $1, $2"),
        ("SELECT %s LIKE '50%%' AND %s", b"SELECT $1 LIKE '50%' AND $2"),
        ("SELECT '%%s', %s", b"SELECT '%s', $1"),
        ("SELECT 'ä', %s", "SELECT 'ä', $1".encode()),
        (", ".join(["%s"] * 11), ", ".join(f"${n}" for n in range(1, 12)).encode()),
    ],
)
def test_each_place_of_a_value_has_its_number(statement: str, sent: bytes) -> None:
    assert numbered(statement) == sent


@contextmanager
def alone(**told: Any) -> Iterator[DatabaseWrapper]:
    """A connection to the tests' database that is from no pool, with these settings."""
    made = DatabaseWrapper(deepcopy(connection.settings_dict) | told, alias="alone")
    yield made
    made.close()


@pytest.fixture
def preparing() -> Iterator[DatabaseWrapper]:
    """As in a process that prepares statements."""
    with alone(OPTIONS={"server_side_binding": True, "prepare_threshold": 2}) as made:
        yield made


@pytest.mark.postgresql
@pytest.mark.django_db
class TestAConnectionThatPrepares:
    def test_numbers_the_places_itself(self, preparing: DatabaseWrapper) -> None:
        with preparing.cursor() as cursor:
            assert isinstance(cursor.cursor, NumberedCursor)

    @pytest.mark.parametrize("time", range(4))
    def test_has_values_arrive_where_they_belong(self, preparing: DatabaseWrapper, time: int) -> None:
        with preparing.cursor() as cursor:
            for _ in range(time):
                cursor.execute("SELECT %s::text, %s::int, '100%%'", ["%s", time])
            cursor.execute("SELECT %s::text, %s::int, '100%%'", ["50%", time])
            assert cursor.fetchall() == [("50%", time, "100%")]

    def test_takes_a_statement_without_values_as_it_is(self, preparing: DatabaseWrapper) -> None:
        with preparing.cursor() as cursor:
            cursor.execute("SELECT 'a%', '%s'")
            assert cursor.fetchall() == [("a%", "%s")]

    def test_writes_many_rows(self, preparing: DatabaseWrapper) -> None:
        with preparing.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE many (n int, name text)")
            cursor.executemany("INSERT INTO many VALUES (%s, %s)", [(1, "a"), (2, "%"), (3, "c")])
            cursor.execute("SELECT n, name FROM many ORDER BY n")
            assert cursor.fetchall() == [(1, "a"), (2, "%"), (3, "c")]

    def test_reads_in_parts(self, preparing: DatabaseWrapper) -> None:
        with preparing.chunked_cursor() as cursor:
            cursor.execute("SELECT n FROM generate_series(1, %s) AS n", [5])
            assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
            assert cursor.fetchmany(3) == [(4,), (5,)]


@pytest.fixture
def limited() -> Iterator[DatabaseWrapper]:
    """As of a web process that allows a second."""
    with alone(OPTIONS={}, **{LIMIT: 1}) as made:
        yield made


@pytest.mark.postgresql
@pytest.mark.django_db
class TestALongStatement:
    def test_of_a_page_is_ended(self, limited: DatabaseWrapper) -> None:
        with limited.cursor() as cursor, pytest.raises(OperationalError, match="statement timeout"):
            cursor.execute("SELECT pg_sleep(60)")
        with limited.cursor() as cursor:
            cursor.execute("SELECT 1")  # the connection is as good as before

    def test_is_not_ended_where_there_is_no_limit(self, limited: DatabaseWrapper) -> None:
        limited.settings_dict[LIMIT] = 0
        assert limit(limited) == "0"

    def test_may_take_as_long_as_the_server_knows(self, limited: DatabaseWrapper) -> None:
        limited.settings_dict[LIMIT] = 10**9
        assert limit(limited) == "2147483647ms"


def limit(limited: DatabaseWrapper) -> str:
    with limited.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


class TestOfAProcessThatServesPages:
    @pytest.fixture
    def database(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """Its settings, where it has Redis, and PostgreSQL without a pooler in between."""
        settings.DATABASE_STATEMENT_SECONDS, settings.EMBEDDED, settings.DATABASE_LISTENED_TO = 30, False, None
        copied: dict[str, Any] = deepcopy(settings.DATABASES["default"])
        copied.pop(LIMIT, None)
        monkeypatch.setitem(settings.DATABASES, "default", copied)
        return copied

    def test_statements_are_limited(self, database: dict[str, Any]) -> None:
        limit_statements()
        assert database[LIMIT] == 30

    def test_they_are_not_behind_a_pgbouncer_where_it_would_apply_to_somebody_else(
        self, database: dict[str, Any], settings: Any
    ) -> None:
        settings.DATABASE_LISTENED_TO = {"host": "127.0.0.1"}
        limit_statements()
        assert LIMIT not in database

    def test_they_are_not_if_it_is_the_worker_as_well(self, database: dict[str, Any], settings: Any) -> None:
        settings.EMBEDDED = True
        limit_statements()
        assert LIMIT not in database
