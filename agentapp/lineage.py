"""Who asked whom: the runs above a run, and the cost of those below it. Reads only."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from agentapp.models import Run


@dataclass(frozen=True)
class Asker:
    """One run on the way from the one a person started to the one that acts."""

    run: uuid.UUID
    agent: str


@dataclass(frozen=True)
class FamilyCost:
    """The cost of a run together with every run below it."""

    cost: Decimal
    is_partial: bool


def path_of(run: Run) -> tuple[Asker, ...]:
    """The runs from the first to this one, each with its agent's name at the time. One query for each run above it."""
    path, at = [_asker(run)], run
    while at.parent_id is not None:
        at = Run.objects.only("parent", "agent_snapshot").get(pk=at.parent_id)
        path.append(_asker(at))
    return tuple(reversed(path))


def cost_of_family(run: Run) -> FamilyCost:
    """One query for each level below the run, however many runs there are."""
    cost, is_partial = run.cost, run.cost_is_partial
    above: Sequence[uuid.UUID] = [run.pk]
    while above:
        below = list(Run.objects.filter(parent__in=above).values_list("pk", "cost", "cost_is_partial"))
        cost += sum((row[1] for row in below), Decimal(0))
        is_partial = is_partial or any(row[2] for row in below)
        above = [row[0] for row in below]
    return FamilyCost(cost, is_partial)


def root_of(run: Run) -> uuid.UUID:
    """The run that was started from outside. One query for each run above this one."""
    root, above = run.pk, run.parent_id
    while above is not None:
        root = above
        above = Run.objects.values_list("parent", flat=True).get(pk=root)
    return root


def size_of_family(root: uuid.UUID, most: int) -> int:
    """How many runs there are, counting a run and all below it, up to `most`. One query for each level."""
    size, above = 1, [root]
    while above and size < most:
        above = list(Run.objects.filter(parent__in=above).order_by().values_list("pk", flat=True)[: most - size])
        size += len(above)
    return size


def unfinished_below(run: Run) -> list[Run]:
    """The unfinished runs that this one asked for, and those they asked for. One query for each level."""
    found: list[Run] = []
    above = [run.pk]
    while above:
        level = list(Run.objects.filter(parent__in=above).exclude(state__in=Run.FINAL))
        found += level
        above = [child.pk for child in level]
    return found


def _asker(run: Run) -> Asker:
    return Asker(run.pk, run.agent_snapshot["name"])
