"""Lets code read the database, and notices if it tries to change something there.

This keeps honest code from writing by mistake. It is not a sandbox: the code can still open its own connection.
"""

from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

_SQLITE_READONLY = 8  # the low byte of SQLite's error code for every such refusal
_PG_READ_ONLY = "25006"


class TriedToWrite(Exception):
    """Code that may only read has tried to change something, and the database refused."""


def reading[T](function: Callable[..., T], *args: Any, seconds: float = 0, **more: Any) -> T:
    """The result of a call during which its connection is read-only; what it opened is always rolled back.

    To be run in its own thread, as `deadline.within` does: on SQLite the connection can do nothing but read meanwhile.
    `seconds`: how long one statement may take, if the database can end it. Raises TriedToWrite.
    """
    try:
        if connection.vendor == "sqlite":
            return _on_sqlite(function, args, more)
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
                if seconds:
                    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{int(seconds * 1000)}"])
            try:
                return function(*args, **more)
            finally:
                transaction.set_rollback(True)
    except Exception as error:
        if _was_a_write(error):
            raise TriedToWrite("It tried to change something, but may only read.") from error
        raise


def _on_sqlite[T](function: Callable[..., T], args: tuple[Any, ...], more: dict[str, Any]) -> T:
    """Opens no transaction: one that begins IMMEDIATE would keep every other writer out."""
    connection.ensure_connection()
    usual = connection.transaction_mode  # type: ignore[attr-defined]
    _pragma("ON")
    connection.transaction_mode = "DEFERRED"  # type: ignore[attr-defined]
    try:
        return function(*args, **more)
    finally:
        connection.transaction_mode = usual  # type: ignore[attr-defined]
        _pragma("OFF")


def _pragma(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA query_only = {value}")


def _was_a_write(error: BaseException) -> bool:
    """Whether a database refused a change, however often its error was re-raised."""
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "sqlite_errorcode", 0)
        if getattr(seen, "sqlstate", "") == _PG_READ_ONLY or code & 0xFF == _SQLITE_READONLY:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
