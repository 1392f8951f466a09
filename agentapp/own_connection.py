"""Connections to PostgreSQL that do not come from the pool: for what may hold one while it waits for the outside.

The pool is for work that is over in a moment. A few tools that have asked something and wait for a slow server, or
hang, would take all of it, and nothing could be written any more. SQLite has no pool, and nothing is different there.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg.pq import TransactionStatus

from agentapp.connections import POSTGRESQL

# Ending the statement of whoever was given up on is asked of the server; it may be that which does not answer.
CANCELS_WITHIN_SECONDS = 2


class Line:
    """The connection of one thread, as somebody else may cut it."""

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
                    # A number of our own for the socket: the other is anybody's as soon as libpq lets go of it.
                    self._made, self._socket = made, socket.socket(fileno=os.dup(made.fileno()))
                    return made
            made.close()
        raise OperationalError("Nobody waits for this call any more: it has no connection to the database.")

    @contextmanager
    def closing(self) -> Iterator[None]:
        """While the thread itself closes its connection, nobody else touches it."""
        with self._lock:
            try:
                yield
            finally:
                if self._socket is not None:
                    self._socket.close()
                self._made = self._socket = None

    def cut(self) -> None:
        """End the connection for its thread, and let it make no other. What was not committed is undone.

        The connection itself belongs to its thread, which may be in the middle of using it: only its socket is shut,
        so that the thread finds it broken, and the server ends its side.
        """
        with self._lock:
            self._is_cut = True
            if self._made is None or self._socket is None:
                return
            if self._made.info.transaction_status == TransactionStatus.ACTIVE:
                # A server looks at the socket when it has something to say, and a statement may wait for long.
                with suppress(psycopg.Error, OSError):
                    self._made.cancel_safe(timeout=CANCELS_WITHIN_SECONDS)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _OwnConnection(DatabaseWrapper):
    """Django's connection, made for one thread."""

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
    """For a thread that has just begun, to its end: it connects when it first asks something, and not by the pool."""
    usual = connections.settings[DEFAULT_DB_ALIAS]
    if usual["ENGINE"] == POSTGRESQL:
        options = {name: value for name, value in usual["OPTIONS"].items() if name != "pool"}
        connections[DEFAULT_DB_ALIAS] = _OwnConnection({**usual, "OPTIONS": options}, DEFAULT_DB_ALIAS, line)
    try:
        yield
    finally:
        connections.close_all()
