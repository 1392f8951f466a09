"""The money a run or a day may cost: checked before the act, and a person may allow more."""

import importlib
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest
from django.apps import apps
from django.db.models import F
from django.db.models.functions import TruncDate
from django.utils import timezone

from agentapp import actions, budgets, executor, lineage, loop, runs
from agentapp.actions import Refused
from agentapp.models import Agent, Run, Spending, Tool, ToolExecution
from agentapp.sweep import sweep
from approvals import ledger
from approvals.clock import Now
from approvals.models import Event, Rule
from tests.clerk_tools import WorkerDies, effects_of
from tests.conftest import call, calls, says
from tests.teams import Team, child_of

pytestmark = pytest.mark.usefixtures("one_day")
limits = importlib.import_module("agentapp.migrations.0004_limits")

COSTLY = {"usage": {"cost": 0.3}}


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


def test_who_had_a_hand_in_the_run_cannot_allow_it_more(waiting, mia):
    """The person who took it over, and the person who made the token that somebody else used to start it."""
    Run.objects.filter(pk=waiting.pk).update(takers=[mia.pk])
    with pytest.raises(Refused, match="taken it over"):
        actions.raise_budget(waiting.pk, Decimal(1), mia)
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


# --- A run that waits for its agent's next day --------------------------------------------------------


@pytest.fixture
def out_for_today(clerk) -> Run:
    """A run that waits because its agent has spent its day's budget."""
    Agent.objects.update(max_daily_cost=Decimal("0.02"), on_budget="ask")
    return clerk.run(look(1, 0.02), {**says("done"), "usage": {"cost": 0}})


def next_day(run: Run) -> None:
    """Move the clock to the next day: everything planned for then is due, and what was spent was spent yesterday."""
    Run.objects.filter(pk=run.pk).update(wake_at=F("wake_at") - timedelta(days=1))
    for spent in Spending.objects.order_by("day"):
        Spending.objects.filter(pk=spent.pk).update(day=spent.day - timedelta(days=1))


def test_a_run_out_of_its_agents_day_waits_until_the_next_begins(out_for_today):
    assert (out_for_today.state, out_for_today.waiting_for) == ("waiting", "budget")
    midnight = datetime.combine(Spending.objects.get().day + timedelta(days=1), time(), UTC)
    assert out_for_today.wake_at == midnight
    assert sweep() == []


def test_the_next_day_it_goes_on_by_itself(clerk, out_for_today):
    next_day(out_for_today)
    assert sweep() == [out_for_today.pk]
    run = clerk.drive(out_for_today)
    assert (run.state, run.answer, run.budget_extra) == ("succeeded", "done", 0)


def test_a_next_day_without_room_is_waited_through_as_well(clerk, out_for_today):
    next_day(out_for_today)
    Spending.objects.create(agent=clerk.agent, day=timezone.now().date(), cost=Decimal("0.02"))
    before = out_for_today.wake_at
    run = clerk.drive(out_for_today)
    assert (run.waiting_for, run.wake_at, run.step_count) == ("budget", before, 1)
    assert sweep() == []
    Spending.objects.filter(day=timezone.now().date()).delete()
    next_day(run)
    assert clerk.drive(run).state == "succeeded"


def test_a_person_may_still_allow_it_more_today(clerk, out_for_today, mia):
    actions.raise_budget(out_for_today.pk, Decimal("0.05"), mia)
    assert clerk.drive(out_for_today).state == "succeeded"


def test_a_run_out_of_its_own_budget_waits_for_no_day(waiting):
    assert waiting.wake_at is None


def test_a_run_that_waited_for_its_day_before_days_woke_runs_looks_again(clerk, out_for_today):
    Agent.objects.update(max_daily_cost=None, max_cost=Decimal("0.01"))
    other = clerk.run(look(1, 0.02), says("done"))
    assert other.waiting_for == "budget"
    Run.objects.update(wake_at=None)
    limits.wake_those_that_wait_for_a_day(apps, None)
    assert sweep() == [out_for_today.pk]
    run = clerk.drive(out_for_today)
    assert run.waiting_for == "budget"
    assert run.wake_at is not None


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


def test_what_the_agents_it_asked_have_cost_counts_against_the_limit_of_a_run(clerk):
    team = Team(clerk)
    team.may_ask("refunds", {**calls(call("a", "ask_ledger", input="?")), **COSTLY}, says("r"), asks=("ledger",))
    team.may_ask("ledger", {**says("l"), **COSTLY})
    Agent.objects.filter(name="clerk").update(max_cost=Decimal("0.5"))
    run = team.run(calls(call("a", "ask_refunds", input="?")), says("done"))
    assert (run.state, run.stop_reason, run.cost) == ("stopped", "cost_limit", 0)
    assert "with those that it asked for, has cost $0.6000 of $0.5000" in run.stop_message


def test_a_run_that_asked_nobody_adds_up_no_family(clerk, monkeypatch):
    monkeypatch.setattr(lineage, "cost_of_family", lambda run: pytest.fail("added up"))
    Agent.objects.update(max_cost=Decimal(1))
    assert clerk.run(look(1), says("done")).state == "succeeded"


