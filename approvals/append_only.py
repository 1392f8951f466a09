"""The database's own guard of the ledger: triggers that refuse update and delete of events.

On PostgreSQL a third trigger announces each event, so that a waiting page hears of it without
polling. SQLite drops a table's triggers when a migration rebuilds the table, so a system check
looks for them and any migration that touches Event ends with `install`.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

TABLE = "approvals_event"
# The PostgreSQL channel on which each event's chain is announced.
ANNOUNCED_ON = "countersign_events"

_SQLITE = {
    f"{TABLE}_no_{verb}": f"CREATE TRIGGER {TABLE}_no_{verb} BEFORE {verb.upper()} ON {TABLE} "
    f"BEGIN SELECT RAISE(ABORT, 'The ledger is append-only.'); END"
    for verb in ("update", "delete")
} | {
    # INSERT OR REPLACE takes the old row away without asking the trigger above.
    f"{TABLE}_no_replace": f"CREATE TRIGGER {TABLE}_no_replace BEFORE INSERT ON {TABLE} "  # noqa: S608
    f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE id = NEW.id OR chain = NEW.chain AND seq = NEW.seq) "
    f"BEGIN SELECT RAISE(ABORT, 'The ledger is append-only.'); END"
}

_POSTGRESQL = {
    f"{TABLE}_no_change": f"CREATE TRIGGER {TABLE}_no_change BEFORE UPDATE OR DELETE ON {TABLE} "
    f"FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
    f"{TABLE}_no_truncate": f"CREATE TRIGGER {TABLE}_no_truncate BEFORE TRUNCATE ON {TABLE} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
    f"{TABLE}_announced": f"CREATE TRIGGER {TABLE}_announced AFTER INSERT ON {TABLE} "
    f"FOR EACH ROW EXECUTE FUNCTION {TABLE}_announce()",
}

_POSTGRESQL_FUNCTIONS = (
    f"CREATE OR REPLACE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'The ledger is append-only.'; END $$",
    f"CREATE OR REPLACE FUNCTION {TABLE}_announce() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN PERFORM pg_notify('{ANNOUNCED_ON}', NEW.chain); RETURN NULL; END $$",
)


def install(connection: BaseDatabaseWrapper) -> None:
    """Put the triggers in place. Safe to repeat."""
    remove(connection)
    with connection.cursor() as cursor:
        for statement in _POSTGRESQL_FUNCTIONS if connection.vendor == "postgresql" else ():
            cursor.execute(statement)
        for statement in _triggers(connection).values():
            cursor.execute(statement)


def remove(connection: BaseDatabaseWrapper) -> None:
    """Take the triggers away: for a rebuild of the table, and between tests."""
    on = f" ON {TABLE}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name in _triggers(connection):
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


def missing(connection: BaseDatabaseWrapper) -> set[str]:
    """The names of the triggers that are not there, or switched off."""
    query = (
        "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgenabled <> 'D'"
        if connection.vendor == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(query, [TABLE])
        return set(_triggers(connection)) - {name for (name,) in cursor.fetchall()}


def _triggers(connection: BaseDatabaseWrapper) -> dict[str, str]:
    return _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE
