"""Where Django looks for it."""

from typing import Any

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Has no statement compiled before it runs.

    What a page asks about requests and rights has so many parts that PostgreSQL takes it for costly. It is answered in
    some milliseconds, and compiling it would take sixty, anew each time.
    """

    def _configure_connection(self, connection: Any) -> bool:
        super()._configure_connection(connection)  # type: ignore[misc]
        with connection.cursor() as cursor:
            cursor.execute("SET jit = off")
        return True
