"""Which evals are compared with each other, and by what."""

from typing import Any

import pytest

from agentapp import evaluating
from agentapp.evals import results, runner, suites
from agentapp.evals.comparing import compare
from agentapp.models import EvalRun, EvalSuite
from agentapp.refused import Refused
from tests.agentapp.evals.conftest import a_case
from tests.conftest import Clerk


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    made = suites.create("desk", "", "test")
    for name in ("one", "two"):
        suites.save_case(made, a_case(name), "test")
    return made


def ran(suite: EvalSuite, **more: Any) -> EvalRun:
    made = results.create(suite, evaluating.chosen(suite), **more)
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def unfinished(suite: EvalSuite, state: str) -> EvalRun:
    """An eval that ran one of two cases."""
    made = results.create(suite, evaluating.chosen(suite))
    claimed = results.claim(made.pk)
    assert claimed is not None
    assert results.keep(claimed, a_case("one"), 1, [])
    if state == "cancelled":
        results.cancel(made.pk, "test")
    made.refresh_from_db()
    assert made.state == state
    return made


@pytest.mark.parametrize(("state", "said"), [("running", "has not finished yet"), ("cancelled", "was cancelled")])
def test_an_eval_that_did_not_finish_is_held_against_none(suite, sam, state, said):
    whole, part = ran(suite), unfinished(suite, state)
    for pair in ((whole, part), (part, whole)):
        with pytest.raises(Refused, match=f"{part.reference} {said}"):
            compare(*pair)
    with pytest.raises(Refused, match=said):
        evaluating.start_eval(suite, sam, baseline=part)
    assert EvalRun.objects.count() == 2


def test_evals_of_two_suites_are_not_held_against_each_other(suite, sam):
    other = suites.create("counter", "", "test")
    suites.save_case(other, a_case("one"), "test")
    here, there = ran(suite), ran(other)
    for pair in ((here, there), (there, here)):
        with pytest.raises(Refused, match="is of the suite"):
            compare(*pair)
    with pytest.raises(Refused, match="is of the suite counter, not of desk"):
        evaluating.start_eval(suite, sam, baseline=there)


def test_figures_are_paired_by_their_names_and_one_of_before_has_not_moved(suite):
    before, after = ran(suite), ran(suite)
    counts = {"part": 1, "whole": 2, "value": 0.5, "low": 0.1, "high": 0.9}
    before.metrics = {"gone": counts, "cost": before.metrics["cost"], "denied_executed": 1}
    after.metrics = {"denied_executed": 0, "stale_executed": 0, "cost": after.metrics["cost"]}
    found = {figure.name: figure for figure in compare(before, after).figures}
    assert set(found) == {"denied_executed", "stale_executed", "cost_total", "cost_p50", "cost_p95"}
    assert (found["denied_executed"].before, found["denied_executed"].after) == (1, 0)
    assert found["denied_executed"].apart
    assert found["stale_executed"].before is None
    assert not found["stale_executed"].apart


def test_the_runs_of_the_first_repeats_are_named(suite):
    suites.save_case(suite, a_case("twice", repeats={"of": 2, "needed": 1}), "test")
    before, after = ran(suite), ran(suite)
    runs = [str(each.results.get(case="twice", repeat=1).run_id) for each in (before, after)]
    [twice] = [each for each in compare(before, after).cases if each.case == "twice"]
    assert [twice.run_before, twice.run_after] == runs
