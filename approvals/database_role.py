"""A PostgreSQL role that runs the product and owns nothing: it can neither change the ledger nor switch its guard off.

The triggers of `append_only` stop everybody, but the owner of a table can drop them. So one role owns the tables and
migrates; another one has these rights, and web processes, workers and beat connect as it.
"""

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from approvals import append_only


class Unsuitable(ValueError):
    """A role that must not run the product; the message says why."""


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give a role what the product needs, and take away more, in the connection's schema. Safe to repeat.

    Call it as the owner of the tables, again after each migration. Raises Unsuitable.
    """
    if connection.vendor != "postgresql":
        raise Unsuitable("Only PostgreSQL has roles.")
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        _check(cursor, role)
        cursor.execute("SELECT current_schema()")
        schema = quote(cursor.fetchone()[0])
        ledger = ", ".join(map(quote, append_only.TABLES))
        for statement in (
            f"GRANT USAGE ON SCHEMA {schema} TO {{}}",
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {{}}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {{}}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {{}}",
            f"REVOKE UPDATE, DELETE ON {ledger} FROM {{}}",
            f"REVOKE DELETE ON {quote(append_only.HEADS)} FROM {{}}",
            "REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {}",
        ):
            cursor.execute(statement.format(quote(role)))


def _check(cursor: CursorWrapper, role: str) -> None:
    cursor.execute(
        "SELECT rolsuper OR rolcreaterole, EXISTS (SELECT 1 FROM pg_class WHERE "
        "relnamespace = current_schema()::regnamespace AND pg_has_role(pg_roles.oid, relowner, 'MEMBER')) "
        "FROM pg_roles WHERE rolname = %s",
        [role],
    )
    found = cursor.fetchone()
    if found is None:
        raise Unsuitable(f"There is no role named {role}.")
    can_become_any, owns = found
    if can_become_any:
        raise Unsuitable(f"{role} is a superuser or makes roles, so no right can be kept from it.")
    if owns:
        raise Unsuitable(f"{role} owns tables or can become their owner, so it could drop what guards the ledger.")
