import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import runs
from agentapp.messages import Reply, StopSignal, ToolCall, Usage
from agentapp.models import Run, Step
from agentapp.runs import LeaseLost
from approvals import ledger
from tests.races import race
from tests.rows import a_claimed_run, a_run, a_step, events, within_transaction

pytestmark = pytest.mark.django_db

State = Run.State
LONG_AGO = timedelta(days=1)
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def told(run: Run) -> list[str]:
    return events(ledger.run_chain(run.pk))


def record(run: Run, token: uuid.UUID, reply: Reply | None = None) -> Step | None:
    now = timezone.now()
    return within_transaction(runs.record_step, run, token, reply or Reply(text="I look."), [], now, now)


def let_the_lease_run_out(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - LONG_AGO)


def parked(wake_at=None) -> Run:
    run, token = a_claimed_run()
    within_transaction(runs.park, run, token, "approval", wake_at)
    run.refresh_from_db()
    return run


def finished(run: Run) -> bool:
    return within_transaction(runs.finish, run, State.SUCCEEDED, StopSignal("completed", ""), "Done.")


# --- Claiming ----------------------------------------------------------------------------------


def test_a_new_run_is_queued_by_its_starter(sam):
    run = a_run(sam)
    run.refresh_from_db()
    assert (run.state, run.step_count, run.lease_token) == (State.QUEUED, 0, None)
    assert abs(run.created_at - timezone.now()) < timedelta(minutes=1)
    assert told(run) == ["run.queued"]
    assert ledger.Event.objects.get().actor == f"user:{sam.pk}:sam"


def test_claiming_takes_a_lease_that_the_database_times(settings):
    settings.LEASE_SECONDS = 100
    run, token = a_claimed_run()
    assert (run.state, run.lease_token) == (State.RUNNING, token)
    assert run.lease_until - run.started_at == timedelta(seconds=100)
    assert told(run) == ["run.queued", "run.claimed"]


def test_a_run_that_is_held_is_not_claimed():
    run, token = a_claimed_run()
    assert runs.claim(run.pk) is None
    run.refresh_from_db()
    assert run.lease_token == token
    assert told(run) == ["run.queued", "run.claimed"]


def test_a_lease_that_ran_out_can_be_taken_over_and_the_start_stays():
    run, token = a_claimed_run()
    started = run.started_at
    let_the_lease_run_out(run)
    again = runs.claim(run.pk)
    assert again is not None
    assert again.lease_token not in (None, token)
    assert again.started_at == started


def test_a_waiting_run_is_claimed_only_when_it_was_woken():
    run = parked()
    assert runs.claim(run.pk) is None
    within_transaction(runs.wake, run, timezone.now() + LONG_AGO)
    assert runs.claim(run.pk) is None
    within_transaction(runs.wake, run, timezone.now() - LONG_AGO)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert (claimed.waiting_for, claimed.wake_at) == ("", None)


def test_a_planned_waking_can_be_taken_back():
    run = parked(timezone.now() - LONG_AGO)
    within_transaction(runs.wake, run, None)
    assert runs.claim(run.pk) is None


def test_a_released_run_is_claimed_when_its_delay_is_over():
    run, token = a_claimed_run()
    runs.release(run, token, "The model is busy. \ud800\x00", delay=60, failed=True)
    assert runs.claim(run.pk) is None
    Run.objects.update(wake_at=timezone.now() - LONG_AGO)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.model_failures == 1
    runs.release(claimed, claimed.lease_token, "Its time slice is over.")
    assert runs.claim(run.pk) is not None


@pytest.mark.parametrize("state", Run.FINAL)
def test_a_run_that_has_ended_is_not_claimed(state):
    run, _ = a_claimed_run()
    assert within_transaction(runs.finish, run, state, StopSignal("completed", ""))
    assert runs.claim(run.pk) is None


def test_a_run_that_is_not_there_is_not_claimed():
    assert runs.claim(uuid.uuid4()) is None


@pytest.mark.django_db(transaction=True)
def test_of_twelve_workers_one_claims_a_run():
    for _ in range(5):
        run = a_run()
        results = race(*[lambda pk=run.pk: runs.claim(pk)] * 12)
        assert [type(result) for result in results if result is not None] == [Run]
        assert told(run) == ["run.queued", "run.claimed"]


