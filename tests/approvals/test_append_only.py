import pytest
from django.db import DatabaseError, connection, transaction

from approvals import append_only, ledger
from approvals.append_only import TABLE
from approvals.models import Event

pytestmark = pytest.mark.django_db


@pytest.fixture
def vendor() -> str:
    return connection.vendor


@pytest.fixture
def event() -> Event:
    with ledger.transaction():
        ledger.record("shop", "till.opened", {"by": "dana"})
    return Event.objects.get(chain="shop")


def refused(sql: str, *parameters: object) -> None:
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)


@pytest.mark.parametrize("column", ["body", "hash", "previous_hash", "chain", "type", "actor"])
def test_the_database_refuses_to_change_any_text_of_an_event(event, column):
    refused(f"UPDATE {TABLE} SET {column} = 'forged'")
    event.refresh_from_db()
    assert getattr(event, column) != "forged"


def test_the_database_refuses_to_delete_one_event_or_all(event):
    refused(f"DELETE FROM {TABLE} WHERE seq = %s", event.seq)
    refused(f"DELETE FROM {TABLE}")
    assert Event.objects.count() == 1


def test_django_cannot_change_or_delete_an_event_either(event):
    event.actor = "nobody"
    for change in (event.save, event.delete, Event.objects.all().delete, lambda: Event.objects.update(seq=7)):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()
    assert Event.objects.get().actor == "system"


def test_an_event_cannot_be_replaced_by_inserting_over_it(event, vendor):
    """SQLite's INSERT OR REPLACE deletes without firing the delete trigger; PostgreSQL does it with an update."""
    columns = [field.column for field in Event._meta.concrete_fields]
    chosen = ", ".join("'forged'" if column == "body" else column for column in columns)
    names, source = ", ".join(columns), f"SELECT {chosen} FROM {TABLE} WHERE seq = 1"
    if vendor == "postgresql":
        refused(f"INSERT INTO {TABLE} ({names}) {source} ON CONFLICT (chain, seq) DO UPDATE SET body = EXCLUDED.body")
    else:
        refused(f"INSERT OR REPLACE INTO {TABLE} ({names}) {source}")
        refused(f"REPLACE INTO {TABLE} ({names}) {source.replace('id,', 'lower(hex(randomblob(16))),', 1)}")
    event.refresh_from_db()
    assert event.body != "forged"


def test_truncating_is_refused(event, vendor):
    # SQLite has no TRUNCATE; it deletes every row instead.
    refused(f"TRUNCATE {TABLE}" if vendor == "postgresql" else f"DELETE FROM {TABLE}")
    assert Event.objects.exists()


def test_installing_twice_changes_nothing(event):
    append_only.install(connection)
    append_only.install(connection)
    assert append_only.missing(connection) == set()
    refused(f"DELETE FROM {TABLE}")


def test_a_missing_trigger_is_named():
    assert append_only.missing(connection) == set()
    append_only.remove(connection)
    every = {name for names in append_only._there(connection).values() for name in names}
    assert append_only.missing(connection) == every
    append_only.install(connection)
    assert append_only.missing(connection) == set()


def test_a_trigger_that_is_switched_off_counts_as_missing(event, vendor):
    name = f"{TABLE}_no_change" if vendor == "postgresql" else f"{TABLE}_no_update"
    with connection.cursor() as cursor:
        if vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(f"ALTER TABLE {TABLE} DISABLE TRIGGER {name}")
        else:
            cursor.execute(f"DROP TRIGGER {name}")
    assert append_only.missing(connection) == {name}


def test_a_trigger_of_the_same_name_on_another_table_does_not_count(vendor):
    append_only.remove(connection)
    name = f"{TABLE}_no_change" if vendor == "postgresql" else f"{TABLE}_no_update"
    with connection.cursor() as cursor:
        if vendor == "postgresql":
            cursor.execute(
                f"CREATE TRIGGER {name} BEFORE UPDATE ON approvals_rule FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()"
            )
        else:
            cursor.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON approvals_rule BEGIN SELECT 1; END")
    assert name in append_only.missing(connection)
