"""What every test may use. Real databases; only the clock and the outside world are ever replaced."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.backends.base.operations import BaseDatabaseOperations

from agentapp.roles import ensure_roles
from approvals import append_only


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """SQLite in a file, so that threads get connections of their own, as in the product."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        database.setdefault("TEST", {})["NAME"] = str(tmp_path_factory.getbasetemp() / f"test-{worker}.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def _flush_lifts_the_ledgers_guard() -> Iterator[None]:
    """Emptying the tables between tests is the one thing the append-only triggers must let happen."""
    original = BaseDatabaseOperations.execute_sql_flush

    def flush(self: Any, sql_list: list[str]) -> None:
        append_only.remove(self.connection)
        try:
            original(self, sql_list)
        finally:
            append_only.install(self.connection)

    BaseDatabaseOperations.execute_sql_flush = flush  # type: ignore[method-assign]
    yield
    BaseDatabaseOperations.execute_sql_flush = original  # type: ignore[method-assign]


@pytest.fixture
def roles(db: None) -> dict[str, Group]:
    ensure_roles()
    return {group.name: group for group in Group.objects.all()}


def make_user(name: str, *groups: str) -> User:
    first, _, last = name.partition(" ")
    user = User.objects.create_user(first.lower(), f"{first.lower()}@example.test", "correct horse battery")
    user.first_name, user.last_name = first, last
    user.is_staff = "admin" in groups
    user.save()
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


@pytest.fixture
def sam(roles: dict[str, Group]) -> User:
    """Starts runs; decides nothing."""
    return make_user("Sam Operator", "operator")


@pytest.fixture
def dana(roles: dict[str, Group]) -> User:
    """Decides."""
    return make_user("Dana Whitfield", "approver")


@pytest.fixture
def marco(roles: dict[str, Group]) -> User:
    """Decides too: the second pair of eyes, and the other half of every race."""
    return make_user("Marco Reyes", "approver")


@pytest.fixture
def mia(roles: dict[str, Group]) -> User:
    """Manages: reads everything, decides nothing."""
    return make_user("Mia Manager", "manager")


@pytest.fixture
def ada(roles: dict[str, Group]) -> User:
    """Configures."""
    return make_user("Ada Admin", "admin")


@pytest.fixture
def otto(roles: dict[str, Group]) -> User:
    """Signed in, in no group: sees nothing but his own."""
    return make_user("Otto Outsider")


@pytest.fixture
def vendor() -> str:
    return connection.vendor
