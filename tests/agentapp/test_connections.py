"""A server that goes away and comes back is connected to anew; one that has vanished is found out."""

from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from psycopg_pool import ConnectionPool

from agentapp import connections

KEPT = 3


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

    def test_other_databases_are_refused(self) -> None:
        with pytest.raises(ValueError, match="Only sqlite"):
            connections.database("mysql://anna@db.example/countersign", pool_size=4)


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    """Connections as this process's own pool keeps them, to the same server; each was used, and lies idle."""
    database = settings.DATABASES["default"]
    kept = {"host": database["HOST"], "port": database["PORT"], "user": database["USER"], "dbname": "postgres"}
    kept |= {"password": database["PASSWORD"], "autocommit": True}
    check = connections.nothing_was_said
    with ConnectionPool(kwargs=kept, min_size=KEPT, max_size=KEPT, timeout=10, check=check) as made:
        made.wait(10)
        yield made


@pytest.mark.postgresql
def test_connections_that_broke_while_they_lay_idle_are_not_given_out(pool: ConnectionPool) -> None:
    broken = backends(pool)
    assert len(broken) == KEPT
    with psycopg.connect(**pool.kwargs) as server:  # as a restart of the server would
        for backend in broken:
            server.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])
    assert len(backends(pool) - broken) == KEPT


@pytest.mark.postgresql
def test_connections_that_are_well_are_given_out_again(pool: ConnectionPool) -> None:
    assert backends(pool) == backends(pool)


def backends(pool: ConnectionPool) -> set[int]:
    """The server's process behind each connection, all of them taken at once."""
    taken = [pool.getconn() for _ in range(KEPT)]
    try:
        return {one.execute("SELECT pg_backend_pid()").fetchone()[0] for one in taken}
    finally:
        for one in taken:
            pool.putconn(one)