# --- Leases ------------------------------------------------------------------------------------


def test_renewing_makes_the_lease_longer(settings):
    run, token = a_claimed_run()
    let_the_lease_run_out(run)
    assert runs.renew(run.pk, token)
    assert runs.claim(run.pk) is None
    assert not runs.renew(run.pk, uuid.uuid4())


@pytest.mark.parametrize("lost", ["taken over", "parked", "released", "finished", "never held"])
def test_a_worker_that_lost_its_lease_writes_nothing(lost):
    run, token = a_claimed_run()
    if lost == "taken over":
        let_the_lease_run_out(run)
        assert runs.claim(run.pk) is not None
    elif lost == "parked":
        within_transaction(runs.park, run, token, "approval")
    elif lost == "released":
        runs.release(run, token, "Its time slice is over.")
    elif lost == "finished":
        assert finished(run)
    else:
        token = uuid.uuid4()
    before, events_before = Run.objects.values().get(pk=run.pk), told(run)
    assert not runs.renew(run.pk, token)
    for write in (
        lambda: runs.held(run.pk, token),
        lambda: record(run, token),
        lambda: within_transaction(runs.park, run, token, "approval"),
        lambda: runs.release(run, token, "Its time slice is over."),
    ):
        with pytest.raises(LeaseLost), transaction.atomic():
            write()
    assert Run.objects.values().get(pk=run.pk) == before
    assert not Step.objects.exists()
    assert told(run) == events_before


def test_the_holder_reads_the_clock_and_the_height_of_the_configuration():
    run, token = a_claimed_run()
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "configuration.changed")
    with transaction.atomic():
        held = runs.held(run.pk, token)
    assert held.configuration_height == run.configuration_height + 1
    assert abs(runs.clock(held) - timezone.now()) < timedelta(minutes=1)


# --- Steps -------------------------------------------------------------------------------------


def test_a_step_is_numbered_and_its_usage_is_added_to_the_run():
    run, token = a_claimed_run()
    for number in (1, 2):
        usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=5, cost=Decimal("0.00125"))
        step = record(run, token, Reply(text="I look.", usage=usage, model="openai:gpt"))
        run.refresh_from_db()
        assert step.number == run.step_count == number
    assert (run.input_tokens, run.output_tokens, run.cached_tokens) == (200, 40, 10)
    assert run.cost == Decimal("0.0025")
    assert not run.cost_is_partial
    assert told(run)[-2:] == ["step.recorded"] * 2


def test_a_reply_of_unknown_price_makes_the_cost_partial_for_good():
    run, token = a_claimed_run()
    record(run, token, Reply(usage=Usage(cost=None)))
    run.refresh_from_db()
    record(run, token, Reply(usage=Usage(cost=Decimal("0.5"))))
    run.refresh_from_db()
    assert (run.cost, run.cost_is_partial) == (Decimal("0.5"), True)


def test_a_step_forgets_the_failures_before_it_and_holds_the_lease_longer():
    run, token = a_claimed_run()
    Run.objects.update(model_failures=2)
    let_the_lease_run_out(run)
    record(run, token)
    run.refresh_from_db()
    assert run.model_failures == 0
    assert run.lease_until > timezone.now()


def test_a_reply_that_comes_after_a_cancellation_is_dropped():
    run, token = a_claimed_run()
    assert within_transaction(runs.request_cancel, run, "user:1:sam")
    assert record(run, token) is None
    assert not Step.objects.exists()
    assert told(run) == ["run.queued", "run.claimed", "run.cancel_requested"]


def test_two_steps_of_one_number_cannot_both_be_stored():
    run, token = a_claimed_run()
    stale = Run.objects.get(pk=run.pk)
    record(run, token)
    with pytest.raises(IntegrityError), transaction.atomic():
        record(stale, token)


