"""What is raised while the database is away, and how to renew query plans that a migration has made out of date."""

from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, InternalError, NotSupportedError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

AWAY = (OperationalError, InterfaceError, InternalError)
"""The database cannot be reached, ended the connection or transaction, or accepts no changes. What was under way is not
saved, but nothing is wrong with it and it can be repeated: never a reason to end a run.
"""
# A migration has changed the result type of a prepared statement.
OUTDATED = "0A000"
# Its time was over, or an administrator has ended it.
GIVEN_UP = "57014"


def was_given_up(error: BaseException) -> bool:
    """Whether PostgreSQL was well, and has ended a statement that took too long."""
    return getattr(error.__cause__, "sqlstate", None) == GIVEN_UP


def renew_plans(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Renew a connection's prepared plans when a migration has changed what they are for.

    For the signal that a connection was made. Outside a transaction the statement is asked again, and nobody notices.
    Within one, the transaction fails as if the database had been away, and its end clears all plans.
    """
    if connection.vendor == "postgresql" and _again not in connection.execute_wrappers:
        connection.execute_wrappers.append(_again)


def _again(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    try:
        return execute(sql, params, many, context)
    except NotSupportedError as error:
        if getattr(error.__cause__, "sqlstate", None) != OUTDATED:
            raise
        connection = context["connection"]
        if connection.in_atomic_block:
            raise OperationalError(str(error)) from error
        connection.connection.execute("DEALLOCATE ALL")
        return execute(sql, params, many, context)
