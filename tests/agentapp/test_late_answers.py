"""An answer to a write arrives after its worker has lost the run, in every order with what others do meanwhile."""

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from agentapp import actions, erasing, executor, loop, runs
from agentapp.deadline import start
from agentapp.messages import Note
from agentapp.models import Run, Tool
from agentapp.sweep import sweep
from agentapp.tools import outbound
from agentapp.tools.base import OutcomeUnknown, ToolContext, ToolError, ToolResult, tool
from approvals import ledger
from approvals.models import Approval, Event, Rule
from tests.conftest import call, calls, says

ACTED: list[tuple[int, str]] = []
"""What really happened: by which attempt, under which key."""

MEANWHILE = []
"""What happens elsewhere while the tool is at work, one for each of its calls."""

RAISES: dict[int, Exception] = {}
"""What an attempt finally raises."""


def _work(context: ToolContext) -> str:
    ACTED.append((context.attempt, context.idempotency_key))
    if MEANWHILE:
        MEANWHILE.pop(0)()
    if context.attempt in RAISES:
        raise RAISES[context.attempt]
    return f"receipt {context.attempt}"


@tool(effect="irreversible", business_key="charge {item}", timeout=60)
def charge(item: str, context: ToolContext) -> str:
    """Charge for an item. The other side knows no key."""
    return _work(context)


@tool(effect="irreversible", idempotency="key", max_attempts=2, timeout=60)
def charge_once(item: str, context: ToolContext) -> str:
    """Charge for an item. The other side knows the key."""
    return _work(context)


@tool(effect="irreversible", timeout=60)
def charge_elsewhere(item: str, context: ToolContext) -> ToolResult:
    """Charge for an item. The other side sends the call on to where none may go."""
    _work(context)
    return outbound.refusal("https://bank.test/", "10.0.0.1 is not a public address.", may_have_acted=True)


@tool(effect="irreversible", timeout=60)
def charge_card(item: str, card: str, context: ToolContext) -> ToolResult:
    """Charge a card for an item, and say so in the record."""
    return ToolResult(data=f"{_work(context)} for {item}", notes=(Note("charged", {"card": card}),))


@pytest.fixture
def till(clerk, offer):
    """The clerk, whose charges a rule allows."""
    ACTED.clear(), MEANWHILE.clear(), RAISES.clear()
    offer(charge, charge_once, charge_elsewhere, charge_card)
    for name in ("charge", "charge_once", "charge_elsewhere", "charge_card"):
        Rule.objects.create(name=name, tool=name, verdict="allow")
    return clerk


def charging(till, name="charge", item="x"):
    return till.start(calls(call("c", name, item=item)), says("done"))


def lease_ends(run):
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def taken_over(run):
    """Another worker claims the run and drives it as far as it goes."""
    lease_ends(run)
    loop.drive(run.pk)


def found_by_the_sweep(till, run):
    assert run.pk in sweep()
    return till.drive(run)


def late(run):
    """What the record has of late answers: whether each was kept."""
    found = Event.objects.filter(run_id=run.pk, type="tool_call.late_answer").order_by("seq")
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
    return [event.data["kept"] for event in found]


def test_before_the_claim_it_is_stored_as_ever(till):
    run = charging(till)
    MEANWHILE.append(lambda: lease_ends(run))
    assert till.drive(run).state == "succeeded"
    assert (till.execution(run, "c").value, late(run), len(ACTED)) == ("receipt 1", [], 1)


@pytest.mark.parametrize("name", ["charge", "charge_once"])
def test_behind_the_claim_and_before_the_next_worker_has_looked_it_is_the_answer(till, monkeypatch, name):
    run = charging(till, name)
    looks, answered, real, drives = threading.Event(), threading.Event(), executor._recover, []

    def recover(state, execution):
        looks.set()
        assert answered.wait(20)
        real(state, execution)

    def taken_over_up_to_there():
        lease_ends(run)
        drives.append(start(loop.drive, run.pk))
        assert looks.wait(20)

    monkeypatch.setattr(executor, "_recover", recover)
    MEANWHILE.append(taken_over_up_to_there)
    loop.drive(run.pk)
    answered.set()
    drives[0].result(20)
    run.refresh_from_db()
    assert (run.state, till.execution(run, "c").value) == ("succeeded", "receipt 1")
    assert (late(run), len(ACTED)) == ([True], 1)


