"""What waits for the outside with a connection in hand keeps none from others."""

from typing import Any

import psycopg
import pytest
from django.db import connection

from agentapp.deadline import start, within
from tests.processes import until

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def pid() -> int:
    """The server's process behind this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        found: int = cursor.fetchone()[0]
    return found


def is_connected(server: psycopg.Connection[Any], backend: int) -> bool:
    return server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [backend]).fetchone() is not None


def test_a_call_does_not_ask_through_the_pool(small_pool: Any) -> None:
    own, of_pool = within(20, pid), {pid(), start(pid).result(20)}
    assert own not in of_pool
    assert "pool" not in within(20, lambda: connection.settings_dict["OPTIONS"])
    assert "pool" in connection.settings_dict["OPTIONS"]


def test_the_connection_of_a_call_that_has_answered_is_closed(server: psycopg.Connection[Any]) -> None:
    backend = within(20, pid)
    until(lambda: not is_connected(server, backend), "the connection to be closed")
