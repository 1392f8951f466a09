"""Money is checked again when a call begins that no person approved: others may have used up what was left."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import actions, budgets, executor, loop, runs
from agentapp.models import Agent, Run, Spending, Tool, ToolExecution
from agentapp.tools.base import tool
from agentapp.transcript import load_steps
from approvals import ledger
from approvals.clock import Now
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, says
from tests.races import race, tries

pytestmark = pytest.mark.usefixtures("one_day")


@pytest.fixture
def label(clerk: Clerk) -> Tool:
    """A tool that a rule allows, costing two of the three dollars of the agent's day."""
    Agent.objects.update(max_daily_cost=Decimal(3))
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    Tool.objects.filter(name="label").update(cost_per_call=2)
    return Tool.objects.get(name="label")


def behind_a_payment(clerk: Clerk, number: int, later: str = "label") -> Run:
    """A run that waits for a person, with a later call that was allowed while there was budget."""
    given = {"text": str(number)} if later == "label" else {"what": str(number)}
    return clerk.run(calls(call("p", "pay", account="ana", amount=number), call("l", later, **given)), says("done"))


def pay_all(clerk: Clerk, waiting: list[Run], dana: User) -> list[ToolExecution]:
    """Approve the payments and let the runs go on in turn. Returns the calls after them."""
    for run in waiting:
        clerk.decide(clerk.open(run)[0], dana)
    for run in waiting:
        clerk.drive(run)
    return [clerk.execution(run, "l") for run in waiting]


def test_calls_that_were_allowed_while_there_was_room_do_not_pass_the_days_limit_together(clerk, dana, label):
    found = pay_all(clerk, [behind_a_payment(clerk, number) for number in (1, 2, 3)], dana)

    assert [call.reason for call in found] == ["", "budget_exhausted", "budget_exhausted"]
    assert found[1].message.endswith("Go on without label.")
    assert len(effects_of("label")) == 1
    assert Spending.objects.get().cost == 2


def test_a_read_that_waited_behind_a_write_is_looked_at_again_as_well(clerk, dana):
    Agent.objects.update(max_daily_cost=Decimal(3))
    Tool.objects.filter(name="look_up").update(cost_per_call=2)
    found = pay_all(clerk, [behind_a_payment(clerk, number, "look_up") for number in (1, 2)], dana)

    assert [call.reason for call in found] == ["", "budget_exhausted"]
    assert Spending.objects.get().cost == 2


@pytest.mark.parametrize("later", ["label", "look_up"])
def test_people_are_asked_where_they_may_allow_more_and_what_they_approve_runs(clerk, dana, label, later):
    Agent.objects.update(on_budget="ask")
    Tool.objects.filter(name="look_up").update(cost_per_call=2)
    waiting = [behind_a_payment(clerk, number, later) for number in (1, 2)]
    first, second = pay_all(clerk, waiting, dana)
    assert (first.result_status, second.state) == ("ok", "waiting")

    clerk.decide(clerk.open(waiting[1])[0], dana)
    clerk.drive(waiting[1])

    second.refresh_from_db()
    assert second.result_status == "ok"
    assert Approval.objects.filter(execution_id=second.pk).count() == 1
    assert Spending.objects.get().cost == 4


def test_a_call_that_costs_nothing_or_has_no_limit_asks_nothing_more(clerk, dana, label, django_assert_num_queries):
    run = behind_a_payment(clerk, 1)
    steps, day = load_steps(run), timezone.now().date()
    with django_assert_num_queries(0):
        assert budgets.breach_at_begin(run, steps, Decimal(0), day) is None
        run.agent_snapshot["max_daily_cost"] = None
        assert budgets.breach_at_begin(run, steps, Decimal(2), day) is None


def test_what_the_run_itself_has_begun_and_not_paid_counts_against_its_own_limit(clerk):
    Tool.objects.filter(name="look_up").update(cost_per_call=2)
    run = behind_a_payment(clerk, 1, "look_up")
    run.agent_snapshot["max_cost"] = "3"
    day, steps = timezone.now().date(), load_steps(run)
    assert budgets.breach_at_begin(run, steps, Decimal(2), day) is None
    steps[-1].executions[1].state = ToolExecution.State.EXECUTING
    assert budgets.breach_at_begin(run, steps, Decimal(2), day) is not None


@pytest.mark.django_db(transaction=True)
def test_of_two_that_begin_at_once_one_sees_the_other(clerk, label):
    for number in range(min(tries(), 10)):
        Spending.objects.update(cost=0)  # nothing is spent at first
        both = [behind_a_payment(clerk, 10 * number + place + 1) for place in (1, 2)]

        def begin(run: Run) -> bool:
            execution = ToolExecution.objects.get(run=run, call_id="l")
            with ledger.transaction():
                locked = runs.lock(run.pk)
                assert locked is not None
                today = timezone.now().date()
                over = budgets.breach_at_begin(locked, load_steps(locked), label.cost_per_call, today)
                if over is None:
                    begun = {"state": "executing", "started_at": Now(), "idempotency_key": execution.pk.hex}
                    ToolExecution.objects.filter(pk=execution.pk).update(**begun)
            return over is None

        found = race(*[lambda run=run: begin(run) for run in both])
        assert sorted(found, key=str) == [False, True]
        none = {"state": "ready", "started_at": None, "idempotency_key": None}
        ToolExecution.objects.filter(state="executing").update(**none)


def test_reads_that_overlap_do_not_pass_the_days_limit_either(clerk, offer):
    """Each begins while the other is under way: a call that has begun counts, though not paid for yet."""
    Agent.objects.update(max_daily_cost=Decimal(3))
    Tool.objects.filter(name="look_up").update(cost_per_call=2)

    @tool(effect="read")
    def look_long() -> str:
        """Look something up while others do."""
        clerk.drive(other)
        return "found"

    offer(look_long)
    Tool.objects.filter(name="look_long").update(cost_per_call=2)
    other = clerk.start(calls(call("l", "look_up", what="1")), says("done"))
    run = clerk.run(calls(call("l", "look_long")), says("done"))

    assert clerk.execution(run, "l").result_status == "ok"
    assert clerk.execution(other, "l").reason == "budget_exhausted"
    assert Spending.objects.get().cost == 2


def test_a_costly_read_that_never_began_is_not_paid_for(clerk, sam, monkeypatch):
    Tool.objects.filter(name="look_up").update(cost_per_call=2)
    run = clerk.start(calls(call("l", "look_up", what="0")), says("done"))

    def cancelled_first(state):
        actions.cancel_run(run.pk, sam)
        return executor.settle(state)

    monkeypatch.setattr(loop, "settle", cancelled_first)
    clerk.drive(run)

    assert (run.state, run.cost) == ("cancelled", 0)
    assert effects_of("look_up") == []
