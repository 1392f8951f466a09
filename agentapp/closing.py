"""How a run is closed: its row, its open calls and requests, the agents it asked, its agent's breaker."""

from decimal import Decimal

from agentapp import breakers, budgets, executions, runs, subagents
from agentapp.messages import StopSignal
from agentapp.models import Run
from agentapp.reasons import StopReason
from approvals import decisions


def finish(run: Run, final: str, signal: StopSignal, answer: str = "", *, partial: bool = False) -> None:
    """End the run and everything that still depends on it. Inside the transaction that holds its lock."""
    costs: list[tuple[Run, Decimal]] = []
    if final != Run.State.SUCCEEDED:
        by_person = StopReason.USER_REQUESTED if final == Run.State.CANCELLED else StopReason.STOP_REQUESTED
        costs = subagents.cancel_begun(run, by_person, signal.message)
        costs.append((run, executions.cancel_open(run, f"The run has ended: {signal.message}")))
        decisions.withdraw(run.pk, "The run has ended.")
        budgets.count_into_runs(costs)
    runs.finish(run, final, signal, answer, partial=partial)
    breakers.note_run(run, final)
    # In the same order as when a step is stored: the agent's breaker first, then its day.
    budgets.count_into_days(costs)