def test_it_is_paid_once_whoever_stores_it(till):
    till.agent.tools.filter(name="charge").update(cost_per_call="0.5")
    early, after = charging(till, item="x"), charging(till, item="y")
    MEANWHILE.append(lambda: (lease_ends(early), runs.claim(early.pk)))
    MEANWHILE.append(lambda: taken_over(after))
    for run in (early, after):
        loop.drive(run.pk)
        run.refresh_from_db()
        assert (run.cost, till.execution(run, "c").cost) == (Decimal("0.5"), Decimal("0.5"))


def test_behind_the_loss_it_is_the_answer_and_the_run_goes_on(till):
    run = charging(till)
    MEANWHILE.append(lambda: taken_over(run))
    loop.drive(run.pk)
    assert (till.execution(run, "c").value, late(run)) == ("receipt 1", [True])
    assert found_by_the_sweep(till, run).state == "succeeded"
    assert len(ACTED) == 1


def test_what_it_notes_is_on_record_though_it_answers_nothing(till):
    run = charging(till, "charge_elsewhere")
    MEANWHILE.append(lambda: taken_over(run))
    loop.drive(run.pk)
    assert (till.execution(run, "c").state, late(run)) == ("outcome_unknown", [False])
    assert Event.objects.filter(run_id=run.pk, type="outbound.refused").count() == 1


def test_of_a_run_that_was_cancelled_meanwhile_it_is_on_record(till, sam):
    run = charging(till)

    def cancelled():
        taken_over(run)
        actions.cancel_run(run.pk, sam)

    MEANWHILE.append(cancelled)
    assert till.drive(run).state == "cancelled"
    assert (till.execution(run, "c").value, late(run)) == ("receipt 1", [True])


@pytest.mark.parametrize("outcome", ["happened", "did_not_happen"])
def test_behind_a_persons_word_it_is_kept_beside_that_word(till, dana, outcome):
    run = charging(till)

    def resolved():
        taken_over(run)
        actions.resolve_outcome(till.execution(run, "c").pk, outcome, "I asked them.", dana)

    MEANWHILE.append(resolved)
    loop.drive(run.pk)
    execution = till.execution(run, "c")
    assert (execution.outcome_note, late(run)) == ("I asked them.", [False])
    assert execution.result_status == ("ok" if outcome == "happened" else "fatal_error")
    assert execution.raw_result_text == '"receipt 1"'
    assert found_by_the_sweep(till, run).state == "succeeded"
    assert till.execution(run, "c").outcome_note == "I asked them."


def test_an_act_that_a_person_thought_undone_and_that_was_done_is_not_done_again(till, dana):
    run = charging(till)

    def resolved():
        taken_over(run)
        actions.resolve_outcome(till.execution(run, "c").pk, "did_not_happen", "I asked them.", dana)

    MEANWHILE.append(resolved)
    loop.drive(run.pk)
    again = till.drive(charging(till))
    assert (till.execution(again, "c").reason, len(ACTED)) == ("idempotency_key_consumed", 1)


def test_nothing_of_it_comes_back_into_a_call_that_was_erased(till, dana):
    Tool.objects.filter(name="charge_card").update(secret_fields=["card"])
    run = till.start(calls(call("c", "charge_card", item="a ring for Ann", card="canary-4111")), says("done"))

    def resolved_and_erased():
        taken_over(run)
        actions.resolve_outcome(till.execution(run, "c").pk, "did_not_happen", "I asked them.", dana)
        loop.drive(run.pk)
        erasing.erase("run", str(run.pk), "They asked.", None, "test")

    MEANWHILE.append(resolved_and_erased)
    loop.drive(run.pk)
    execution = till.execution(run, "c")
    assert (execution.erased_at is None, execution.raw_result_text, execution.control) == (
        False, "", {"took_effect": True},
    )  # fmt: skip
    assert late(run) == [False]
    assert not Event.objects.filter(run_id=run.pk, type="tool_call.charged").exists()


