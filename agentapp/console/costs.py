"""Where a run's tokens and money went, by model, by tool and by step. Uses the rows that make up the head's totals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from agentapp.timeline import Timeline
from agentapp.trace_rows import CallFacts, StepFacts


@dataclass(frozen=True)
class Spent:
    """What one step, or all calls of one model or tool, took. `share` is of the whole cost, 0 to 1."""

    name: str
    calls: int = 1
    failed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cost: Decimal = Decimal(0)
    is_partial: bool = False
    share: float = 0.0
    step: int = 0

    @property
    def percent(self) -> float:
        return round(100 * self.share, 1)


def by_model(line: Timeline) -> list[Spent]:
    """One line for each model, the most expensive first."""
    steps: dict[str, list[StepFacts]] = defaultdict(list)
    for one in line.told:
        steps[one.step.model].append(one.step)
    return _dearest_first(_of_steps(name or "not named", found, line) for name, found in steps.items())


def by_tool(line: Timeline) -> list[Spent]:
    """One line for each tool that was called, the most expensive first."""
    calls: dict[str, list[tuple[CallFacts, bool, float]]] = defaultdict(list)
    for one in line.told:
        for call in one.calls:
            calls[call.call.name].append((call.call, call.failed, sum(span.seconds for span in call.work)))
    spent = []
    for name, found in calls.items():
        cost = sum((call.cost for call, _, _ in found), Decimal(0))
        failed, seconds = sum(failed for _, failed, _ in found), sum(seconds for _, _, seconds in found)
        spent.append(Spent(name, len(found), failed, seconds=seconds, cost=cost, share=_share(cost, line)))
    return _dearest_first(spent)


def by_step(line: Timeline, first: int, last: int) -> list[Spent]:
    """One line for each model call from `first` to `last`."""
    told = line.told[first - 1 : last]
    return [_of_steps(line_name, [one.step], line) for one in told if (line_name := one.step.model or "not named")]


def _of_steps(name: str, steps: Sequence[StepFacts], line: Timeline) -> Spent:
    cost = sum((step.cost or Decimal(0) for step in steps), Decimal(0))
    return Spent(
        name,
        len(steps),
        sum(bool(step.error) for step in steps),
        sum(step.input_tokens for step in steps),
        sum(step.cached_tokens for step in steps),
        sum(step.output_tokens for step in steps),
        sum((step.finished_at - step.started_at).total_seconds() for step in steps),
        cost,
        any(step.cost is None for step in steps),
        _share(cost, line),
        steps[0].number,
    )


def _share(cost: Decimal, line: Timeline) -> float:
    return float(cost / line.totals.cost) if line.totals.cost else 0.0


def _dearest_first(spent: Iterable[Spent]) -> list[Spent]:
    return sorted(spent, key=lambda one: (-one.cost, -one.calls, one.name))
