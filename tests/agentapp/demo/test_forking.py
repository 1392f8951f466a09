"""The shop's runs are forked at every step, and replayed; nothing they did happens twice."""

import uuid

import pytest

from agentapp import actions, loop
from agentapp.actions import Fork
from agentapp.demo import governance_scenarios, opening, scenarios
from agentapp.demo.models import AddressChange, Credit, Email, Refund
from agentapp.models import Run, ToolExecution
from approvals.models import Approval, Rule
from tests import opened

PLAYED = [scenarios.DAMAGED_KETTLE, scenarios.ADDRESS_CHANGE, governance_scenarios.CREDIT_TO_GRANT]
EACH = pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)


@pytest.fixture
def people(transactional_db):
    people = opened.open_shop()
    Rule.objects.update(hold_seconds=0)
    return people


def drive(run):
    """Drive a run as long as it goes on by itself."""
    for _ in range(20):
        while (again := loop.drive(run.pk)) is not None and again.delay == 0:
            pass
        run.refresh_from_db()
        if run.is_final or run.wake_at is None:
            break
    return run


def played(scenario, people):
    """A run whose requests were all approved."""
    run = drive(opening.start(scenario, people["sam"]))
    for approval in Approval.objects.filter(run_id=run.pk, state=Approval.State.PENDING):
        new = actions.NewDecision(
            id=uuid.uuid4(), type="approve", version=approval.version, action_digest=approval.action_digest
        )
        actions.decide(approval.pk, new, people["dana"])
        drive(run)
    assert run.state == Run.State.SUCCEEDED
    return run


def acts():
    """How many calls that change something have begun, apart from those that may be repeated at will."""
    begun = ToolExecution.objects.filter(consequential=True, started_at__isnull=False)
    return begun.exclude(tool__repeatable=True).count()


def effects():
    """Every row that the shop's tools have written."""
    return [list(model.objects.order_by("pk").values_list()) for model in (Refund, Credit, Email, AddressChange)]


@EACH
def test_a_fork_at_any_step_repeats_no_effect_and_is_linked_with_its_origin(scenario, people):
    run = played(scenario, people)
    before = (effects(), acts())
    assert before[1]
    for step in range(1, run.step_count + 1):
        forked = drive(actions.fork_run(run.pk, Fork(step=step, instructions="Be brief."), people["sam"]))
        assert (forked.state, forked.answer) == (run.state, run.answer), f"step {step}"
        assert (forked.retry_of, forked.steps_kept) == (run, step - 1)
        again = drive(actions.fork_run(forked.pk, Fork(step=1), people["sam"]))
        assert (again.state, again.answer) == (run.state, run.answer), f"a fork of the fork at step {step}"
    assert run.retries.count() == run.step_count
    assert (effects(), acts()) == before


@EACH
def test_a_replay_of_a_run_and_of_its_forks_repeats_no_effect_and_ends_as_they_did(scenario, people):
    run = played(scenario, people)
    before = (effects(), acts())
    forks = [drive(actions.fork_run(run.pk, Fork(step=n), people["sam"])) for n in range(1, run.step_count + 1)]
    for each in (run, *forks):
        replay = drive(actions.replay_run(each.pk, people["sam"]))
        assert (replay.state, replay.stop_reason, replay.answer) == (each.state, each.stop_reason, each.answer)
        assert (replay.retry_of, replay.step_count) == (each, each.step_count)
        pairs = zip(calls(each), calls(replay), strict=True)
        assert all(was == now for was, now in pairs), f"{each} from step {each.steps_kept + 1}"
    real = ToolExecution.objects.filter(mocked=False, consequential=True, started_at__isnull=False)
    assert (effects(), real.exclude(tool__repeatable=True).count()) == before


def calls(run):
    rows = ToolExecution.objects.filter(run=run).order_by("step__number", "index")
    return list(rows.values_list("name", "arguments_text", "state", "result_status", "result_text"))


@EACH
def test_a_sandbox_from_any_step_has_no_effect(scenario, people):
    run = played(scenario, people)
    before = (effects(), ToolExecution.objects.filter(mocked=False).count())
    for step in range(1, run.step_count + 1):
        forked = drive(actions.fork_run(run.pk, Fork(step=step, sandbox=True), people["sam"]))
        assert (forked.state, forked.answer) == (run.state, run.answer), f"step {step}"
    assert (effects(), ToolExecution.objects.filter(mocked=False).count()) == before
