"""The product runs as a database role that cannot change the ledger, nor switch off what guards it."""

import hashlib
import hmac
import re
import uuid
from base64 import b64decode
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from agentapp import checks, erasing
from approvals import append_only, configuration, ledger
from approvals.database_role import Unsuitable, grant
from approvals.models import Event, Rule
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, says

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]
PAY = calls(call("p", "pay", account="ana", amount=20))


def sql(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def role(clerk: Clerk) -> Iterator[str]:
    """A role that has no rights yet. It is dropped before the tables are emptied for the next test."""
    name = f"countersign_test_{uuid.uuid4().hex[:12]}"  # roles belong to the server, not to one database
    sql(f"CREATE ROLE {name} IN ROLE pg_read_all_stats")
    yield name
    # No connection that is used again by other tests may still be this role.
    connection.close()
    connection.close_pool()
    sql(f"DROP OWNED BY {name}")
    sql(f"DROP ROLE {name}")


@pytest.fixture
def as_role(role: str) -> Iterator[str]:
    """Everything that follows, in any thread and on any connection, has the role's rights."""
    call_command("grant_tables", role, stdout=StringIO())

    def become(connection: BaseDatabaseWrapper, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {role}")

    connection_created.connect(become)
    become(connection)
    yield role
    connection_created.disconnect(become)


def refused(statement: str) -> None:
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), transaction.atomic():
        sql(statement)


def test_runs_are_driven_decided_and_erased(clerk: Clerk, as_role: str, dana: User, ada: User) -> None:
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1
    configuration.save(Rule(name="pays", tool="pay", verdict="ask"), "test")
    erasing.erase("run", str(run.pk), "They asked.", ada, "test")
    run.refresh_from_db()
    assert run.erased_at is not None
    assert ledger.verify()[1] is None
    assert sql("SELECT current_user") == [(as_role,)]


@pytest.mark.parametrize("table", append_only.TABLES)
@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET {column} = {column}", "DELETE FROM {}", "TRUNCATE {} CASCADE", "DROP TABLE {} CASCADE",
     "ALTER TABLE {} DISABLE TRIGGER ALL", "ALTER TABLE {} OWNER TO CURRENT_USER"],
)  # fmt: skip
def test_the_ledger_can_only_grow(as_role: str, table: str, statement: str) -> None:
    [(column,)] = sql(f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum = 1")
    refused(statement.format(table, column=column))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM approvals_chainhead",
        "ALTER TABLE approvals_chainhead DISABLE TRIGGER ALL",
        "CREATE OR REPLACE FUNCTION approvals_event_refuse() RETURNS trigger LANGUAGE plpgsql "
        "AS $$ BEGIN RETURN OLD; END $$",
        "SET session_replication_role = replica",
        "DELETE FROM django_migrations",
    ],
)
def test_nor_is_there_a_way_around(as_role: str, statement: str) -> None:
    refused(statement)


def test_the_owner_of_the_tables_could_do_it(clerk: Clerk) -> None:
    clerk.run(says("done"))
    with transaction.atomic():
        sql("ALTER TABLE approvals_event DISABLE TRIGGER ALL")
        assert Event.objects.all().delete()[0] > 0
        transaction.set_rollback(True)


def test_a_deployment_that_connects_as_somebody_who_could_do_it_is_told(as_role: str, settings: Any) -> None:
    settings.DEBUG = False
    assert checks.database_role_is_kept_from_the_ledger(databases=["default"]) == []
    sql("RESET ROLE")
    [warning] = checks.database_role_is_kept_from_the_ledger(databases=["default"])
    assert "a superuser" in warning.msg
    settings.DEBUG = True
    assert checks.database_role_is_kept_from_the_ledger(databases=["default"]) == []


