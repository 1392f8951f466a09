"""Connections to PostgreSQL from outside the pool, for code that may hold one while it waits for an outside service.

The pool is for short work. A few tools that have made a query and then wait for a slow server, or hang, would use it
all up, and nothing could be written any more. SQLite has no pool, so nothing changes there.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from psycopg.pq import TransactionStatus

from agentapp.connections import POSTGRESQL
from agentapp.postgresql import LIMIT
from agentapp.postgresql.base import DatabaseWrapper

# We ask the server to end the statement of a call that was given up; the server may be what does not answer.
CANCELS_WITHIN_SECONDS = 2


class Line:
    """The connection of one thread, which another thread may cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cut = False
        self._made: psycopg.Connection[Any] | None = None
        self._socket: socket.socket | None = None

    def opened(self, connect: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
        """A connection that can be cut from now on. Raises OperationalError: the line has been cut."""
        if not self._is_cut:
            made = connect()
            with self._lock:
                if not self._is_cut:
                    # Our own file descriptor for the socket: the original may be reused as soon as libpq closes it.
                    self._made, self._socket = made, socket.socket(fileno=os.dup(made.fileno()))
                    return made
            made.close()
        raise OperationalError("Nothing is waiting for this call any more, so it has no database connection.")

    @contextmanager
    def closing(self) -> Iterator[None]:
        """While the thread closes its own connection, no other thread touches it."""
        with self._lock:
            try:
                yield
            finally:
                if self._socket is not None:
                    self._socket.close()
                self._made = self._socket = None

    def cut(self) -> None:
        """End the thread's connection, and let it open no other. What was not committed is rolled back.

        The connection belongs to its thread, which may be using it right now. Only its socket is shut down: the thread
        finds the connection broken, and the server ends its side.
        """
        with self._lock:
            self._is_cut = True
            if self._made is None or self._socket is None:
                return
            if self._made.info.transaction_status == TransactionStatus.ACTIVE:
                # A server looks at the socket only when it has something to send, and a statement may wait for long.
                with suppress(psycopg.Error, OSError):
                    self._made.cancel_safe(timeout=CANCELS_WITHIN_SECONDS)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _OwnConnection(DatabaseWrapper):
    """A connection made for one thread. The time that the thread has limits its statements, and nothing else does."""

    def __init__(self, settings_dict: dict[str, Any], alias: str, line: Line) -> None:
        super().__init__(settings_dict, alias)
        self._line = line

    def get_new_connection(self, conn_params: Any) -> Any:
        return self._line.opened(lambda: super(_OwnConnection, self).get_new_connection(conn_params))

    def _close(self) -> None:
        with self._line.closing():
            super()._close()  # type: ignore[misc]


@contextmanager
def outside_of_pool(line: Line) -> Iterator[None]:
    """For the whole life of a thread: its first query opens a connection that is not from the pool."""
    usual = connections.settings[DEFAULT_DB_ALIAS]
    if usual["ENGINE"] == POSTGRESQL:
        options = {name: value for name, value in usual["OPTIONS"].items() if name != "pool"}
        own = {name: value for name, value in usual.items() if name != LIMIT} | {"OPTIONS": options}
        connections[DEFAULT_DB_ALIAS] = _OwnConnection(own, DEFAULT_DB_ALIAS, line)
    try:
        yield
    finally:
        connections.close_all()
