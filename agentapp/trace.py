"""Rows → what the console and the API show of a run. Reads only."""

from django.db.models import Prefetch

from agentapp.models import Run, Step, ToolExecution
from approvals.models import Decision


def steps_of(run: Run) -> list[Step]:
    """A run's steps with their calls, each call with its approval and the decisions about it. Three queries."""
    decisions = Decision.objects.select_related("user").order_by("decided_at")
    calls = (
        ToolExecution.objects.select_related("tool", "approval")
        .prefetch_related(Prefetch("approval__decisions", queryset=decisions))
        .order_by("index")
    )
    return list(run.steps.order_by("number").prefetch_related(Prefetch("executions", queryset=calls)))
