"""A database that is away, or accepts no changes, ends no run: work under way is done again when it is back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import InterfaceError, InternalError, OperationalError, connection
from django.utils import timezone

from agentapp import loop
from agentapp.models import Run
from agentapp.sweep import sweep
from tests.conftest import Clerk, call, calls, says

# What a worker writes once the model has answered.
STEP = 'INSERT INTO "agentapp_step"'


def taken_up_again(clerk: Clerk, run: Run) -> Run:
    """What happens when the database is back: the lease expires, and a sweep finds the run."""
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert run.pk in sweep()
    return clerk.drive(run)


@contextmanager
def failing(error: Exception, at: str) -> Iterator[None]:
    """Every statement that begins like this fails, as the database would report it."""

    def fail(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(at):
            raise error
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail):
        yield


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("server closed the connection unexpectedly"),
        InterfaceError("the connection is closed"),
        InternalError("cannot execute INSERT in a read-only transaction"),
        InternalError("terminating connection due to idle-in-transaction timeout"),
        InternalError("current transaction is aborted"),
    ],
    ids=str,
)
def test_whatever_it_says_the_run_goes_on_later(clerk: Clerk, error: Exception) -> None:
    run = clerk.start(calls(call("a", "look_up", what="order")), says("done"))
    with failing(error, at=STEP), pytest.raises(type(error)):
        loop.drive(run.pk)
    run.refresh_from_db()
    assert run.state == "running"
    assert taken_up_again(clerk, run).state == "succeeded"


@pytest.mark.postgresql
def test_one_that_takes_no_changes_for_a_while_ends_no_run(clerk: Clerk) -> None:
    def replica(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        """PostgreSQL itself refuses, as if a replica had replaced the primary."""
        if sql.startswith(STEP):
            context["cursor"].cursor.execute("SET TRANSACTION READ ONLY")
        return execute(sql, params, many, context)

    run = clerk.start(calls(call("a", "look_up", what="order")), says("done"))
    with connection.execute_wrapper(replica), pytest.raises(InternalError, match="read-only transaction"):
        loop.drive(run.pk)
    run.refresh_from_db()
    assert run.state == "running"
    assert taken_up_again(clerk, run).state == "succeeded"
