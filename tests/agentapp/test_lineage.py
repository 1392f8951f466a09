"""The runs above a run, and what those below it used up."""

from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import lineage
from agentapp.models import Run
from tests.conftest import call, calls, says
from tests.teams import Team


def costing(cost: float, reply: dict) -> dict:
    return {**reply, "usage": {"cost": cost}}


@pytest.fixture
def family(clerk) -> list[Run]:
    """A run whose agent asked an agent that asked another, from the root down."""
    team = Team(clerk)
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="?")), costing(0.25, says("r")), asks=("ledger",))
    team.may_ask("ledger", costing(0.5, says("l")))
    team.run(calls(call("a", "ask_refunds", input="?")), costing(1, says("done")))
    return list(Run.objects.order_by("depth"))


def test_the_path_of_a_run_goes_from_the_root_to_it(family):
    assert [(asker.agent, asker.run) for asker in lineage.path_of(family[2])] == [
        ("clerk", family[0].pk),
        ("refunds", family[1].pk),
        ("ledger", family[2].pk),
    ]
    assert [asker.agent for asker in lineage.path_of(family[0])] == ["clerk"]


def test_the_cost_of_a_family_is_that_of_all_below_and_none_above(family):
    assert [lineage.cost_of_family(run).cost for run in family] == [Decimal("1.75"), Decimal("0.75"), Decimal("0.5")]
    Run.objects.filter(pk=family[2].pk).update(cost_is_partial=True)
    assert lineage.cost_of_family(family[0]).is_partial


def test_the_root_of_a_family_is_the_run_that_was_started_from_outside(family):
    assert {lineage.root_of(run) for run in family} == {family[0].pk}


def test_the_size_of_a_family_counts_all_below_as_far_as_one_wants_to_know(family):
    assert [lineage.size_of_family(run.pk, 100) for run in family] == [3, 2, 1]
    assert lineage.size_of_family(family[0].pk, 2) == 2


def test_the_cost_of_a_family_takes_one_query_for_each_level(family):
    with CaptureQueriesContext(connection) as queries:
        lineage.cost_of_family(family[0])
    assert len(queries) == 3
