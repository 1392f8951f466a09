"""What waits for the outside while holding a connection keeps none from others, and is cut off when given up on."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections, transaction

from agentapp.deadline import DeadlineExceeded, start, within
from agentapp.own_connection import Line, outside_of_pool
from agentapp.postgresql import LIMIT
from tests.processes import until

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def pid() -> int:
    """The server process behind this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        found: int = cursor.fetchone()[0]
    return found


def is_connected(server: psycopg.Connection[Any], backend: int) -> bool:
    return server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [backend]).fetchone() is not None


class Held:
    """A thread that asks the database, does as it is told, and is cut off meanwhile."""

    def __init__(self) -> None:
        self.line, self.has_asked, self.let_go = Line(), threading.Event(), threading.Event()
        self.backend = 0

    def begin(self, then: Callable[[], Any]) -> Any:
        return start(self._work, then)

    def _work(self, then: Callable[[], Any]) -> Any:
        with outside_of_pool(self.line):
            self.backend = pid()
            self.has_asked.set()
            return then()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.let_go.set()


def test_a_call_does_not_ask_through_the_pool(small_pool: Any) -> None:
    own, of_pool = within(20, pid), {pid(), start(pid).result(20)}
    assert own not in of_pool
    assert "pool" not in within(20, lambda: connection.settings_dict["OPTIONS"])
    assert "pool" in connection.settings_dict["OPTIONS"]


def shown(setting: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        return str(cursor.fetchone()[0])


def test_the_time_of_a_call_limits_its_statements_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a web process, which limits its own."""
    monkeypatch.setitem(connections.settings["default"], LIMIT, 30)
    assert within(20, shown, "statement_timeout") == "0"
    assert within(20, shown, "jit") == "off"


def test_the_connection_of_a_call_that_has_answered_is_closed(server: psycopg.Connection[Any]) -> None:
    backend = within(20, pid)
    until(lambda: not is_connected(server, backend), "the connection to be closed")


def test_calls_that_hang_hold_no_connection_after_their_time(small_pool: Any, server: psycopg.Connection[Any]) -> None:
    backends: list[int] = []
    let_go = threading.Event()

    def hang() -> None:
        backends.append(pid())
        let_go.wait(600)

    try:
        for _ in range(3):  # more than the pool has
            with pytest.raises(DeadlineExceeded):
                within(2, hang)
        assert len(backends) == 3
        until(lambda: not any(is_connected(server, backend) for backend in backends), "their connections to end")
        with transaction.atomic():
            assert User.objects.count() == 0
    finally:
        let_go.set()


def test_whoever_comes_back_later_is_refused_and_changes_nothing(held: Held, server: psycopg.Connection[Any]) -> None:
    refused = []

    def write_late() -> None:
        with transaction.atomic():
            User.objects.create(username="early")
            held.has_asked.set()
            held.let_go.wait(60)
            User.objects.create(username="late")

    def come_back() -> None:
        for again in (write_late, write_late, connections.close_all, write_late):
            try:
                again()
            except OperationalError as error:
                refused.append(str(error))

    held.has_asked.clear()
    late = held.begin(come_back)
    assert held.has_asked.wait(20)
    held.line.cut()
    until(lambda: not is_connected(server, held.backend), "its connection to end")
    held.let_go.set()
    late.result(20)
    assert len(refused) == 3
    assert "Nothing is waiting" in refused[-1]
    assert not User.objects.exists()


def test_a_statement_that_takes_long_is_ended_with_its_connection(held: Held, server: psycopg.Connection[Any]) -> None:
    def wait_for_long() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(600)")

    late = held.begin(wait_for_long)
    assert held.has_asked.wait(20)
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    until(lambda: server.execute(asleep, [held.backend]).fetchone(), "the statement to be under way")
    held.line.cut()
    with pytest.raises(OperationalError):
        late.result(20)
    until(lambda: not is_connected(server, held.backend), "its connection to end")


def test_what_is_given_up_on_before_it_has_connected_never_does(held: Held) -> None:
    held.line.cut()
    with pytest.raises(OperationalError, match="Nothing is waiting"):
        held.begin(pid).result(20)


def test_cutting_what_has_ended_does_nothing(held: Held) -> None:
    held.begin(pid).result(20)
    held.line.cut()
    assert User.objects.count() == 0
