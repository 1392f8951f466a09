"""What runs have used of models and tools, added up in their rows. Part of the writer of runs: `runs` re-exports it."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from django.db.models import F

from agentapp.messages import Reply, Usage
from agentapp.models import ModelUse, Run, ToolExecution
from approvals.clock import Now

NOTHING = Decimal(0)


def cost_of(execution: ToolExecution) -> Decimal:
    """What one call costs, however it ends."""
    return execution.tool.cost_per_call if execution.tool is not None else NOTHING


def add_cost(run: Run, cost: Decimal) -> None:
    """Add the cost of tool calls to the run. The caller holds its lock. A cost of zero is not written."""
    if cost:
        Run.objects.filter(pk=run.pk).update(cost=F("cost") + cost)
        run.cost += cost


def add_usage(run: Run, usage: Usage) -> None:
    """Add what a model used outside a step. The caller holds its lock."""
    usage = usage.credible
    Run.objects.filter(pk=run.pk).update(**columns(usage))
    if usage != Usage():
        ModelUse.objects.create(run=run, at=Now(), cost=usage.cost, **tokens(usage))
    run.cost += usage.cost or 0


def tokens(usage: Usage) -> dict[str, int]:
    """The tokens of a reply, as columns."""
    return {name: getattr(usage, name) for name in ("input_tokens", "cached_tokens", "output_tokens")}


def columns(usage: Usage) -> dict[str, Any]:
    """What a reply adds to its run, as columns."""
    return {
        "input_tokens": F("input_tokens") + usage.input_tokens,
        "cached_tokens": F("cached_tokens") + usage.cached_tokens,
        "output_tokens": F("output_tokens") + usage.output_tokens,
        "cost": F("cost") + (usage.cost or 0),
        "cost_is_partial": True if usage.cost is None else F("cost_is_partial"),
    }


def asked(reply: Reply) -> list[dict[str, Any]]:
    """What models were asked for in a step, and what each cost, if it took more than one reply."""
    found = reply.guidance.asked if reply.guidance else ()
    return [{**asdict(each), "cost": None if each.cost is None else str(each.cost)} for each in found]
