"""The demo's shop, open: the first test of a process opens it, later ones write the rows that there were then."""

from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction

from agentapp.demo import opening
from tests.conftest import tables

_rows: dict[str, tuple[list[str], list[Any]]] = {}
"""By table: its columns, and what was in it once the shop was open."""


def open_shop() -> dict[str, User]:
    """What `opening.open_shop` does in a thousand statements, on empty tables. Returns the people by name."""
    if not _rows:
        people = opening.open_shop()
        _read()
        return people
    with transaction.atomic(), connection.cursor() as cursor:
        for table, (columns, rows) in _rows.items():
            names = ", ".join(map(connection.ops.quote_name, columns))
            places = ", ".join(["%s"] * len(columns))
            cursor.executemany(f"INSERT INTO {connection.ops.quote_name(table)} ({names}) VALUES ({places})", rows)
    return {user.username: user for user in User.objects.all()}


def _read() -> None:
    with connection.cursor() as cursor:
        for table in tables():
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            if rows := cursor.fetchall():
                _rows[table] = ([column[0] for column in cursor.description], rows)
