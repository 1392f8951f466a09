"""Rows that were changed in hand are written as they are, whatever they share."""

from decimal import Decimal
from typing import Any

import pytest

from agentapp.models import ToolExecution
from approvals.clock import Now
from approvals.updating import update_rows
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


def test_each_row_has_its_own(rows: list[ToolExecution]) -> None:
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
    assert update_rows(ToolExecution.objects.all(), rows, FIELDS) == 3
    for name, values in told.items():
        found = [kept(row, name) for row in rows]
        assert found == values
        assert [list(map(type, each.values())) for each in found if isinstance(each, dict)] == [
            list(map(type, each.values())) for each in values if isinstance(each, dict)
        ]
    assert [kept(row, "replay_of_id") for row in rows] == [rows[2].pk, None, None]
    assert [kept(row, "finished_at") == at for row, at in zip(rows, before, strict=True)] == [True, False, True]
