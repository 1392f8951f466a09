"""Rows → what the console and the API show of a run's steps and calls. Reads only."""

from typing import Any

from django.db.models import Prefetch

from agentapp.considered import GUIDED
from agentapp.models import GuidelineMatch, Run, Step, ToolEvaluation, ToolExecution
from approvals.models import Decision, Event

# Columns of a run that answers a call, which only its own page shows.
_SUBRUN_UNREAD = tuple(f"subrun__{name}" for name in ("agent_snapshot", "input", "script", "metadata", "answer"))


def steps_of(run: Run) -> list[Step]:
    """A run's steps with their calls, each call with its approval and the decisions about it. Three queries.

    If guidelines decide, three more for what each step looked at.
    """
    decisions = Decision.objects.select_related("user", "on_behalf_of").order_by("decided_at")
    calls = ToolExecution.objects.select_related("tool", "approval", "subrun__agent", "evaluation").order_by("index")
    calls = calls.defer(*_SUBRUN_UNREAD).prefetch_related(Prefetch("approval__decisions", queryset=decisions))
    looked_at = (
        ["guideline_matches", "tool_evaluations__insights"] if run.agent_snapshot.get("driver") == GUIDED else []
    )
    steps = run.steps.order_by("number").prefetch_related(Prefetch("executions", queryset=calls), *looked_at)
    return list(steps)


def call_of(run: Run, step: int, index: int) -> ToolExecution | None:
    """One call with everything kept about it. One query; the timeline has the people who decided about it."""
    calls = ToolExecution.objects.select_related(
        "step", "tool", "approval", "replay_of__step", "subrun__agent", "evaluation"
    )  # fmt: skip
    return calls.defer(*_SUBRUN_UNREAD).filter(run=run, step__number=step, index=index).first()


def guidance_of(step: Step) -> tuple[list[GuidelineMatch], list[ToolEvaluation]]:
    """What a step looked at if guidelines decide: guidelines, and tools with what they lack. Three queries."""
    evaluations = step.tool_evaluations.order_by("index").prefetch_related("insights")
    return list(step.guideline_matches.order_by("index")), list(evaluations)


def steps_upto(run: Run, number: int, before: int = 0) -> list[Step]:
    """One step with the calls it asked for, after up to `before` steps that precede it. Two queries.

    Empty: there is no such step.
    """
    calls = ToolExecution.objects.select_related("tool", "approval", "replay_of__tool").order_by("index")
    steps = run.steps.filter(number__range=(number - before, number)).order_by("number")
    found = list(steps.prefetch_related(Prefetch("executions", queryset=calls)))
    return found if found and found[-1].number == number else []


def said(event: Event) -> dict[str, Any] | None:
    """The data of an event; None if somebody has tampered with it so that it cannot be read."""
    try:
        return event.data
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
