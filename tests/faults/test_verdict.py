"""The judge of the other fault tests notices problems: each promise is broken by hand here, and it reports so."""

import uuid

import pytest
from django.db import connection, transaction

from agentapp.models import Run
from approvals.clock import Now
from approvals.models import Approval, Decision
from tests.conftest import _unguarded, call, calls, install_tools, says
from tests.faults.verdict import at_rest, ended, judge
from tests.faults.world import effects

SHOP = "tests.faults.shop"


@pytest.fixture
def shop(tmp_path, monkeypatch, clerk, settings):
    """The clerk with the tools of the fault tests."""
    monkeypatch.setenv("WORLD", str(tmp_path / "world.jsonl"))
    settings.TOOL_MODULES = [SHOP]
    clerk.agent.tools.set(install_tools(SHOP).values())
    return clerk


@pytest.fixture
def paid(shop, dana):
    """A run that paid once, after a person had approved it."""
    run = shop.run(calls(call("wire", "wire", item="x")), says("done"))
    [approval] = shop.open(run)
    shop.decide(approval, dana)
    return shop.drive(run)


def problems(run, happened=None, **more):
    return " | ".join(judge([run.pk], effects() if happened is None else happened, **more).problems)


def test_a_run_in_which_everything_is_right_has_no_problems(paid):
    verdict = judge([paid.pk], effects(), acknowledged=[Decision.objects.get().pk])
    assert (verdict.problems, verdict.effects, verdict.states["succeeded"]) == ([], 1, 1)


def test_an_effect_that_happened_twice_is_named(paid):
    [effect] = effects()
    assert "took effect 2 times" in problems(paid, [effect, effect])


def test_an_effect_that_is_missing_is_named(paid):
    assert "the world knows nothing of it" in problems(paid, [])


def test_an_effect_on_other_arguments_is_named(paid):
    [effect] = effects()
    assert "happened to y" in problems(paid, [{**effect, "item": "y"}])


def test_an_effect_without_a_row_is_named(paid):
    [effect] = effects()
    assert "no row says so" in problems(paid, [effect, {**effect, "call": "other"}])


def test_an_effect_under_no_approval_is_named(paid):
    Approval.objects.update(state=Approval.State.APPROVED)
    assert "under no approval, rule or grant" in problems(paid)


def test_a_lost_run_is_named(shop):
    run = shop.start(says("done"))
    assert problems(run) == f"{run.pk} is lost: queued "
    assert not at_rest([run.pk])
    assert not ended([run.pk])


def test_a_run_that_was_acknowledged_and_is_on_no_record_is_named(paid):
    assert judge([paid.pk, uuid.uuid4()], effects()).problems == ["1 runs that were acknowledged are not on record"]


def test_a_run_that_failed_is_named(paid):
    Run.objects.update(state=Run.State.FAILED, stop_message="Something broke.")
    assert "Something broke." in problems(paid)


def test_a_run_that_waits_for_something_nobody_is_shown_is_named(paid):
    Run.objects.update(state=Run.State.WAITING, waiting_for="approval", finished_at=None)
    assert "waits for an approval that nobody is shown" in problems(paid)


def test_a_run_that_waits_for_a_person_is_at_rest_and_no_problem(shop):
    run = shop.run(calls(call("wire", "wire", item="x")), says("done"))
    assert problems(run) == ""
    assert at_rest([run.pk])
    assert not ended([run.pk])


def test_a_run_that_goes_on_because_its_call_has_answered_late_is_not_at_rest(shop):
    run = shop.run(calls(call("wire", "wire", item="x")), says("done"))
    Run.objects.update(waiting_for="outcome")
    assert ended([run.pk])
    Run.objects.update(wake_at=Now())
    assert not ended([run.pk])


def test_a_decision_that_was_acknowledged_and_is_lost_is_named(paid):
    lost = uuid.uuid4()
    assert problems(paid, acknowledged=[lost]) == f"decision {lost} was acknowledged and is lost"


def test_a_request_that_was_decided_twice_is_named(paid, marco):
    again = Decision.objects.get()
    again.pk, again.user = uuid.uuid4(), marco
    again.save(force_insert=True)
    assert "was decided 2 times" in problems(paid)


def test_a_request_that_was_used_and_not_decided_is_named(paid):
    Decision.objects.all().delete()
    assert "nobody decided it" in problems(paid)


def test_an_unknown_outcome_of_a_call_that_nothing_cut_off_is_named(paid):
    paid.executions.update(state="outcome_unknown")
    assert "is unknown, and nothing cut it off" in problems(paid)
    assert "is unknown" not in problems(paid, cut_off=[paid.executions.get().pk])


def test_a_call_that_began_and_whose_beginning_is_not_in_the_ledger_is_named(shop, paid):
    other = shop.run(calls(call("wire", "wire", item="z")), says("done"))
    other.executions.update(started_at=paid.executions.get().started_at, idempotency_key="of-a-test")
    assert "began, and the ledger does not say so" in problems(other)


def test_a_chain_that_was_tampered_with_is_named(paid):
    with transaction.atomic(), _unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_event SET body = replace(body, 'wire', 'Wire') WHERE type = 'tool_call.started'"
        )
    assert "is broken" in problems(paid)
