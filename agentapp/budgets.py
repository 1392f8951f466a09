"""What a run may cost, and an agent in a day. The only writer of Spending.

Limits are checked before a decision, when a call is proposed, and when a call that no person approved begins, each with
its likely cost. What a person allows a run beyond its limits raises both limits.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from django.db.models import F

from agentapp import lineage, runs
from agentapp.messages import StopSignal
from agentapp.models import Agent, Run, Spending, ToolExecution
from agentapp.reasons import StopReason
from agentapp.spending import NOTHING as NOTHING
from agentapp.spending import cost_of as cost_of
from agentapp.transcript import StepRows
from approvals.clock import Now


@dataclass(frozen=True)
class Breach:
    """A limit that the next act would exceed."""

    signal: StopSignal
    asks: bool
    """A person may allow more. Otherwise the run stops, or the call is refused."""
    until: datetime | None = None
    """When a daily limit has room again by itself. None: only a person can make room."""

    def told(self, tool: str) -> str:
        """What the model is told about a call that nobody may allow."""
        return f"{self.signal.message} Go on without {tool}."


def next_step_cost(steps: Sequence[StepRows]) -> Decimal:
    """The likely cost of another decision: as much as the last one, since the history only grows."""
    return next((rows.step.cost for rows in reversed(steps) if rows.step.cost is not None), Decimal(0))


def breach(run: Run, steps: Sequence[StepRows], projected: Decimal, day: date) -> Breach | None:
    """The limit that spending `projected` dollars more would exceed.

    Queries only for agents with a daily limit, and for runs that have asked agents: their cost counts too.
    """
    return _of_run(run, steps, projected) or _of_day(run, projected, day)


def breach_at_begin(run: Run, steps: Sequence[StepRows], cost: Decimal, day: date) -> Breach | None:
    """The limit that a call of this cost would exceed: it was allowed when there was room, and begins now.

    Call inside the transaction in which it begins: that locks the day, so of two calls that begin together one sees
    the other. A call is paid for when it ends; until then, calls that have begun count here. No query for a call that
    costs nothing.
    """
    if not cost:
        return None
    begun = {
        (call.name, call.arguments_digest): cost_of(call)
        for call in (steps[-1].executions if steps else ())
        if call.state == ToolExecution.State.EXECUTING and call.subrun_id is None
    }
    found = _of_run(run, steps, sum(begun.values(), cost))
    if found is not None or not _keeps_books(run):
        return found
    Spending.objects.get_or_create(agent_id=run.agent_id, day=day)
    Spending.objects.select_for_update().get(agent=run.agent_id, day=day)
    under_way = ToolExecution.objects.filter(state=ToolExecution.State.EXECUTING, subrun__isnull=True)
    under_way = under_way.filter(run__agent=run.agent_id, run__mocks__isnull=True, tool__cost_per_call__gt=0)
    # The same read, asked for twice, runs once.
    costs = under_way.values_list("run", "name", "arguments_digest", "tool__cost_per_call").distinct().order_by()
    return _of_day(run, sum((each[-1] for each in costs), cost), day)


def _keeps_books(run: Run) -> bool:
    """Whether a run's cost counts towards its agent's day. A mocked run's does not."""
    return not run.is_mocked and run.agent_snapshot["max_daily_cost"] is not None


def _of_run(run: Run, steps: Sequence[StepRows], projected: Decimal) -> Breach | None:
    agent = run.agent_snapshot
    if agent["max_cost"] is not None:
        limit = Decimal(agent["max_cost"]) + run.budget_extra
        if any(execution.subrun_id is not None for rows in steps for execution in rows.executions):
            whose, spent = "run, with those that it asked for,", lineage.cost_of_family(run).cost
        else:
            whose, spent = "run", run.cost
        signal = _passed(whose, spent, projected, limit, "max_cost")
        if signal is not None:
            return Breach(signal, agent["on_budget"] == Agent.OnBudget.ASK)
    return None


def _of_day(run: Run, projected: Decimal, day: date) -> Breach | None:
    agent = run.agent_snapshot
    if _keeps_books(run):
        row = Spending.objects.filter(agent=run.agent_id, day=day).first()
        spent = row.cost if row else Decimal(0)
        limit = Decimal(agent["max_daily_cost"]) + run.budget_extra
        signal = _passed(f"day of {agent['name']}", spent, projected, limit, "max_daily_cost")
        if signal is not None:
            asks = agent["on_budget"] == Agent.OnBudget.ASK
            return Breach(signal, asks, until=datetime.combine(day + timedelta(days=1), time(), UTC))
    return None


def pay(run: Run, cost: Decimal) -> None:
    """Add the cost of calls to the run and to its agent's day."""
    runs.add_cost(run, cost)
    spend(run, cost)


def pay_all(costs: Collection[tuple[Run, Decimal]]) -> None:
    """`pay` for several runs, once all are locked: whoever stores a call's cost locks its run first, then the day."""
    count_into_runs(costs)
    count_into_days(costs)


def count_into_runs(costs: Iterable[tuple[Run, Decimal]]) -> None:
    for run, cost in costs:
        runs.add_cost(run, cost)


def count_into_days(costs: Iterable[tuple[Run, Decimal]]) -> None:
    """Always in the same order, so that two transactions that end runs cannot wait for each other."""
    for run, cost in sorted(costs, key=lambda one: one[0].agent_id):
        spend(run, cost)


def spend(run: Run, cost: Decimal | None) -> None:
    """Add a run's cost to its agent's day. Call inside the transaction that stores the cost."""
    if not cost or not _keeps_books(run):
        return
    # By the same clock as `breach`, however wrong this server's clock is.
    now: datetime = Agent.objects.values_list(Now(), flat=True).get(pk=run.agent_id)
    today = now.astimezone(UTC).date()
    if not Spending.objects.filter(agent=run.agent_id, day=today).update(cost=F("cost") + cost):
        row, made = Spending.objects.get_or_create(agent_id=run.agent_id, day=today, defaults={"cost": cost})
        if not made:
            Spending.objects.filter(pk=row.pk).update(cost=F("cost") + cost)


def _passed(whose: str, spent: Decimal, projected: Decimal, limit: Decimal, source: str) -> StopSignal | None:
    if spent < limit and spent + projected <= limit:
        return None
    expected = f", and the next act would cost about ${projected:.4f}" if spent < limit else ""
    message = f"The {whose} has cost ${spent:.4f} of ${limit:.4f}{expected}."
    context = {"spent": str(spent), "projected": str(projected), "max": str(limit)}
    return StopSignal(StopReason.COST_LIMIT, message, context, source)
