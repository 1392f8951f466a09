"""What is raised while the database is away, and plans that it has made for tables as they were."""

from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, InternalError, NotSupportedError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

AWAY = (OperationalError, InterfaceError, InternalError)
"""It cannot be reached, has ended the connection or its transaction, or takes no changes. What was under way is not
saved, nothing is wrong with it, and it can be done again: never a reason to end a run.
"""
# A prepared statement whose result has another type since a migration.
OUTDATED = "0A000"


def renew_plans(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Have a connection that prepares statements make its plans anew where a migration has changed what they are for.

    For the signal that says that a connection was made. Outside of a transaction the statement is asked again, and
    nobody notices. Within one it is over, as if the database had been away; its end makes the connection forget all.
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
