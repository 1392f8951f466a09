"""What every test may use. Databases are real; only the clock and the outside world are ever replaced."""

import contextlib
import functools
import gc
import os
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.cache import caches
from django.db import connection, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck

from agentapp import actions, contracts, loop
from agentapp.environment import read_ledger
from agentapp.models import Agent, Run, Tool, ToolExecution, ToolSource
from agentapp.roles import ensure_roles
from agentapp.tools import base, python_source
from approvals import append_only, decisions
from approvals.models import Approval
from tests import clerk_tools
from tests.processes import until


def pytest_configure() -> None:
    # The speed of the machine is not a property of the code.
    hypothesis.settings.register_profile("machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    hypothesis.settings.load_profile("machine")
    # The real one is slow on purpose.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Whatever the environment says, because most tests of the runtime replay scripts.
    settings.ALLOW_SCRIPTED_RUNS = True
    # A signing key for the tests alone, and a fresh folder for checkpoints.
    settings.LEDGER = read_ledger(Path(tempfile.mkdtemp(prefix="countersign-tests-")), embedded=True)
    # Tests change rules and tools directly, without the event that announces a change. The cache has tests of its own.
    settings.CONFIGURATION_KEPT_SECONDS = 0
    # Failed sign-ins are counted in the cache. It is emptied after each test, and a Redis would be shared.
    settings.CACHES = {name: {**settings.CACHES["process"], "LOCATION": name} for name in settings.CACHES}
    # As in development: static files are found on request. Otherwise each test client would start by reading them all.
    settings.WHITENOISE_AUTOREFRESH = True
    # Under their source names, whatever has been collected in this folder.
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    # PostgreSQL need not wait for the disk: tests kill workers, not the database. Nor need it plan the same statement
    # again for other values, for tables of a few rows. The same goes for what the tests start.
    os.environ.setdefault("PGOPTIONS", "-c synchronous_commit=off -c plan_cache_mode=force_generic_plan")


# Tests that take seconds each. Every process starts with its share of them, so that none is left with many when the
# others are done: the list of tests is split into one consecutive piece per process.
LONG = (
    "tests/test_production.py", "tests/governance/", "tests/sequences/", "tests/approvals/decisions/test_machine.py",
    "tests/agentapp/demo/test_models.py", "tests/agentapp/test_embedded.py", "tests/agentapp/test_static_files.py",
    "tests/faults/", "tests/agentapp/telemetry/test_embedded_stack.py",
    "tests/agentapp/test_subagents.py", "tests/test_decision_races.py", "tests/agentapp/test_takeover_races.py",
    "tests/test_invariants.py", "tests/e2e/test_worker.py", "tests/agentapp/test_refreshing.py",
    "tests/agentapp/tools/test_mcp_client.py", "tests/agentapp/demo/test_tour.py", "tests/security/test_schema.py",
    "tests/privacy/test_planted.py", "tests/approvals/proof/test_tampering.py",
)  # fmt: skip


STARTING_PROCESSES = ("tests/sequences/", "tests/faults/", "tests/e2e/", "tests/agentapp/management/")


# What asks both databases the same, by Django's own means: pages, the API, drivers, tools, other systems. One of the
# two is enough. Runs, requests, the ledger and the promises are tested on both, and so are queries that differ between
# them; every page is opened on both, and Chromium opens them all on SQLite.
ON_EITHER = (
    "tests/agentapp/console/", "tests/agentapp/admin/", "tests/agentapp/api/", "tests/agentapp/drivers/",
    "tests/agentapp/evals/", "tests/agentapp/importing/", "tests/agentapp/telemetry/", "tests/agentapp/tools/",
    "tests/agentapp/webhooks/",
    "tests/agentapp/test_configuration_file.py", "tests/agentapp/test_mcp_calls.py",
    "tests/agentapp/test_openapi_calls.py", "tests/agentapp/test_refreshing.py", "tests/agentapp/demo/test_evals.py",
    "tests/agentapp/demo/test_models.py", "tests/agentapp/demo/test_tour.py", "tests/aisvs/", "tests/privacy/",
    "tests/red_team/", "tests/security/",
)  # fmt: skip
ON_BOTH = tuple(
    f"tests/agentapp/console/test_{name}"
    for name in ("every_page", "search", "audit", "inbox", "runs", "run_list_filters", "filters", "insights", "focus")
) + tuple(f"tests/agentapp/api/test_{name}" for name in ("approvals", "conversations", "decisions", "events", "runs"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests without a database give the same result on either, so one run is enough. Tests that start processes are not
    recognised here: they say so themselves.
    """
    if item.nodeid.startswith(ON_EITHER) and not item.nodeid.startswith(ON_BOTH):
        item.add_marker("either")
    used = {"db", "transactional_db", "live_server"} & set(getattr(item, "fixturenames", ()))
    named = any(item.get_closest_marker(name) for name in ("django_db", "postgresql", "redis"))
    if not used and not named and not item.nodeid.startswith(STARTING_PROCESSES):
        item.add_marker("apart")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.nodeid.startswith(LONG)]
    others = iter([item for item in items if not item.nodeid.startswith(LONG)])
    piece = len(items) // processes
    shares = [long[number::processes] for number in range(processes)]
    dealt = [[*share, *islice(others, max(0, piece - len(share)))] for share in shares]
    items[:] = [*chain.from_iterable(dealt), *others]


def pytest_collection_finish() -> None:
    """Imported objects stay: the garbage collector need not look through them after every test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def _nothing_is_counted_on() -> Iterator[None]:
    yield
    for cache in caches.all(initialized_only=True):
        cache.clear()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A database for each test process. SQLite uses a file, so that each thread gets its own connection."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        database.setdefault("TEST", {})["NAME"] = str(tmp_path_factory.getbasetemp() / f"test-{worker}.sqlite3")
        # SQLite need not wait for the disk either: every commit would.
        database["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"


# Made once by the migrations, and the same in every test.
KEPT = {"django_migrations", "django_content_type", "auth_permission", "agentapp_continuity"}


def empty_tables() -> None:
    """Delete every row a test has committed, and nothing else: Django's own flush recreates the permissions each time.

    This is the one deletion the ledger's guard must let through.
    """
    deletions = [f"DELETE FROM {connection.ops.quote_name(name)}" for name in tables()]
    with transaction.atomic(), _unguarded(), connection.cursor() as cursor:
        # Foreign keys are not checked meanwhile, so the order is free. PostgreSQL gets all in one round trip.
        for statement in deletions if connection.vendor == "sqlite" else ["; ".join(deletions)]:
            cursor.execute(statement)
    # Some tests remove the guard in order to tamper.
    if append_only.missing(connection):
        append_only.install(connection)


@contextlib.contextmanager
def _unguarded() -> Iterator[None]:
    """Turn triggers off on this connection: recreating them for each test would take longer than the test."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        return
    connection.ensure_connection()
    connection.connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
    try:
        yield
    finally:
        connection.connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, True)


@functools.cache
def tables() -> tuple[str, ...]:
    return tuple(name for name in connection.introspection.table_names() if name not in KEPT)


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: empty_tables())
        # The next test keeps the connection: a new one would have to learn every table again.
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda self: False)
        yield


@pytest.fixture
def one_day() -> None:
    """For figures counted by day: the test must end on the day it begins. Just before midnight it waits."""
    _begin_with(timedelta(seconds=30), "%Y-%m-%d")


@pytest.fixture
def one_hour() -> None:
    """The same for figures counted by the hour."""
    _begin_with(timedelta(seconds=10), "%Y-%m-%d %H")


def _begin_with(left: timedelta, of: str) -> None:
    def is_left() -> bool:
        now = datetime.now(UTC)
        return format(now + left, of) == format(now, of)

    until(is_left, "the next to begin")


@pytest.fixture
def vendor() -> str:
    return connection.vendor


@pytest.fixture
def roles(db: None) -> dict[str, Group]:
    """The roles as `ensure_roles` makes them. The first test of a process calls it; later ones write the same rows."""
    if not _permissions_of:
        ensure_roles()
        groups = {group.name: group for group in Group.objects.all()}
        _permissions_of.update({name: [row.pk for row in group.permissions.all()] for name, group in groups.items()})
        return groups
    with transaction.atomic(), connection.cursor() as cursor:
        made = Group.objects.bulk_create([Group(name=name) for name in _permissions_of])
        groups = {group.name: group for group in made}
        given = [f"({groups[name].pk}, {pk})" for name, pks in _permissions_of.items() for pk in pks]
        # Django takes longer to insert this many rows than most tests take.
        cursor.execute(f"INSERT INTO auth_group_permissions (group_id, permission_id) VALUES {', '.join(given)}")
    return groups


_permissions_of: dict[str, list[int]] = {}
"""What each role may do, as keys of permissions, whose table is never emptied."""


def make_user(name: str, *groups: str) -> User:
    first, _, last = name.partition(" ")
    user = User.objects.create_user(
        first.lower(), f"{first.lower()}@example.test", "correct horse battery",
        first_name=first, last_name=last, is_staff="admin" in groups,
    )  # fmt: skip
    member = User.groups.through
    member.objects.bulk_create(
        member(user_id=user.pk, group_id=pk)
        for pk in Group.objects.filter(name__in=groups).values_list("pk", flat=True)
    )
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
    """Decides too: the second approver, and the other side of every race."""
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
    """Signed in but in no group: sees nothing but his own."""
    return make_user("Otto Outsider")


# --- A clerk: an agent whose tools record what they did -----------------------------------------


def call(id: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    """One call of a scripted reply."""
    return {"id": id, "name": name, "arguments": arguments}


def calls(*items: dict[str, Any], text: str = "") -> dict[str, Any]:
    """One scripted reply that makes calls."""
    return {"text": text, "tool_calls": list(items), "usage": {"input_tokens": 10, "output_tokens": 5}}


def says(text: str) -> dict[str, Any]:
    """One scripted reply that ends the run."""
    return {"text": text, "usage": {"input_tokens": 10, "output_tokens": 5}}


class Clerk:
    """Starts scripted runs and drives them here, without a worker."""

    def __init__(self, agent: Agent, starter: User) -> None:
        self.agent, self.starter = agent, starter

    def start(self, *replies: dict[str, Any], **more: Any) -> Run:
        new = actions.NewRun(agent=self.agent.name, input=more.pop("input", "Do it."), script=list(replies), **more)
        return actions.start_run(new, self.starter)

    def drive(self, run: Run) -> Run:
        """Drive until the run ends or waits for people."""
        while (again := loop.drive(run.pk)) is not None and again.delay == 0:
            pass
        run.refresh_from_db()
        return run

    def run(self, *replies: dict[str, Any], **more: Any) -> Run:
        return self.drive(self.start(*replies, **more))

    def decide(self, approval: Approval, user: User, type: str = "approve", **more: Any) -> decisions.Taken:
        approval.refresh_from_db()
        new = actions.NewDecision(
            id=more.pop("id", uuid.uuid4()),
            type=type,
            version=approval.version,
            action_digest=approval.final_digest or approval.action_digest,
            **more,
        )
        return actions.decide(approval.pk, new, user)

    def open(self, run: Run) -> list[Approval]:
        """The run's pending approvals, in the order of its calls."""
        pending = Approval.objects.filter(run_id=run.pk, state="pending")
        return list(pending.order_by("execution__step__number", "execution__index"))

    def execution(self, run: Run, call_id: str) -> ToolExecution:
        return ToolExecution.objects.get(run=run, call_id=call_id)


def install_tools(module: str) -> dict[str, Tool]:
    """Rows for a module's tools, with the safety settings each declares."""
    source, _ = ToolSource.objects.get_or_create(name=module.replace(".", "-"), location=module)
    rows = [
        Tool(
            source=source,
            name=declared.name,
            **contracts.first_safety_columns(declared) | contracts.contract_columns(declared),
        )
        for declared in python_source.modules()[module]
    ]
    return {row.name: row for row in Tool.objects.bulk_create(rows)}


@pytest.fixture
def clerk(transactional_db: None, settings: Any, sam: User) -> Clerk:
    """An agent with every tool of `clerk_tools`, and Sam, who starts its runs. Decisions take effect at once."""
    clerk_tools.forget()
    settings.TOOL_MODULES = ["tests.clerk_tools"]
    settings.ALLOW_SCRIPTED_RUNS = True
    settings.UNDO_HOLD_SECONDS = 0
    with transaction.atomic():
        agent = Agent.objects.create(name="clerk", instructions="Be exact.", driver="scripted", max_iterations=50)
        tools = install_tools("tests.clerk_tools").values()
        through = Agent.tools.through
        through.objects.bulk_create(through(agent_id=agent.pk, tool_id=tool.pk) for tool in tools)
    return Clerk(agent, sam)


@pytest.fixture
def offer(clerk: Clerk, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Tool]]]:
    """`offer(tool, …)`: give the clerk tools that a test defines. Returns their rows by name."""

    def make(*tools: base.Tool) -> dict[str, Tool]:
        module = ModuleType("tools_of_a_test")
        vars(module).update({tool.name: tool for tool in tools})
        monkeypatch.setitem(sys.modules, module.__name__, module)
        _forget_tools()
        settings.TOOL_MODULES = ["tests.clerk_tools", module.__name__]
        rows = install_tools(module.__name__)
        clerk.agent.tools.add(*rows.values())
        return rows

    yield make
    _forget_tools()


def _forget_tools() -> None:
    python_source._by_name.cache_clear()
    python_source._tools_of.cache_clear()
