"""Rows that were changed in memory are written as they are, whatever they share."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agentapp.models import ToolExecution
from approvals.clock import Now
from approvals.prepared import MOST_PREPARED
from approvals.updating import MOST_KEPT, RowUpdate, update_rows
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db
FIELDS = ["message", "metadata", "failures", "cost", "retry_after", "finished_at", "replay_of", "attempts", "grant"]


@pytest.fixture
def rows(clerk: Clerk) -> list[ToolExecution]:
    clerk.run(
        calls(call("a", "look_up", what="1"), call("b", "look_up", what="2"), call("c", "look_up", what="3")),
        says("Done."),
    )
    return list(ToolExecution.objects.order_by("index"))


def kept(row: ToolExecution, name: str) -> Any:
    return getattr(ToolExecution.objects.get(pk=row.pk), name)


def anew(rows: list[ToolExecution]) -> int:
    return update_rows(ToolExecution.objects.all(), rows, FIELDS)


def prepared_with_others(rows: list[ToolExecution]) -> int:
    """By a statement that has been used with other values before."""
    update = RowUpdate(ToolExecution.objects.all, FIELDS)
    update([ToolExecution.objects.get(pk=row.pk) for row in rows])
    for count in range(1, len(rows)):
        update(rows[:count])
    return update(rows)


@pytest.mark.parametrize("write", [anew, prepared_with_others])
def test_each_row_has_its_own(rows: list[ToolExecution], write: Callable[[list[ToolExecution]], int]) -> None:
    told: dict[str, list[Any]] = {
        "message": ["one", "", "three"],
        "metadata": [{"is": 1}, {"is": True}, {}],
        "failures": [[], [{"status": "a"}], [{"status": "b"}]],
        "cost": [Decimal("0.5"), Decimal(0), Decimal(2)],
        "retry_after": [None, 3, None],
        "attempts": [1, 2, 3],
    }
    for name, values in told.items():
        for row, value in zip(rows, values, strict=True):
            setattr(row, name, value)
    rows[0].replay_of = rows[2]
    before = [row.finished_at for row in rows]
    rows[1].finished_at = Now()
    assert write(rows) == 3
    for name, values in told.items():
        found = [kept(row, name) for row in rows]
        assert found == values
        assert [list(map(type, each.values())) for each in found if isinstance(each, dict)] == [
            list(map(type, each.values())) for each in values if isinstance(each, dict)
        ]
    assert [kept(row, "replay_of_id") for row in rows] == [rows[2].pk, None, None]
    assert [kept(row, "finished_at") == at for row, at in zip(rows, before, strict=True)] == [True, False, True]


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_row_that_is_no_longer_among_them_is_left_as_it_is(rows: list[ToolExecution], asked: int) -> None:
    update = RowUpdate(lambda: ToolExecution.objects.filter(index__gt=0), ["message"])
    for place, row in enumerate(rows):
        row.message = f"changed {place}"
    assert update(rows[:asked]) == asked - 1
    assert kept(rows[0], "message") == ""


def test_what_rows_share_makes_no_end_of_statements(rows: list[ToolExecution]) -> None:
    update = RowUpdate(ToolExecution.objects.all, ["attempts", "finished_at"])
    for row in rows:
        row.finished_at = Now()
    update._prepared = dict.fromkeys([(n,) for n in range(MOST_KEPT)])  # type: ignore[assignment]
    for place, row in enumerate(rows):
        row.attempts = place + 5
    assert update(rows) == 3
    assert [kept(row, "attempts") for row in rows] == [5, 6, 7]
    assert len(update._prepared) == MOST_KEPT


def test_many_rows_are_written_as_well(clerk: Clerk) -> None:
    count = MOST_PREPARED + 2
    clerk.run(calls(*[call(f"c{n}", "look_up", what=str(n)) for n in range(count)]), says("Done."))
    rows = list(ToolExecution.objects.order_by("index"))
    update = RowUpdate(ToolExecution.objects.all, ["message"])
    for row in rows:
        row.message = f"as {row.index}"
    assert update(rows) == count
    assert [row.message for row in ToolExecution.objects.order_by("index")] == [f"as {n}" for n in range(count)]
    assert update([]) == 0
