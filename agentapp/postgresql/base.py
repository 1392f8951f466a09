"""Where Django looks for it."""

import re
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from django.db.backends.postgresql import base

_MOST_REMEMBERED = 1024


class NumberedCursor(base.CursorMixin, psycopg.RawCursor[Any]):
    """Sends values apart from the statement, as Django's `ServerBindingCursor` does.

    Where the values go is found out once for each statement. The library does so each time for those that are long or
    have many values, and ours are: it was a twentieth of what a step costs a worker.
    """

    def execute(self, query: Any, params: Any = None, **told: Any) -> Any:
        return super().execute(query if params is None else numbered(query), params, **told)

    def executemany(self, query: Any, params_seq: Any, **told: Any) -> None:
        super().executemany(numbered(query), params_seq, **told)


@lru_cache(_MOST_REMEMBERED)
def numbered(statement: str) -> bytes:
    """A statement of Django's as PostgreSQL takes it: `%s` as `$1` and so on, and each `%` once."""
    places = count(1)
    return re.sub("%[s%]", lambda found: f"${next(places)}" if found[0] == "%s" else "%", statement).encode()


class DatabaseWrapper(base.DatabaseWrapper):
    """Has no statement compiled before it runs.

    What a page asks about requests and rights has so many parts that PostgreSQL takes it for costly. It is answered in
    some milliseconds, and compiling it would take sixty, anew each time.
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
