"""The database's own guard of the ledger: triggers that refuse any update or deletion of events and checkpoints.

The head of a chain cannot go back either. On PostgreSQL another trigger announces each event, so that a waiting page
hears of it without polling. SQLite drops a table's triggers when a migration rebuilds the table. So a system check
looks for them, and any migration that touches one of these tables ends with `install`.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

TABLE = "approvals_event"
HEADS = "approvals_chainhead"
# What two rows cannot share, besides their key.
_PLACES = {
    TABLE: "id = NEW.id OR chain = NEW.chain AND seq = NEW.seq",
    "approvals_checkpoint": "number = NEW.number",
    "approvals_checkpointleaf": "id = NEW.id OR checkpoint_id = NEW.checkpoint_id AND position = NEW.position",
    "approvals_ledgerkey": "key_id = NEW.key_id OR number = NEW.number",
}
TABLES = tuple(_PLACES)
"""Those whose rows stay as they were written."""
# The PostgreSQL channel on which each event's chain is announced.
ANNOUNCED_ON = "countersign_events"

_BACK = (
    "NEW.chain <> OLD.chain OR NEW.seq < OLD.seq OR NEW.seq = OLD.seq AND NEW.hash <> OLD.hash "
    "OR NEW.covered_seq < OLD.covered_seq"
)


def _on_sqlite() -> dict[str, dict[str, str]]:
    """The triggers by name, for each table."""

    def refuse(table: str, name: str, when: str, says: str) -> dict[str, str]:
        return {
            f"{table}_{name}": f"CREATE TRIGGER {table}_{name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{says}'); END"
        }

    never, back = "The ledger is append-only.", "A chain of the ledger only grows: it is append-only."
    found = {
        table: {
            **refuse(table, "no_update", f"UPDATE ON {table}", never),
            **refuse(table, "no_delete", f"DELETE ON {table}", never),
            # INSERT OR REPLACE removes the old row without firing the trigger above.
            **refuse(
                table,
                "no_replace",
                f"INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {place})",  # noqa: S608
                never,
            ),
        }
        for table, place in _PLACES.items()
    }
    found[HEADS] = {
        **refuse(HEADS, "no_way_back", f"UPDATE ON {HEADS} WHEN {_BACK}", back),
        **refuse(HEADS, "no_delete", f"DELETE ON {HEADS}", back),
        **refuse(
            HEADS,
            "no_replace",
            f"INSERT ON {HEADS} WHEN EXISTS (SELECT 1 FROM {HEADS} WHERE chain = NEW.chain AND "  # noqa: S608
            "(seq > NEW.seq OR seq = NEW.seq AND hash <> NEW.hash))",
            back,
        ),
    }
    return found


def _on_postgresql() -> dict[str, dict[str, str]]:
    def trigger(table: str, name: str, when: str, each: str, function: str) -> dict[str, str]:
        sql = f"CREATE TRIGGER {table}_{name} {when} ON {table} FOR EACH {each} EXECUTE FUNCTION {function}()"
        return {f"{table}_{name}": sql}

    found = {
        table: {
            **trigger(table, "no_change", "BEFORE UPDATE OR DELETE", "ROW", f"{TABLE}_refuse"),
            **trigger(table, "no_truncate", "BEFORE TRUNCATE", "STATEMENT", f"{TABLE}_refuse"),
        }
        for table in _PLACES
    }
    found[TABLE] |= trigger(TABLE, "announced", "AFTER INSERT", "ROW", f"{TABLE}_announce")
    found[HEADS] = {
        **trigger(HEADS, "no_way_back", "BEFORE UPDATE", "ROW", f"{HEADS}_forward"),
        **trigger(HEADS, "no_delete", "BEFORE DELETE", "ROW", f"{TABLE}_refuse"),
        **trigger(HEADS, "no_truncate", "BEFORE TRUNCATE", "STATEMENT", f"{TABLE}_refuse"),
    }
    return found


_SQLITE, _POSTGRESQL = _on_sqlite(), _on_postgresql()

_POSTGRESQL_FUNCTIONS = (
    f"CREATE OR REPLACE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'The ledger is append-only.'; END $$",
    f"CREATE OR REPLACE FUNCTION {HEADS}_forward() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN IF {_BACK} THEN RAISE EXCEPTION 'A chain of the ledger only grows: it is append-only.'; END IF; "
    "RETURN NEW; END $$",
    f"CREATE OR REPLACE FUNCTION {TABLE}_announce() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN PERFORM pg_notify('{ANNOUNCED_ON}', NEW.chain); RETURN NULL; END $$",
)


def install(connection: BaseDatabaseWrapper) -> None:
    """Install the triggers of every existing table. Safe to repeat."""
    remove(connection)
    with connection.cursor() as cursor:
        for statement in _POSTGRESQL_FUNCTIONS if connection.vendor == "postgresql" else ():
            cursor.execute(statement)
        for triggers in _there(connection).values():
            for statement in triggers.values():
                cursor.execute(statement)


def remove(connection: BaseDatabaseWrapper) -> None:
    """Drop the triggers: for rebuilding a table, and between tests."""
    with connection.cursor() as cursor:
        for table, triggers in _there(connection).items():
            on = f" ON {table}" if connection.vendor == "postgresql" else ""
            for name in triggers:
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


def missing(connection: BaseDatabaseWrapper) -> set[str]:
    """The names of triggers that are missing or switched off."""
    query = (
        "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'"
        if connection.vendor == "postgresql"
        else "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
    )
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = set(cursor.fetchall())
    return {name for table, names in _there(connection).items() for name in names if (name, table) not in found}


def _there(connection: BaseDatabaseWrapper) -> dict[str, dict[str, str]]:
    """The triggers of the tables that exist: early migrations have fewer tables."""
    guarded = _POSTGRESQL if connection.vendor == "postgresql" else _SQLITE
    query = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid) AND relname LIKE 'approvals%%'"
        if connection.vendor == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'approvals%%'"
    )
    with connection.cursor() as cursor:
        cursor.execute(query, [])
        tables = {name for (name,) in cursor.fetchall()}
    return {table: triggers for table, triggers in guarded.items() if table in tables}
