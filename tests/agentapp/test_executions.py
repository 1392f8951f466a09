import json
import uuid

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import executions, runs
from agentapp.executions import MAX_RESULT_CHARS, Outcome, Proposal
from agentapp.messages import ToolCall, ToolResult
from agentapp.models import Run, ToolExecution
from approvals import decisions, ledger, sealed
from approvals.models import Approval
from tests.rows import (
    a_call,
    a_card,
    a_claimed_run,
    a_proposal,
    a_step,
    a_tool,
    events,
    within_transaction,
)

pytestmark = pytest.mark.django_db

State = ToolExecution.State
KEY = "k" * 64
TEXT = '{"amount":240,"order":"1001"}'


@pytest.fixture
def held() -> tuple[Run, object]:
    return a_claimed_run()


@pytest.fixture
def refund():
    return a_tool()


@pytest.fixture
def look_up():
    return a_tool("get_order", effect_class="read")


def propose(held, *proposals: Proposal) -> list[ToolExecution]:
    return a_step(*held, proposals)[1]


def proposed(held, tool) -> ToolExecution:
    """A call that people will be asked about."""
    return propose(held, a_proposal(tool, asks=True))[0]


def ready(held, tool) -> ToolExecution:
    """A call that a rule allowed."""
    return propose(held, a_proposal(tool, allowed_by="rule refunds"))[0]


def executing(held, tool) -> ToolExecution:
    execution = ready(held, tool)
    assert within_transaction(executions.begin, execution, TEXT, KEY, "rule refunds")
    return execution


def unknown(held, tool) -> ToolExecution:
    execution = executing(held, tool)
    assert within_transaction(executions.lose, execution)
    return execution


def waiting(held, tool) -> ToolExecution:
    execution = proposed(held, tool)
    with ledger.transaction():
        card = a_card(run_id=execution.run_id, execution_id=execution.pk)
        executions.hold([execution], decisions.request([card], timezone.now()))
    return execution


def finished(held, tool) -> ToolExecution:
    execution = executing(held, tool)
    finish(execution)
    return execution


def cancelled(held, tool) -> ToolExecution:
    execution = proposed(held, tool)
    within_transaction(executions.cancel_open, execution.run, "The run was cancelled.")
    return execution


def finish(execution: ToolExecution, **result) -> ToolExecution:
    within_transaction(executions.finish, [Outcome(execution, ToolResult(**result))])
    return read(execution)


def read(execution: ToolExecution) -> ToolExecution:
    return ToolExecution.objects.get(pk=execution.pk)


def told(execution: ToolExecution) -> list[str]:
    """The events about calls, without the run's own."""
    found = events(ledger.run_chain(execution.run_id))
    return [type.removeprefix("tool_call.") for type in found if type.startswith("tool_call.")]


# --- Proposed ----------------------------------------------------------------------------------


def test_each_call_is_stored_in_the_state_its_checks_gave_it(held, refund, look_up):
    refusal = ToolResult(status="refused", reason="invalid_arguments", message="amount is missing.")
    asked, allowed, started, refused = propose(
        held,
        a_proposal(refund, asks=True),
        a_proposal(refund, allowed_by="rule refunds"),
        a_proposal(look_up, allowed_by="reads run freely", starts_now=True),
        Proposal(call=a_call("refund_order"), tool=refund, refusal=refusal),
    )
    assert [read(e).state for e in (asked, allowed, started, refused)] == [
        State.PROPOSED, State.READY, State.EXECUTING, State.FINISHED,
    ]  # fmt: skip
    assert read(started).started_at is not None
    assert (read(started).executed_text, read(started).attempts) == (TEXT, 1)
    assert (read(refused).result_status, read(refused).reason) == ("refused", "invalid_arguments")
    assert told(asked) == ["proposed", "proposed", "proposed", "started", "proposed", "completed"]


def test_a_call_of_a_tool_nobody_has_is_stored_as_the_model_wrote_it(held):
    call = ToolCall("x\x00" * 300, "drop\x00_\ud800" * 50, "{\ud800" + "[" * 300_000)
    refusal = ToolResult(status="refused", reason="tool_not_disclosed", message="There is no such tool.")
    [execution] = propose(held, Proposal(call=call, refusal=refusal))
    execution = read(execution)
    assert execution.consequential
    assert execution.effect_class == "irreversible"
    assert (len(execution.call_id), len(execution.name), len(execution.arguments_text)) == (200, 200, MAX_RESULT_CHARS)
    assert ledger.verify(ledger.run_chain(execution.run_id))[1] is None


