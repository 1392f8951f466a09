from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import Error, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

# PostgreSQL's code for a lock that was not granted in time.
NOT_GIVEN = "55P03"
LIMITS = "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)"
HELD = (
    "Something else held a table for {} s (MIGRATION_LOCK_SECONDS), and others wait behind the migration that wants "
    "it, so the migration was given up. It has changed nothing, and those before it stay done. Run `migrate` again; "
    "if it fails again, wait for what has been running longest, such as a backup or an export, or end it: "
    "SELECT pid, xact_start, query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start."
)


class Command(migrate.Command):
    """Django's own command, but it waits no longer for a table than those behind it can wait."""

    def handle(self, *args: Any, **options: Any) -> Any:
        with _not_waiting_long(connections[options["database"]]):
            return super().handle(*args, **options)


@contextmanager
def _not_waiting_long(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Raises CommandError if a lock is not granted in time."""
    # A PgBouncer gives each transaction another connection: what is set here would apply to somebody else's.
    if connection.vendor != "postgresql" or settings.DATABASE_LISTENED_TO is not None:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
        usual = cursor.fetchone()
        # For PostgreSQL, 0 means no limit: to rewrite a table or build an index takes as long as it takes.
        cursor.execute(LIMITS, [f"{settings.MIGRATION_LOCK_SECONDS}s", "0"])
    try:
        yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != NOT_GIVEN:
            raise
        raise CommandError(HELD.format(settings.MIGRATION_LOCK_SECONDS)) from error
    finally:
        # The connection may belong to a pool and live on. One that is gone needs no reset.
        with suppress(Error), connection.cursor() as cursor:
            cursor.execute(LIMITS, usual)
