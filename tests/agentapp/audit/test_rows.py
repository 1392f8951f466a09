"""What calls ran with is compared with what the ledger says they were started with."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import erasing
from agentapp.audit import rows
from agentapp.models import Run, ToolExecution
from approvals import ledger
from approvals.digest import canonical
from approvals.models import Event, Rule
from approvals.proof import verifying
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("a", "pay", account="ana", amount=20))
MORE = canonical({"account": "ana", "amount": 900, "memo": ""})


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


def test_a_call_that_ran_as_it_was_started_is_as_recorded(paid):
    assert ToolExecution.objects.get().executed_text
    assert rows.compare(None, 10) == (None, None)
    assert verifying.look().broken is None


def test_a_call_that_a_rule_allows_is_compared_too(clerk):
    Rule.objects.create(name="pays", tool="pay", verdict="allow")
    clerk.run(PAY, says("done"))
    assert rows.compare(None, 10) == (None, None)
    ToolExecution.objects.update(executed_text=MORE)
    assert rows.compare(None, 10)[1] is not None


def test_a_call_whose_row_says_that_something_else_ran_is_named(paid):
    ToolExecution.objects.update(executed_text=MORE)
    _, differing = rows.compare(None, 10)
    started = Event.objects.get(type="tool_call.started")
    assert (differing.chain, differing.seq) == (started.chain, started.seq)
    call = ToolExecution.objects.get()
    assert differing.problem == f"what was started here is not what the row of the call {call.pk} says"
    assert str(call.pk) in verifying.look().broken["problem"]


def test_a_call_that_never_started_cannot_say_that_it_did(clerk):
    clerk.run(PAY, says("done"))
    assert rows.compare(None, 10) == (None, None)
    ToolExecution.objects.update(executed_text=MORE)
    _, differing = rows.compare(None, 10)
    assert (differing.seq, "no event says" in differing.problem) == (1, True)


@pytest.mark.parametrize(
    "claim",
    [{"consequential": False}, {"erased_at": timezone.now()}, {"salt": ""}],
    ids=lambda claim: next(iter(claim)),
)
def test_no_row_can_ask_not_to_be_compared(paid, claim):
    ToolExecution.objects.update(executed_text=MORE, **claim)
    assert rows.compare(None, 10)[1] is not None


def test_reads_and_calls_whose_words_were_erased_are_left_out(clerk, paid, ada):
    clerk.run(calls(call("b", "look_up", what="Ana")), says("done"))
    erasing.erase("run", str(paid.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert rows.compare(None, 10) == (None, None)


def test_all_are_compared_however_they_are_cut(clerk, dana):
    for _ in range(3):
        run = clerk.run(PAY, says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
    last = ToolExecution.objects.order_by("pk").last()
    after, differing = rows.compare(None, 2)
    assert differing is None
    ToolExecution.objects.filter(pk=last.pk).update(executed_text=MORE)
    assert rows.compare(after, 2)[1] is not None