# --- Begun -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ready, waiting])
def test_a_call_begins_once(held, refund, make):
    execution, twin = (lambda e: (e, read(e)))(make(held, refund))
    assert within_transaction(executions.begin, execution, TEXT, KEY, "rule refunds")
    assert not within_transaction(executions.begin, twin, TEXT, KEY, "rule refunds")
    stored = read(execution)
    assert (stored.state, stored.attempts, stored.idempotency_key) == (State.EXECUTING, 1, KEY)
    assert stored.started_at is not None
    assert told(execution).count("started") == 1


@pytest.mark.parametrize("make", [executing, unknown, finished, cancelled])
def test_a_call_that_has_begun_or_is_answered_does_not_begin_again(held, refund, make):
    execution = make(held, refund)
    before = told(execution)
    assert not within_transaction(executions.begin, execution, TEXT, KEY, "rule refunds")
    assert told(execution) == before


def test_a_key_is_used_by_one_call(held, refund):
    executing(held, refund)
    other = ready(held, refund)
    with pytest.raises(executions.KeyTaken), transaction.atomic():
        within_transaction(executions.begin, other, TEXT, KEY, "rule refunds")
    assert read(other).state == State.READY


def test_a_call_whose_words_name_its_key_is_not_taken_for_one_whose_key_is_taken(held, refund):
    """PostgreSQL shows the row that broke another constraint, here the one by which such a call has a key."""
    call = ToolCall("call-1", refund.name, '{"idempotency_key":"x"}')
    [execution] = propose(held, Proposal(call, tool=refund, allowed_by="rule refunds"))
    with pytest.raises(IntegrityError), transaction.atomic():
        within_transaction(executions.begin, execution, TEXT, None, "rule refunds")


# --- Answered ----------------------------------------------------------------------------------


def test_a_result_is_stored_with_its_envelope(held, refund):
    execution = finish(
        executing(held, refund),
        data={"receipt": "r-1", "amount": 240},
        message="Paid back.",
        metadata={"took": 12},
        trust="trusted_system",
        evidence_ref="receipt:r-1",
    )
    assert (execution.state, execution.result_status) == (State.FINISHED, "ok")
    assert executions.result_value(execution) == {"receipt": "r-1", "amount": 240}
    assert (execution.metadata, execution.trust, execution.evidence_ref) == (
        {"took": 12}, "trusted_system", "receipt:r-1",
    )  # fmt: skip
    assert execution.finished_at is not None
    assert told(execution) == ["proposed", "started", "completed"]


def test_whatever_a_tool_returns_is_stored_on_both_databases(held, refund):
    odd = {"text": "a\x00b\ud800", "number": float("nan"), "when": timezone.now(), 5: {"deep": (1, 2)}}
    execution = finish(
        executing(held, refund),
        data=odd,
        message="m\x00" + "x" * 300_000,
        reason="because " * 20,
        metadata=odd,
        evidence_ref="e\x00" * 300,
    )
    value = json.loads(execution.result_text, parse_constant=pytest.fail)
    assert value == execution.metadata
    assert (value["text"], value["number"], value["5"]) == ("a\N{SYMBOL FOR NULL}b?", "nan", {"deep": [1, 2]})
    assert len(execution.message) == MAX_RESULT_CHARS
    assert (len(execution.reason), len(execution.evidence_ref)) == (40, 200)


def test_a_huge_result_is_kept_in_part_and_says_so(held, refund):
    execution = finish(executing(held, refund), data={"rows": ["x" * 1000] * 1000})
    kept = executions.result_value(execution)
    assert kept["truncated"]
    assert kept["characters"] > 1_000_000
    assert kept["start"].startswith('{"rows": ["xxx')
    assert len(execution.result_text) < 20_000


@pytest.mark.parametrize("status", ["ok", "fatal_error"])
def test_a_tool_cannot_say_by_what_it_asks_of_the_loop_whether_it_acted(held, refund, status):
    execution = finish(executing(held, refund), status=status, control={"took_effect": status != "ok", "hint": "x"})
    assert read(execution).took_effect == (status == "ok")
    assert read(execution).control == {"hint": "x"}


# --- Unknown -----------------------------------------------------------------------------------


def test_a_call_in_the_middle_of_which_a_worker_died_is_unknown(held, refund):
    execution = read(unknown(held, refund))
    assert (execution.state, execution.reason, execution.result_status) == ("outcome_unknown", "outcome_unknown", "")
    assert told(execution) == ["proposed", "started", "outcome_unknown"]


@pytest.mark.parametrize("make", [proposed, ready, waiting, unknown, finished, cancelled])
def test_only_a_running_call_becomes_unknown(held, refund, make):
    execution = make(held, refund)
    state, before = read(execution).state, told(execution)
    assert not within_transaction(executions.lose, execution)
    assert (read(execution).state, told(execution)) == (state, before)


def answers_late(execution: ToolExecution, attempt: int = 1, **result) -> bool:
    outcome = Outcome(read(execution), ToolResult(**result))
    return within_transaction(executions.finish_late, outcome, attempt)