def test_what_is_spent_counts_into_the_day_of_the_databases_clock(clerk, monkeypatch):
    class Fast(datetime):
        """The clock of a server that is a day ahead."""

        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=1)

    monkeypatch.setattr(budgets, "datetime", Fast)
    Agent.objects.update(max_daily_cost=Decimal("0.02"))
    stopped = clerk.run(look(1, 0.02), says("done"))
    assert stopped.stop_source == "max_daily_cost"
    assert Spending.objects.annotate(today=TruncDate(Now(), tzinfo=UTC)).get(day=F("today")).cost == Decimal("0.02")


# --- What was under way when its run ended ------------------------------------------------------------


def dying(*_, **__):
    raise WorkerDies


@pytest.fixture
def costly(clerk):
    """The clerk, each of whose calls costs two dollars, with a daily limit and a rule that lets it write."""
    Agent.objects.update(max_daily_cost=Decimal(100))
    Tool.objects.filter(name__in=["label", "look_up"]).update(cost_per_call=2)
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    return clerk


def dies_before_storing(run, monkeypatch) -> Run:
    """A worker drives a run, its tools act, and it dies before it can report."""
    with monkeypatch.context() as patched:
        patched.setattr(executor, "_outcome", dying)
        with pytest.raises(WorkerDies):
            loop.drive(run.pk)
    run.refresh_from_db()
    return run


def let_go_of(run: Run) -> None:
    """As if by a worker that could not go on: nobody drives the run."""
    runs.release(run, run.lease_token, "test")


def cancelled_by_the_next_worker(run, sam):
    actions.cancel_run(run.pk, sam)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    loop.drive(run.pk)


def cancelled_at_once(run, sam):
    let_go_of(run)
    actions.cancel_run(run.pk, sam)


@pytest.mark.parametrize("cancelled", [cancelled_by_the_next_worker, cancelled_at_once])
@pytest.mark.parametrize(
    ("replies", "left"),
    [
        ([call("a", "label", text="x")], "outcome_unknown"),
        ([call("a", "look_up", what="x"), call("b", "look_up", what="x")], "cancelled"),
    ],
)
def test_a_call_that_was_under_way_when_its_run_was_cancelled_is_paid(
    costly, sam, monkeypatch, cancelled, replies, left
):
    run = dies_before_storing(costly.start(calls(*replies), says("done")), monkeypatch)
    assert len(effects_of(replies[0]["name"])) == 1
    cancelled(run, sam)
    run.refresh_from_db()
    execution = costly.execution(run, "a")
    assert (run.state, execution.state, execution.cost, run.cost) == ("cancelled", left, 2, 2)
    assert sum(call.cost for call in run.executions.all()) == Spending.objects.get().cost == 2
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


def test_its_answer_that_comes_late_is_not_paid_again(costly, sam, monkeypatch):
    run = costly.start(calls(call("a", "label", text="x")), says("done"))
    real = executor._outcome

    def cancelled_meanwhile(state, *arguments):
        run.refresh_from_db()
        cancelled_at_once(run, sam)
        return real(state, *arguments)

    monkeypatch.setattr(executor, "_outcome", cancelled_meanwhile)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (costly.execution(run, "a").value, costly.execution(run, "a").cost, run.cost) == ("x", 2, 2)
    assert Spending.objects.get().cost == 2


def test_calls_of_agents_that_are_cancelled_with_the_run_are_paid_when_all_of_them_are_locked(costly, sam, monkeypatch):
    """Storing a call's cost locks its run, then its agent's day: the reverse order would deadlock."""
    team = Team(costly)
    for name in ("refunds", "ledger"):
        team.may_ask(name, calls(call("w", "label", text=name)), max_daily_cost=Decimal(100))
    run = costly.run(calls(call("a", "ask_refunds", input="?"), call("b", "ask_ledger", input="?")), says("done"))
    children = [child_of(run, each) for each in "ab"]
    for child in children:
        let_go_of(dies_before_storing(child, monkeypatch))
    order, lock, spend = [], runs.lock, budgets.spend
    monkeypatch.setattr(runs, "lock", lambda pk: order.append("lock") or lock(pk))
    monkeypatch.setattr(budgets, "spend", lambda run, cost: (order.append("spend") if cost else None, spend(run, cost)))
    actions.cancel_run(run.pk, sam)
    assert order == ["lock"] * 3 + ["spend"] * 2
    assert [Run.objects.get(pk=child.pk).cost for child in children] == [2, 2]
    assert sorted(Spending.objects.values_list("agent__name", "cost")) == [("ledger", 2), ("refunds", 2)]


def test_what_had_not_begun_when_its_run_was_cancelled_costs_nothing(costly, sam):
    Rule.objects.update(verdict="ask")
    run = costly.run(calls(call("a", "label", text="x")), says("done"))
    actions.cancel_run(run.pk, sam)
    run.refresh_from_db()
    assert (run.state, run.cost, costly.execution(run, "a").cost, Spending.objects.count()) == ("cancelled", 0, 0, 0)
