"""Django looks for the backend in this module."""

import re
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from django.db.backends.postgresql import base

_MOST_REMEMBERED = 1024


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
    """Turns off just-in-time compilation of statements.

    What a page asks about requests and rights has so many parts that PostgreSQL thinks it costly. It is answered in a
    few milliseconds, and compiling would take sixty each time.
    """

    def get_connection_params(self) -> dict[str, Any]:
        params = super().get_connection_params()
        if params["cursor_factory"] is base.ServerBindingCursor:
            params["cursor_factory"] = NumberedCursor
        return params

    def _configure_connection(self, connection: Any) -> bool:
        super()._configure_connection(connection)  # type: ignore[misc]
        with connection.cursor() as cursor:
            cursor.execute("SET jit = off")
        return True