@pytest.mark.parametrize("make", [executing, unknown])
@pytest.mark.parametrize("status", ["ok", "fatal_error"])
def test_a_late_answer_is_kept_while_there_is_no_other(held, refund, make, status):
    execution = make(held, refund)
    assert answers_late(execution, data="r-1", status=status)
    assert executions.result_value(read(execution)) == "r-1"
    assert told(execution)[-2:] == ["completed", "late_answer"]


@pytest.mark.parametrize("make", [executing, unknown])
def test_a_late_answer_that_nothing_happened_says_nothing_of_a_later_attempt(held, refund, make):
    execution = make(held, refund)
    ToolExecution.objects.filter(pk=execution.pk).update(attempts=2)
    state = read(execution).state
    assert not answers_late(execution, status="fatal_error")
    assert (read(execution).state, read(execution).took_effect) == (state, False)
    assert answers_late(execution, data="r-1")


@pytest.mark.parametrize("make", [executing, unknown])
def test_a_late_answer_that_nothing_happened_says_nothing_of_an_earlier_attempt_at_a_write(held, refund, make):
    execution = make(held, refund)
    ToolExecution.objects.filter(pk=execution.pk).update(attempts=2)
    state = read(execution).state
    assert not answers_late(execution, attempt=2, status="fatal_error")
    assert read(execution).state == state
    ToolExecution.objects.filter(pk=execution.pk).update(consequential=False)
    assert answers_late(execution, attempt=2, status="fatal_error")


@pytest.mark.parametrize("make", [executing, unknown])
def test_a_late_word_that_nobody_knows_answers_nothing(held, refund, make):
    execution = make(held, refund)
    state = read(execution).state
    assert not answers_late(execution, status="fatal_error", reason="outcome_unknown")
    assert read(execution).state == state


@pytest.mark.parametrize("make", [finished, cancelled])
def test_a_late_answer_is_noted_when_there_is_another(held, refund, make):
    execution = make(held, refund)
    before = ToolExecution.objects.values().get(pk=execution.pk)
    assert not answers_late(execution, status="fatal_error", message="too late")
    assert ToolExecution.objects.values().get(pk=execution.pk) == before
    noted = ledger.Event.objects.filter(type="tool_call.late_answer").get()
    assert {name: noted.data[name] for name in ("status", "kept")} == {"status": "fatal_error", "kept": False}
    assert sealed.opens("too late", execution.salt, noted.data["message"])


def test_an_act_of_which_is_learnt_late_took_effect_whatever_was_said_of_it(held, refund):
    execution = cancelled(held, refund)
    assert not answers_late(execution, data="r-1")
    stored = read(execution)
    assert (stored.state, stored.took_effect, stored.raw_result_text) == (State.CANCELLED, True, '"r-1"')


def test_an_answer_is_not_overwritten(held, refund):
    execution = executing(held, refund)
    stale = read(execution)
    finish(execution, data="first")
    with pytest.raises(executions.Overtaken):
        finish(stale, data="second")
    assert executions.result_value(read(execution)) == "first"


def test_a_call_that_was_answered_meanwhile_does_not_begin_to_wait(held, refund):
    execution = proposed(held, refund)
    stale = read(execution)
    finish(execution, data="first")
    card = a_card(run_id=execution.run_id, execution_id=execution.pk)
    with pytest.raises(executions.Overtaken), ledger.transaction():
        executions.hold([stale], decisions.request([card], timezone.now()))
    assert read(execution).state == State.FINISHED
    assert not Approval.objects.exists()


def test_a_person_says_once_what_became_of_a_call(held, refund):
    execution = unknown(held, refund)
    stale = read(execution)
    answer = ToolResult(message="It did happen.")
    assert within_transaction(executions.resolve, execution, answer, "I saw the bank.", "user:1:dana")
    assert not within_transaction(executions.resolve, stale, ToolResult(status="fatal_error"), "No.", "user:2:marco")
    stored = read(execution)
    assert (stored.state, stored.result_status, stored.outcome_note) == ("finished", "ok", "I saw the bank.")
    assert told(execution)[-2:] == ["completed", "outcome_resolved"]


def test_what_a_person_said_is_not_overwritten_by_a_late_answer(held, refund):
    execution = unknown(held, refund)
    within_transaction(executions.resolve, execution, ToolResult(message="It did."), "I saw it.", "user:1:dana")
    assert not answers_late(execution, status="fatal_error")
    assert read(execution).result_status == "ok"


