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

# Further ahead nobody means it. The last day of the calendar is in the year 10000 elsewhere, which databases store and
# cannot give back.
FURTHEST = timedelta(days=3653)
# What two clocks that are well may differ by, and how long an answer may take that says what time it is.
WELL_WITHIN, SOON_SECONDS = timedelta(seconds=2), 1.0

_off = timedelta(0)


def now() -> datetime:
    """What the time is by the database's clock, as far as this process has heard of it: without asking."""
    return datetime.now(UTC) + _off


def asked() -> datetime:
    """What the time is by the database's clock, which is asked."""
    postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("SELECT STATEMENT_TIMESTAMP()" if postgresql else "SELECT STRFTIME('%Y-%m-%dT%H:%M:%fZ', 'NOW')")
        moment = cursor.fetchone()[0]
    return moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)


def heard(moment: datetime, asked_at: float) -> None:
    """The database has said what time it is. `asked_at`: since when it was asked, by `time.monotonic`.

    Nothing follows from an answer that took long: it was true before it was waited for.
    """
    global _off
    if time.monotonic() - asked_at <= SOON_SECONDS:
        off = moment - datetime.now(UTC)
        _off = off if abs(off) > WELL_WITHIN else timedelta(0)


def is_too_far(moment: datetime) -> bool:
    """Whether something that somebody lets end then is as good as without an end."""
    return moment > timezone.now() + FURTHEST


class SecondsSince(Func):
    """Seconds of the database's clock since a stored time, as a float."""

    output_field = FloatField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = "((JULIANDAY('NOW') - JULIANDAY(%(expressions)s)) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = "EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP() - %(expressions)s)::double precision"
        return self.as_sql(compiler, connection, template=template, **context)


class Now(DjangoNow):
    """Now, in the form in which both databases keep times.

    SQLite compares times as text. Django stores six decimals, and none for a whole second; its own `Now`
    gives three: the same moment would come before itself.
    """

    moment = "'NOW'"

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        template = f"REPLACE(STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', {self.moment}) || '000', '.000000', '')"
        return self.as_sql(compiler, connection, template=template, **context)
