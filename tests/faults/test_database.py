"""PostgreSQL crashes, cuts everybody off, accepts no changes, no connections or no bytes, or has a table locked."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
import pytest

from agentapp.models import Run
from tests.faults.outside import Away
from tests.faults.stage import DATABASE, Stack, Stage, eventually, holds, times
from tests.faults.verdict import at_rest, ended
from tests.faults.world import effects
from tests.processes import until

pytestmark = pytest.mark.faults

FULL_DISK = "could not extend file: No space left on device"
FILL = f"""
CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '{FULL_DISK}' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON %s EXECUTE FUNCTION disk_is_full()
"""


def cut(stage: Stage) -> None:
    """End every connection of the product."""
    stage.statement("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'product'")


@contextmanager
def crashed(stage: Stage) -> Iterator[None]:
    stage.postgres.end(signal.SIGQUIT)
    try:
        yield
    finally:
        stage.postgres.start()


@contextmanager
def no_connections(stage: Stage) -> Iterator[None]:
    stage.statement("ALTER ROLE product CONNECTION LIMIT 0")
    cut(stage)
    try:
        yield
    finally:
        stage.statement("ALTER ROLE product CONNECTION LIMIT -1")


@contextmanager
def read_only(stage: Stage) -> Iterator[None]:
    stage.statement(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    cut(stage)
    try:
        yield
    finally:
        # This database makes the connection that undoes it read-only too, so use another.
        stage.statement(f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only", database="postgres")
        cut(stage)


@contextmanager
def full_disk(stage: Stage, table: str) -> Iterator[None]:
    stage.statement(FILL % table)
    try:
        yield
    finally:
        stage.statement("DROP FUNCTION disk_is_full() CASCADE")


@pytest.mark.parametrize("fault", [crashed, no_connections])
def test_without_a_database_nothing_is_served_and_nothing_is_lost(stack: Stack, conclude, fault: Callable) -> None:
    run_ids, cut_off = [], set()
    for _ in range(times(1, 20)):
        stack.people.decide_everything()
        with _under_way():
            run_ids += stack.people.start_many(4)
        with stack.stage.cutting_off(cut_off), fault(stack.stage):
            until(lambda: stack.readiness() == (503, {"database"}), "/readyz/ to say that the database does not answer")
            assert stack.workers[0].poll() is None
        eventually(lambda: stack.readiness()[0] == 200, "the server to serve again")
    conclude(run_ids, cut_off)
    stack.is_well()


def test_connections_that_are_cut_again_and_again_lose_no_run(stack: Stack, conclude) -> None:
    run_ids, cut_off, cuts = [], set(), times(10, 100)
    stack.people.decide_everything()
    for number in range(cuts):
        if number % 3 == 0:
            run_ids += stack.people.start_many(3)
        before = len(effects())
        until(lambda before=before: len(effects()) > before or _nothing_left(run_ids), "something to happen")
        with stack.stage.cutting_off(cut_off):
            cut(stack.stage)
    conclude(run_ids, cut_off)
    stack.is_well()


def test_a_database_that_takes_no_changes_keeps_what_waits_and_it_is_said(stack: Stack, conclude) -> None:
    run_ids = stack.people.start_many(2)
    eventually(lambda: at_rest(run_ids), "people to be asked")
    with read_only(stack.stage):
        stack.says("database_read_only")
        [approval, *_] = stack.people.insist("dana", "/approvals?state=pending")["items"]
        with pytest.raises(Away):
            stack.people.approve(approval)
    eventually(lambda: stack.readiness()[0] == 200, "the server to serve again")
    assert conclude(run_ids).states == {Run.State.SUCCEEDED: 2}
    stack.is_well()


@pytest.mark.parametrize("table", ["agentapp_run", "approvals_approval"])
def test_a_table_that_somebody_else_holds_makes_everybody_wait_and_loses_nothing(stack, conclude, table) -> None:
    cut_off: set[UUID] = set()
    stack.people.decide_everything()
    with _under_way():
        run_ids = stack.people.start_many(3)
    with stack.stage.cutting_off(cut_off), psycopg.connect(stack.stage.postgres.url(DATABASE)) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = 'product'"
        # Longer than a lease, so that the waiting workers find that they may have lost their runs.
        until(lambda: stack.stage.statement(waits) > [(2,)], "several to wait for the table")
        connection.execute("SELECT pg_sleep(%s)", [times(5, 60)])
    conclude(run_ids, cut_off)
    stack.is_well()


@pytest.mark.parametrize("table", ["approvals_event", "agentapp_step", "approvals_decision"])
def test_a_full_disk_stops_what_is_under_way_and_loses_nothing(stack: Stack, conclude, table: str) -> None:
    """Nothing can be added to one table; each is where another part of a run is written."""
    cut_off: set[UUID] = set()
    stack.people.decide_everything()
    run_ids = stack.people.start_many(8)
    server = stack.stage.postgres
    before = server.logged(FULL_DISK)
    with stack.stage.cutting_off(cut_off), full_disk(stack.stage, table):
        until(lambda: server.logged(FULL_DISK) >= before + 3, "several to be refused")
    conclude(run_ids, cut_off)
    stack.is_well()


@contextmanager
def _under_way() -> Iterator[None]:
    """Start something, and wait until a worker has made progress: that may be before all of it is acknowledged."""
    before = len(effects())
    yield
    until(lambda: len(effects()) > before, "a worker to get on with something")


def _nothing_left(run_ids) -> bool:
    """Whether no worker has anything left to do for these runs: unknown outcomes are for people. Database away: no."""
    return holds(lambda: ended(run_ids))
