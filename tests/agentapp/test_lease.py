"""Runs keep their lease while their work takes long, whatever else waits for the database."""

import threading
import uuid
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User

from agentapp import lease, runs
from agentapp.deadline import start
from agentapp.models import Run
from agentapp.state import RunState
from agentapp.tools.base import tool
from tests.conftest import Clerk, call, calls, says
from tests.processes import until

ASKED = threading.Semaphore(0)
LET_GO = threading.Event()


@tool(effect="read", timeout=60, max_attempts=1)
def ask_slowly(number: int) -> str:
    """Ask the database, and then somebody who is slow."""
    User.objects.count()
    ASKED.release()
    LET_GO.wait(60)
    return str(number)


@pytest.fixture(autouse=True)
def _renewed_often(settings: Any) -> None:
    settings.LEASE_SECONDS = 1
    LET_GO.clear()


def lease_of(server: psycopg.Connection[Any], run: Run) -> Any:
    found = server.execute("SELECT lease_until FROM agentapp_run WHERE id = %s", [run.pk]).fetchone()
    return found and found[0]


def held(clerk: Clerk) -> RunState:
    claimed = runs.claim(clerk.start(says("done")).pk)
    assert claimed is not None
    return RunState.load(claimed)


@pytest.mark.postgresql
def test_tools_that_have_asked_the_database_and_wait_keep_no_lease_from_being_renewed(
    clerk: Clerk, offer: Any, small_pool: Any, server: psycopg.Connection[Any]
) -> None:
    offer(ask_slowly)
    run = clerk.start(calls(call("a", "ask_slowly", number=1), call("b", "ask_slowly", number=2)), says("done"))
    driver = start(clerk.drive, run)
    try:
        assert ASKED.acquire(timeout=20)
        assert ASKED.acquire(timeout=20)
        for _ in range(2):
            before = lease_of(server, run)
            until(lambda before=before: lease_of(server, run) > before, "the lease to be renewed")
    finally:
        LET_GO.set()
    assert driver.result(20).state == "succeeded"


@pytest.mark.postgresql
def test_a_run_whose_row_somebody_keeps_does_not_keep_others_from_being_renewed(
    clerk: Clerk, server: psycopg.Connection[Any], other_server: psycopg.Connection[Any]
) -> None:
    kept, other = held(clerk), held(clerk)
    with lease.kept(kept), lease.kept(other), other_server.transaction():
        other_server.execute("SELECT 1 FROM agentapp_run WHERE id = %s FOR UPDATE", [kept.run.pk])
        unchanged = lease_of(server, kept.run)
        for _ in range(3):
            before = lease_of(server, other.run)
            until(lambda before=before: lease_of(server, other.run) > before, "the other lease to be renewed")
        assert lease_of(server, kept.run) == unchanged
        other_server.execute("SELECT 1")  # the row was locked all the time
    assert not kept.cancellation.pause(0)


@pytest.mark.postgresql
def test_a_lease_is_renewed_again_when_its_row_is_free(
    clerk: Clerk, server: psycopg.Connection[Any], other_server: psycopg.Connection[Any]
) -> None:
    kept, other = held(clerk), held(clerk)
    with lease.kept(kept), lease.kept(other):
        with other_server.transaction():
            other_server.execute("SELECT 1 FROM agentapp_run WHERE id = %s FOR UPDATE", [kept.run.pk])
            before, unchanged = lease_of(server, other.run), lease_of(server, kept.run)
            until(lambda: lease_of(server, other.run) > before, "the other lease to be renewed")
        until(lambda: lease_of(server, kept.run) > unchanged, "the lease to be renewed")


def test_only_the_run_whose_lease_is_lost_is_told(clerk: Clerk) -> None:
    lost, well = held(clerk), held(clerk)
    with lease.kept(lost), lease.kept(well):
        Run.objects.filter(pk=lost.run.pk).update(lease_token=uuid.uuid4())
        assert lost.cancellation.pause(20)
        before = Run.objects.get(pk=well.run.pk).lease_until
        until(lambda: Run.objects.get(pk=well.run.pk).lease_until > before, "the other lease to be renewed")
        assert not well.cancellation.pause(0)


def test_who_renews_leases_ends_with_the_last_of_them(clerk: Clerk) -> None:
    one, other = held(clerk), held(clerk)
    with lease.kept(one), lease.kept(other):
        before = Run.objects.get(pk=one.run.pk).lease_until
        until(lambda: Run.objects.get(pk=one.run.pk).lease_until > before, "a lease to be renewed")
        assert sum(thread.name == "leases" for thread in threading.enumerate()) == 1
    until(lambda: not any(thread.name == "leases" for thread in threading.enumerate()), "the thread to end")
