"""Inserting rows by a statement composed once gives the same rows as `bulk_create`."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agentapp.models import Step, ToolExecution
from approvals.clock import Now
from approvals.ids import uuid7
from approvals.inserting import RowInsert
from approvals.prepared import MOST_PREPARED
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db
OWN = ("id", "index")


@pytest.fixture
def rows(clerk: Clerk) -> list[ToolExecution]:
    """Calls as a run has made them, two of them entirely different."""
    clerk.run(calls(call("a", "look_up", what="1"), call("b", "nonsense", what="2")), says("Done."))
    return list(ToolExecution.objects.order_by("index"))


def copies(rows: list[ToolExecution], count: int) -> list[ToolExecution]:
    made = []
    for n in range(count):
        values = {name: value for name, value in vars(rows[n % len(rows)]).items() if not name.startswith("_")}
        made.append(ToolExecution(**values | {"id": uuid7(), "index": 10 + n}))
    return made


def stored(row: ToolExecution) -> dict[str, Any]:
    return {k: v for k, v in ToolExecution.objects.filter(pk=row.pk).values()[0].items() if k not in OWN}


@pytest.mark.parametrize("count", [*range(1, MOST_PREPARED + 2)])
def test_they_are_stored_as_they_are_by_one_statement(rows: list[ToolExecution], count: int) -> None:
    add = RowInsert(ToolExecution)
    add(copies(rows, count))
    ToolExecution.objects.filter(index__gte=10).delete()
    made = copies(rows[::-1], count)
    with CaptureQueriesContext(connection) as asked:
        add(made)
    assert len(asked) == 1
    assert [stored(row) for row in made] == [stored(rows[::-1][n % 2]) for n in range(count)]
    assert not any(row._state.adding for row in made)


def test_the_database_says_what_it_is_asked_for(rows: list[ToolExecution]) -> None:
    add = RowInsert(ToolExecution)
    first, second = copies(rows, 2)
    first.proposed_at = Now()
    add([first, second])
    assert stored(second)["proposed_at"] == rows[1].proposed_at
    assert stored(first)["proposed_at"] > rows[0].proposed_at


def test_a_key_that_the_database_gives_is_given(admin_user: User) -> None:
    groups = User.groups.through
    before = groups.objects.count()
    team = admin_user.groups.create(name="team")
    groups.objects.all().delete()
    RowInsert(groups)([groups(user=admin_user, group=team)])
    assert groups.objects.count() == before + 1
    assert list(admin_user.groups.all()) == [team]


def test_none_is_no_statement() -> None:
    with CaptureQueriesContext(connection) as asked:
        RowInsert(Step)([])
    assert not asked.captured_queries


def test_a_row_that_cannot_be_added_leaves_its_transaction_to_be_rolled_back(rows: list[ToolExecution]) -> None:
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            RowInsert(ToolExecution)([rows[0]])
        assert connection.needs_rollback
        transaction.set_rollback(True)