def test_whatever_a_provider_sends_is_stored_on_both_databases():
    run, token = a_claimed_run()
    reply = Reply(
        text="a\x00b\ud800",
        model="m" * 300,
        finish_reason="because " * 20,
        tool_calls=(ToolCall("1", "n\ud800\x00" * 500, "{}"),),
        provider_parts=[{"thinking": "x\x00\ud800", "score": float("nan"), "signature": "c2ln"}],
    )
    step = record(run, token, reply)
    step.refresh_from_db()
    assert step.text == "a\N{SYMBOL FOR NULL}b?"
    assert (len(step.model), len(step.finish_reason)) == (120, 40)
    assert step.provider_parts == [{"thinking": "x\N{SYMBOL FOR NULL}?", "score": "nan", "signature": "c2ln"}]
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


# --- Waiting and ending ------------------------------------------------------------------------


def test_a_parked_run_is_held_by_nobody_and_says_what_it_waits_for():
    run = parked()
    assert (run.state, run.waiting_for, run.lease_token, run.lease_until) == (State.WAITING, "approval", None, None)
    assert told(run)[-1] == "run.waiting"


def test_only_a_waiting_run_is_woken():
    queued, (running, _) = a_run(), a_claimed_run()
    for run in (queued, running):
        within_transaction(runs.wake, run, timezone.now())
        run.refresh_from_db()
        assert run.wake_at is None


@pytest.mark.parametrize("state", Run.FINAL)
def test_a_run_ends_once(state):
    run, _ = a_claimed_run()
    assert within_transaction(runs.finish, run, state, StopSignal("completed", "m\x00"), "a\ud800", actor="user:1:sam")
    run.refresh_from_db()
    assert (run.state, run.lease_token, run.wake_at) == (state, None, None)
    assert (run.stop_message, run.answer) == ("m\N{SYMBOL FOR NULL}", "a?")
    for other in Run.FINAL:
        assert not within_transaction(runs.finish, run, other, StopSignal("error", ""))
    assert told(run) == ["run.queued", "run.claimed", f"run.{state}"]
    assert ledger.Event.objects.get(type=f"run.{state}").actor == "user:1:sam"


def test_a_waiting_run_can_be_ended():
    run = parked(timezone.now())
    assert finished(run)
    run.refresh_from_db()
    assert (run.waiting_for, run.wake_at) == ("", None)


def test_only_a_running_run_is_asked_to_stop_and_only_once():
    run, _ = a_claimed_run()
    assert within_transaction(runs.request_cancel, run, "user:1:sam")
    assert not within_transaction(runs.request_cancel, run, "user:2:dana")
    for other in (a_run(), parked()):
        assert not within_transaction(runs.request_cancel, other, "user:1:sam")
    assert told(run).count("run.cancel_requested") == 1


def test_a_run_remembers_that_a_tool_failed():
    run, _ = a_claimed_run()
    runs.mark_tool_error(run)
    runs.mark_tool_error(run)
    run.refresh_from_db()
    assert run.had_tool_errors


def test_every_transition_writes_one_event():
    run, token = a_claimed_run()
    a_step(run, token, [])
    runs.release(run, token, "Its time slice is over.")
    run = runs.claim(run.pk)
    within_transaction(runs.park, run, run.lease_token, "outcome")
    within_transaction(runs.wake, run, timezone.now() - LONG_AGO)
    run = runs.claim(run.pk)
    assert finished(run)
    assert told(run) == [
        "run.queued", "run.claimed", "step.recorded", "run.released", "run.claimed", "run.waiting", "run.claimed",
        "run.succeeded",
    ]  # fmt: skip
    assert ledger.verify(ledger.run_chain(run.pk)) == (8, None)


# --- What the database refuses -----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"lease_token": None},
        {"lease_until": None},
        {"state": "waiting"},
        {"state": "succeeded"},
        {"state": "succeeded", "stop_reason": "completed", "finished_at": SOME_TIME},
        {"state": "failed", "stop_reason": "error", "lease_token": None},
        {"state": "cancelled", "finished_at": SOME_TIME, "lease_token": None},
    ],
    ids=str,
)
def test_the_database_refuses_a_running_run_without_a_lease_and_an_end_without_a_why(change):
    a_claimed_run()
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.update(**change)


def test_a_key_starts_one_run_of_a_person(sam, dana):
    a_run(sam, request_key="k1")
    a_run(dana, request_key="k1")
    a_run(sam)
    a_run(sam)
    with pytest.raises(IntegrityError), transaction.atomic():
        a_run(sam, request_key="k1")
