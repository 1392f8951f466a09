"""A PostgreSQL role that runs the product and owns nothing: it can neither change the ledger nor switch its guard off.

The triggers of `append_only` stop everybody, but the owner of a table can drop them. So one role owns the tables and
migrates; another one has these rights, and web processes, workers and beat connect as it.
"""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.sql import SQL, Identifier, Literal

from approvals import append_only

STATS = "GRANT pg_read_all_stats TO {}"


class Unsuitable(ValueError):
    """A role that must not run the product; the message says why."""


def make(connection: BaseDatabaseWrapper, role: str, password: str) -> None:
    """Make a role that may connect with this password, if there is none; otherwise give it this password.

    Call it as a superuser, or as a role that makes roles and may grant pg_read_all_stats. Raises Unsuitable.
    """
    _check_vendor(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        is_new = cursor.fetchone() is None
        if not is_new:
            _check(cursor, role)  # nobody else's password is replaced by mistake
        server: Any = connection.connection
        # The server logs statements, so it gets only what it would keep of the password.
        kept = server.pgconn.encrypt_password(password.encode(), role.encode()).decode()
        name = Identifier(role)
        if is_new:
            cursor.execute(SQL("CREATE ROLE {}").format(name).as_string(server))
            cursor.execute(STATS.format(connection.ops.quote_name(role)))
        cursor.execute(SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, Literal(kept)).as_string(server))


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give a role what the product needs, and take away more, in the connection's schema. Safe to repeat.

    Call it as the owner of the tables, again after each migration. Raises Unsuitable.
    """
    _check_vendor(connection)
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        _check(cursor, role)
        cursor.execute("SELECT current_schema()")
        schema = quote(cursor.fetchone()[0])
        ledger = ", ".join(map(quote, append_only.TABLES))
        for statement in (
            f"REVOKE ALL ON SCHEMA {schema} FROM {{}}",
            f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
            f"GRANT USAGE ON SCHEMA {schema} TO {{}}",
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {{}}",
            f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {{}}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {{}}",
            # Of a sequence, backups read where it stands.
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {{}}",
            f"REVOKE UPDATE, DELETE ON {ledger} FROM {{}}",
            f"REVOKE DELETE ON {quote(append_only.HEADS)} FROM {{}}",
            "REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {}",
        ):
            cursor.execute(statement.format(quote(role)))


def unsuited(connection: BaseDatabaseWrapper) -> str:
    """Why the role that this process connects as should not run the product. Empty if it may, and on SQLite."""
    if connection.vendor != "postgresql":
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        try:
            _check(cursor, cursor.fetchone()[0])
        except Unsuitable as unsuitable:
            return str(unsuitable)
    return ""


def _check_vendor(connection: BaseDatabaseWrapper) -> None:
    if connection.vendor != "postgresql":
        raise Unsuitable("Only PostgreSQL has roles.")


# What else a role is a member of counts as its own: it can become any of them.
_SUITED = """
WITH others AS (SELECT * FROM pg_roles WHERE pg_has_role(%s, oid, 'MEMBER')),
here AS (SELECT oid, nspowner FROM pg_namespace WHERE oid = current_schema()::regnamespace),
owners AS (
    SELECT relowner FROM pg_class JOIN here ON relnamespace = here.oid
    UNION SELECT proowner FROM pg_proc JOIN here ON pronamespace = here.oid
    UNION SELECT nspowner FROM here
    UNION SELECT datdba FROM pg_database WHERE datname = current_database()
)
SELECT
    EXISTS (SELECT 1 FROM others WHERE rolsuper OR rolcreaterole),
    EXISTS (SELECT 1 FROM others WHERE oid IN (SELECT relowner FROM owners)),
    EXISTS (SELECT 1 FROM others WHERE rolname IN ('pg_write_server_files', 'pg_execute_server_program')),
    EXISTS (SELECT 1 FROM others WHERE rolname = 'pg_read_all_stats')
"""


def _check(cursor: CursorWrapper, role: str) -> None:
    cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
    if cursor.fetchone() is None:
        raise Unsuitable(f"There is no role named {role}.")
    cursor.execute(_SUITED, [role])
    can_become_any, owns, writes_files, sees_others = cursor.fetchone()
    if can_become_any:
        raise Unsuitable(
            f"{role} is, or can become, a superuser or a role that makes roles: nothing can be kept from it."
        )
    if owns:
        raise Unsuitable(
            f"{role} owns the database or something in it, or can become the owner: it could drop the guard."
        )
    if writes_files:
        raise Unsuitable(f"{role} can write files or start programs on the database's machine.")
    if not sees_others:
        raise Unsuitable(f"{role} must see which transactions are open, or webhooks miss events: {STATS.format(role)}")