def test_a_call_tried_again_is_proposed_anew_with_its_key(held, refund):
    execution = unknown(held, refund)
    assert within_transaction(executions.reopen, execution, "Try again.", "user:1:dana")
    assert not within_transaction(executions.reopen, execution, "Try again.", "user:1:dana")
    stored = read(execution)
    assert (stored.state, stored.approval, stored.started_at, stored.allowed_by) == ("proposed", None, None, "")
    assert (stored.idempotency_key, stored.attempts, stored.outcome_note) == (KEY, 1, "Try again.")
    assert not answers_late(execution, status="fatal_error")
    assert told(execution)[-2:] == ["reopened", "late_answer"]
    assert answers_late(execution)
    assert read(execution).state == State.FINISHED


# --- Set aside, cancelled ----------------------------------------------------------------------


@pytest.mark.parametrize("make", [waiting, ready])
def test_a_call_that_has_not_started_can_be_asked_about_again(held, refund, make):
    execution = make(held, refund)
    assert within_transaction(executions.set_aside, execution, "The order has changed.")
    stored = read(execution)
    assert (stored.state, stored.approval, stored.allowed_by) == (State.PROPOSED, None, "")
    assert told(execution)[-1] == "set_aside"


@pytest.mark.parametrize("make", [proposed, executing, unknown, finished, cancelled])
def test_nothing_else_is_set_aside(held, refund, make):
    execution = make(held, refund)
    before, already = ToolExecution.objects.values().get(pk=execution.pk), told(execution)
    assert not within_transaction(executions.set_aside, execution, "The order has changed.")
    assert ToolExecution.objects.values().get(pk=execution.pk) == before
    assert told(execution) == already


def test_the_open_calls_of_an_ending_run_are_answered_and_a_started_write_is_unknown(held, refund):
    made = [make(held, refund) for make in (proposed, ready, waiting)]
    started = executing(held, refund)
    run = held[0]
    assert within_transaction(executions.cancel_open, run, "The run was cancelled.") == 0
    assert run.executions.filter(state=State.CANCELLED).count() == 3
    with CaptureQueriesContext(connection) as asked:
        assert within_transaction(executions.cancel_open, run, "The run was cancelled.") == 0
    assert not [one for one in asked if one["sql"].startswith("UPDATE")]
    assert {read(e).state for e in made} == {State.CANCELLED}
    assert all(read(e).is_answered and read(e).finished_at for e in made)
    assert read(started).state == State.OUTCOME_UNKNOWN
    assert told(started).count("cancelled") == 3


def test_a_call_tried_once_more_counts_its_attempts(held, refund):
    execution = executing(held, refund)
    within_transaction(executions.repeat, execution)
    assert read(execution).attempts == 2
    assert told(execution)[-1] == "repeated"


# --- What the database refuses -----------------------------------------------------------------


def refused(execution: ToolExecution, **change) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        ToolExecution.objects.filter(pk=execution.pk).update(**change)


def test_a_consequential_call_starts_only_under_an_approval_or_a_rule(held, refund, look_up):
    now = timezone.now()
    execution = proposed(held, refund)
    refused(execution, state="executing", started_at=now, idempotency_key=KEY)
    refused(execution, started_at=now, idempotency_key=KEY)
    refused(executing(held, refund), allowed_by="")
    read_only = proposed(held, look_up)
    ToolExecution.objects.filter(pk=read_only.pk).update(state="executing", started_at=now)


def test_a_consequential_call_starts_only_with_a_key(held, refund):
    refused(ready(held, refund), state="executing", started_at=timezone.now())
    with pytest.raises(IntegrityError), transaction.atomic():
        within_transaction(executions.begin, ready(held, refund), TEXT, None, "rule refunds")


@pytest.mark.parametrize("state", ["executing", "outcome_unknown"])
def test_a_call_that_runs_says_since_when(held, refund, state):
    refused(ready(held, refund), state=state)


def test_a_waiting_call_has_an_approval(held, refund):
    refused(proposed(held, refund), state="waiting")
    refused(waiting(held, refund), approval=None)


@pytest.mark.parametrize("missing", [{"result_status": ""}, {"finished_at": None}])
def test_a_finished_call_has_a_result_and_a_time(held, refund, missing):
    refused(finished(held, refund), **missing)


def test_a_step_has_one_call_at_each_place(held, refund):
    first, second = propose(held, a_proposal(refund, asks=True), a_proposal(refund, asks=True))
    assert (first.index, second.index) == (0, 1)
    refused(second, index=0)


def test_an_approval_belongs_to_one_call(held, refund):
    first, second = waiting(held, refund), proposed(held, refund)
    refused(second, approval=first.approval)


def test_a_lost_lease_keeps_a_step_and_its_calls_out(held, refund):
    run, _ = held
    with pytest.raises(runs.LeaseLost), transaction.atomic():
        a_step(run, uuid.uuid4(), [a_proposal(refund, asks=True)])
    assert not ToolExecution.objects.exists()
