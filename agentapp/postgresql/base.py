"""Django looks for the backend in this module."""

import re
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from django.db.backends.postgresql import base

from agentapp.connections import DATABASE_CONNECTS_WITHIN_SECONDS, was_ended
from agentapp.postgresql import LIMIT

_MOST_REMEMBERED = 1024
MOST_MILLISECONDS = 2**31 - 1  # that PostgreSQL takes as a limit


class NumberedCursor(base.CursorMixin, psycopg.RawCursor[Any]):
    """Sends values separately from the statement, as Django's `ServerBindingCursor` does.

    It works out where the values go once for each statement. The library does so every time for statements that are
    long or have many values, as ours are: that took a twentieth of a worker's time for a step.
    """

    def execute(self, query: Any, params: Any = None, **told: Any) -> Any:
        return super().execute(query if params is None else numbered(query), params, **told)

    def executemany(self, query: Any, params_seq: Any, **told: Any) -> None:
        super().executemany(numbered(query), params_seq, **told)


@lru_cache(_MOST_REMEMBERED)
def numbered(statement: str) -> bytes:
    """A Django statement as PostgreSQL takes it: each `%s` becomes `$1` and so on, and each `%%` becomes `%`."""
    places = count(1)
    return re.sub("%[s%]", lambda found: f"${next(places)}" if found[0] == "%s" else "%", statement).encode()


class DatabaseWrapper(base.DatabaseWrapper):
    """Is quick to notice that the server was away, limits how long a statement may take, and turns off just-in-time
    compilation of statements.

    What a page asks about requests and rights has so many parts that PostgreSQL thinks it costly. It is answered in a
    few milliseconds, and compiling would take sixty each time.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """One from the pool that still leads to the server. Raises OperationalError if none is there in time.

        The pool can check connections itself, but it waits before each next one, twice as long each time: after a
        restart of the server it would find nothing usable among a dozen for half a minute.
        """
        pool = self.pool
        if pool is None:
            return super().get_new_connection(conn_params)
        while was_ended(found := super().get_new_connection(conn_params)):
            found.close()  # so that the pool makes another
            pool.putconn(found)
        pool.timeout = DATABASE_CONNECTS_WITHIN_SECONDS
        return found

    def get_connection_params(self) -> dict[str, Any]:
        params = super().get_connection_params()
        if params["cursor_factory"] is base.ServerBindingCursor:
            params["cursor_factory"] = NumberedCursor
        return params

    def _configure_connection(self, connection: Any) -> bool:
        super()._configure_connection(connection)  # type: ignore[misc]
        most = min(self.settings_dict.get(LIMIT, 0) * 1000, MOST_MILLISECONDS)
        with connection.cursor() as cursor:
            cursor.execute(f"SET jit = off{f'; SET statement_timeout = {most:d}' if most else ''}")
        return True