def test_what_a_migration_adds_needs_the_command_again(as_role: str, role: str) -> None:
    sql("RESET ROLE")
    sql("CREATE TABLE brand_new (id int)")
    try:
        sql(f"SET ROLE {role}")
        refused("SELECT * FROM brand_new")
        sql("RESET ROLE")
        grant(connection, role)
        sql(f"SET ROLE {role}")
        sql("SELECT * FROM brand_new")
    finally:
        sql("RESET ROLE")
        sql("DROP TABLE brand_new")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("ALTER ROLE {} SUPERUSER", "become, a superuser"),
        ("ALTER ROLE {} CREATEROLE", "makes roles"),
        ("CREATE ROLE {}_boss SUPERUSER; GRANT {}_boss TO {}", "can become, a superuser"),
        ("CREATE ROLE {}_maker CREATEROLE; GRANT {}_maker TO {}", "that makes roles"),
        ("ALTER TABLE approvals_comment OWNER TO {}", "owns the database or something in it"),
        ("ALTER FUNCTION approvals_event_refuse OWNER TO {}", "owns the database or something in it"),
        ("ALTER SCHEMA public OWNER TO {}", "owns the database or something in it"),
        (
            "CREATE ROLE {}_other; ALTER TABLE approvals_comment OWNER TO {}_other; GRANT {}_other TO {}",
            "become the owner",
        ),
        ("GRANT pg_write_server_files TO {}", "can write files"),
        ("REVOKE pg_read_all_stats FROM {}", "GRANT pg_read_all_stats TO"),
    ],
)
def test_a_role_that_could_undo_it_is_not_suitable(role: str, made: str, why: str) -> None:
    with transaction.atomic():
        sql(made.replace("{}", role))
        with pytest.raises(Unsuitable, match=why):
            grant(connection, role)
        transaction.set_rollback(True)


def test_a_role_that_does_not_exist_is_named() -> None:
    with pytest.raises(CommandError, match="There is no role named nobody"):
        call_command("grant_tables", "nobody")


@pytest.fixture
def new_role() -> Iterator[str]:
    """The name of a role that nobody has made yet."""
    name = f"countersign_test_{uuid.uuid4().hex[:12]}"
    yield name
    if sql(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        sql(f"DROP OWNED BY {name}")
        sql(f"DROP ROLE {name}")


def signs_in(role: str, password: str) -> bool:
    """Whether the server keeps what only this password makes, as RFC 5803 writes it down."""
    [(kept,)] = sql(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}' AND rolcanlogin")
    rounds, salt, stored = re.fullmatch(r"SCRAM-SHA-256\$(\d+):(.+)\$(.+):.+", kept).groups()
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", "sha256")
    return hmac.compare_digest(hashlib.sha256(key).digest(), b64decode(stored))


def test_a_role_is_made_with_the_password_of_a_variable_and_gets_a_new_one(
    new_role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "it's one")
    call_command("grant_tables", new_role, "--password-from", "DATABASE_PASSWORD", stdout=StringIO())
    assert signs_in(new_role, "it's one")
    with transaction.atomic():
        sql(f"SET LOCAL ROLE {new_role}")
        refused("DELETE FROM approvals_event")
        transaction.set_rollback(True)
    monkeypatch.delenv("DATABASE_PASSWORD")
    (tmp_path / "password").write_text("another\n")
    monkeypatch.setenv("DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    with CaptureQueriesContext(connection) as sent:
        call_command("grant_tables", new_role, "--password-from", "DATABASE_PASSWORD", stdout=StringIO())
    assert signs_in(new_role, "another")
    assert "PASSWORD" in str(sent.captured_queries)
    assert "another" not in str(sent.captured_queries)


def test_without_its_password_no_role_is_made(new_role: str) -> None:
    with pytest.raises(CommandError, match="DATABASE_PASSWORD is not set"):
        call_command("grant_tables", new_role, "--password-from", "DATABASE_PASSWORD")
    assert sql(f"SELECT 1 FROM pg_roles WHERE rolname = '{new_role}'") == []


def test_the_password_of_a_role_that_may_more_is_not_replaced(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "one")
    sql(f"ALTER ROLE {role} SUPERUSER")
    with pytest.raises(CommandError, match="become, a superuser"):
        call_command("grant_tables", role, "--password-from", "DATABASE_PASSWORD")
    assert sql(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'") == [(None,)]
