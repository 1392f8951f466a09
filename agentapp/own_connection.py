"""Connections to PostgreSQL that do not come from the pool: for what may hold one while it waits for the outside.

The pool is for work that is over in a moment. A few tools that have asked something and wait for a slow server, or
hang, would take all of it, and nothing could be written any more. SQLite has no pool, and nothing is different there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.postgresql.base import DatabaseWrapper


@contextmanager
def outside_of_pool() -> Iterator[None]:
    """For a thread that has just begun, to its end: it connects when it first asks something, and not by the pool."""
    usual = connections.settings[DEFAULT_DB_ALIAS]
    if usual["ENGINE"] == "django.db.backends.postgresql":
        options = {name: value for name, value in usual["OPTIONS"].items() if name != "pool"}
        connections[DEFAULT_DB_ALIAS] = DatabaseWrapper({**usual, "OPTIONS": options}, DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connections.close_all()