@pytest.mark.parametrize("decides", ["nobody", "approve", "reject"])
def test_of_a_call_that_is_to_be_tried_again_it_is_the_answer_and_nothing_is_tried(till, dana, settings, decides):
    run = charging(till)
    settings.UNDO_HOLD_SECONDS = 60

    def reopened():
        taken_over(run)
        actions.resolve_outcome(till.execution(run, "c").pk, "retry", "Nothing arrived.", dana)
        loop.drive(run.pk)
        if decides != "nobody":
            till.decide(till.open(run)[0], dana, decides, message="Go on.")

    MEANWHILE.append(reopened)
    loop.drive(run.pk)
    assert found_by_the_sweep(till, run).state == "succeeded"
    assert (till.execution(run, "c").value, late(run), len(ACTED)) == ("receipt 1", [True], 1)
    assert not Approval.objects.filter(state__in=["pending", "approved"]).exists()


def test_a_failure_of_an_attempt_that_was_given_up_does_not_keep_the_next_from_being_tried(till, dana):
    run = charging(till)

    def reopened():
        taken_over(run)
        actions.resolve_outcome(till.execution(run, "c").pk, "retry", "Nothing arrived.", dana)

    RAISES[1] = ToolError("the till is closed")
    MEANWHILE.append(reopened)
    loop.drive(run.pk)
    assert late(run) == [False]
    assert found_by_the_sweep(till, run).waiting_for == "approval"
    till.decide(till.open(run)[0], dana)
    till.drive(run)
    assert (till.execution(run, "c").value, len(ACTED)) == ("receipt 2", 2)


def test_of_two_attempts_under_one_key_the_first_answer_counts_and_the_other_is_noted(till):
    run = charging(till, "charge_once")
    repeated, answered, drives = threading.Event(), threading.Event(), []

    def taken_over_and_repeated():
        lease_ends(run)
        MEANWHILE.append(lambda: (repeated.set(), answered.wait(20)))
        drives.append(start(loop.drive, run.pk))
        assert repeated.wait(20)

    MEANWHILE.append(taken_over_and_repeated)
    loop.drive(run.pk)
    assert till.execution(run, "c").value == "receipt 1"
    answered.set()
    drives[0].result(20)
    run.refresh_from_db()
    assert (run.state, till.execution(run, "c").value, late(run)) == ("succeeded", "receipt 1", [True, False])
    assert len({key for _, key in ACTED}) == 1
    assert Event.objects.filter(run_id=run.pk, type="tool_call.completed").count() == 1


@pytest.mark.parametrize("error", [ToolError("no"), OutcomeUnknown("the line went dead")])
def test_a_failure_of_the_first_of_two_attempts_says_nothing_of_the_second(till, error):
    run = charging(till, "charge_once")
    # The second attempt acts, and its worker dies before it can report.
    MEANWHILE.append(lambda: taken_over(run))
    RAISES.update({1: error, 2: OutcomeUnknown("gone"), 3: OutcomeUnknown("gone")})
    loop.drive(run.pk)
    assert (till.execution(run, "c").state, late(run)) == ("outcome_unknown", [False])


def test_that_nobody_knows_comes_late_too_and_leaves_it_unknown(till):
    run = charging(till)
    MEANWHILE.append(lambda: taken_over(run))
    RAISES[1] = OutcomeUnknown("the line went dead")
    loop.drive(run.pk)
    execution = till.execution(run, "c")
    assert (execution.state, late(run)) == ("outcome_unknown", [False])
    again = till.drive(charging(till))
    assert (till.execution(again, "c").reason, len(ACTED)) == ("idempotency_key_consumed", 1)
