"""Money a run or a day may cost: checked before the act, and a person may allow more."""

from decimal import Decimal

import pytest

from agentapp import actions, budgets
from agentapp.actions import Refused
from agentapp.models import Agent, Run, Spending, Tool, ToolExecution
from approvals.models import Event, Rule
from tests.conftest import call, calls, says


def look(number: int, cost: float = 0.01):
    return {**calls(call(f"c{number}", "look_up", what=str(number))), "usage": {"cost": cost}}


@pytest.fixture
def waiting(clerk) -> Run:
    """A run that has spent two of its three cents, and waits for a person to allow more."""
    Agent.objects.update(max_cost=Decimal("0.025"), on_budget="ask")
    return clerk.run(look(1), look(2), {**says("done"), "usage": {"cost": 0.01}})


def test_a_run_out_of_budget_waits_for_a_person_when_told_to_ask(waiting):
    assert (waiting.state, waiting.waiting_for, waiting.lease_token) == ("waiting", "budget", None)
    event = Event.objects.filter(run_id=waiting.pk, type="run.waiting").get()
    assert "$0.0200 of $0.0250" in event.data["why"]


def test_more_budget_lets_it_go_on_where_it_was(clerk, waiting, mia):
    actions.raise_budget(waiting.pk, Decimal("0.01"), mia)
    run = clerk.drive(waiting)
    assert (run.state, run.answer, run.cost) == ("succeeded", "done", Decimal("0.03"))
    raised = Event.objects.get(run_id=run.pk, type="run.budget_raised")
    assert (raised.data["by"], raised.actor.endswith("mia")) == ("0.01", True)


def test_too_little_more_waits_again(clerk, waiting, mia):
    actions.raise_budget(waiting.pk, Decimal("0.001"), mia)
    assert clerk.drive(waiting).waiting_for == "budget"


def test_who_started_the_run_cannot_allow_it_more(waiting, sam):
    sam.is_superuser = True
    sam.save()
    with pytest.raises(Refused, match="not to have started the run"):
        actions.raise_budget(waiting.pk, Decimal(1), sam)
    waiting.refresh_from_db()
    assert waiting.budget_extra == 0


def test_without_the_right_nobody_allows_more(waiting, dana):
    with pytest.raises(Refused, match="right to raise budgets"):
        actions.raise_budget(waiting.pk, Decimal(1), dana)


@pytest.mark.parametrize("amount", [Decimal(0), Decimal(-1), Decimal(10_001), Decimal("NaN")])
def test_an_amount_that_makes_no_sense_is_refused(waiting, mia, amount):
    with pytest.raises(Refused, match="above 0"):
        actions.raise_budget(waiting.pk, amount, mia)


def test_all_runs_of_an_agent_share_its_day(clerk):
    Agent.objects.update(max_daily_cost=Decimal("0.03"))
    first = clerk.run(look(1), look(2), {**says("done"), "usage": {"cost": 0}})
    assert first.state == "succeeded"
    second = clerk.run(look(1), look(2))
    assert (second.state, second.stop_reason, second.stop_source) == ("stopped", "cost_limit", "max_daily_cost")
    assert Spending.objects.get().cost == Decimal("0.03")


def test_what_one_day_has_cost_does_not_burden_the_next(clerk):
    Agent.objects.update(max_daily_cost=Decimal("0.02"))
    assert clerk.run(look(1, 0.02), says("done")).stop_reason == "cost_limit"
    Spending.objects.update(day="2001-01-01")
    assert clerk.run(look(1, 0.001), {**says("done"), "usage": {"cost": 0}}).state == "succeeded"


def test_an_agent_without_a_daily_limit_keeps_no_books(clerk):
    clerk.run(look(1), says("done"))
    assert not Spending.objects.exists()


def test_a_call_that_would_pass_the_budget_is_refused_and_the_run_goes_on(clerk):
    Agent.objects.update(max_cost=Decimal(1))
    Tool.objects.filter(name="look_up").update(cost_per_call=2)
    run = clerk.run(calls(call("c", "look_up", what="x")), says("Went without it."))
    assert run.state == "succeeded"
    assert ToolExecution.objects.get().reason == "budget_exhausted"


def test_a_call_that_would_pass_the_budget_asks_a_person_when_told_to_ask(clerk, dana):
    Agent.objects.update(max_cost=Decimal(1), on_budget="ask")
    Tool.objects.filter(name="pay").update(cost_per_call=2)
    Rule.objects.create(name="pay-freely", tool="pay", verdict="allow")
    run = clerk.run(calls(call("c", "pay", account="ana", amount=1)), says("done"))
    [approval] = clerk.open(run)
    assert clerk.execution(run, "c").state == "waiting"
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    assert clerk.execution(run, "c").result_status == "ok"
    # It has now cost more than its limit, and asks before it goes on.
    assert (run.waiting_for, run.cost) == ("budget", Decimal(2))


def test_a_pause_while_the_budget_is_looked_at_does_not_let_the_run_pass_it(clerk, sam, monkeypatch):
    Agent.objects.update(max_cost=Decimal("0.005"), on_budget="ask")
    run = clerk.start(look(1), says("done"))
    real = budgets.breach

    def paused_meanwhile(*looked_at):
        found = real(*looked_at)
        if found is not None:
            actions.pause_run(run.pk, sam)
        return found

    monkeypatch.setattr(budgets, "breach", paused_meanwhile)
    run = clerk.drive(run)
    assert (run.state, run.step_count) == ("paused", 1)


def test_what_calls_cost_counts_into_the_day_as_well(clerk):
    Agent.objects.update(max_daily_cost=Decimal(10))
    Tool.objects.filter(name="look_up").update(cost_per_call=Decimal("0.5"))
    clerk.run(calls(call("c", "look_up", what="x")), says("done"))
    assert Spending.objects.get().cost == Decimal("0.5")


def test_the_calls_of_one_step_are_paid_from_one_budget(clerk):
    Agent.objects.update(max_cost=Decimal(1))
    Tool.objects.filter(name="look_up").update(cost_per_call=Decimal("0.6"))
    both = calls(call("a", "look_up", what="x"), call("b", "look_up", what="y"))
    run = clerk.run(both, says("One was enough."))
    assert [clerk.execution(run, c).reason for c in "ab"] == ["", "budget_exhausted"]
    assert run.cost == Decimal("0.6")
