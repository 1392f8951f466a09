"""Reads the database as it is at one moment."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def one_moment() -> Iterator[None]:
    """Everything read here is of one moment, and nobody waits for it."""
    if connection.in_atomic_block:
        yield
        return
    # Not Django's own transaction, which on SQLite would keep every writer out.
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if connection.vendor == "postgresql" else "BEGIN DEFERRED"
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute(begin)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
