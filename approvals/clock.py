"""The database's clock, which alone decides leases, expiry and order."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import FloatField, Func
from django.db.models.functions import Now as DjangoNow
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

# Nobody means a time further ahead. The last day of the calendar is in the year 10000 in other zones, which databases
# can store but not give back.
FURTHEST = timedelta(days=3653)
# How far two good clocks may differ, and how long an answer that tells the time may take.
WELL_WITHIN, SOON_SECONDS = timedelta(seconds=2), 1.0

_off = timedelta(0)


def now() -> datetime:
    """The time by the database's clock, as this process last heard it: without asking."""
    return datetime.now(UTC) + _off


def off() -> timedelta:
    """How far the database's clock is ahead of this machine's, as last heard. Zero: within two seconds, or unknown."""
    return _off


def asked() -> datetime:
    """The time by the database's clock, which is asked, so that `now` knows it as well."""
    postgresql, asked_at = connection.vendor == "postgresql", time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT STATEMENT_TIMESTAMP()" if postgresql else "SELECT STRFTIME('%Y-%m-%dT%H:%M:%fZ', 'NOW')")
        told = cursor.fetchone()[0]
    moment: datetime = told if postgresql else datetime.fromisoformat(told)
    heard(moment, asked_at)
    return moment


def heard(moment: datetime, asked_at: float) -> None:
    """The database has told the time. `asked_at`: when it was asked, by `time.monotonic`.

    An answer that took long is ignored: it was true before the wait.
    """
    global _off
    if time.monotonic() - asked_at <= SOON_SECONDS:
        off = moment - datetime.now(UTC)
        _off = off if abs(off) > WELL_WITHIN else timedelta(0)


def is_too_far(moment: datetime) -> bool:
    """Whether this end is so far ahead that there is effectively none."""
    return moment > timezone.now() + FURTHEST


class SecondsSince(Func):
    """Seconds since a stored time by the database's clock, as a float."""

    output_field = FloatField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = "((JULIANDAY('NOW') - JULIANDAY(%(expressions)s)) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = "EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP() - %(expressions)s)::double precision"
        return self.as_sql(compiler, connection, template=template, **context)


class Now(DjangoNow):
    """Now, in the form in which both databases store times.

    SQLite compares times as text. Django stores six decimals, or none for a whole second, but its own `Now` gives
    three, so a moment would come before itself.
    """

    moment = "'NOW'"

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = f"REPLACE(STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', {self.moment}) || '000', '.000000', '')"
        return self.as_sql(compiler, connection, template=template, **context)
