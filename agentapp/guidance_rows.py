"""The only writer of GuidelineMatch, ToolEvaluation and ToolInsight: what a step considered, stored with the step.

What a model said or a result brought along is cut to the length of its column.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from agentapp.considered import Asked, Evaluated, Guidance, Insight, Matched
from agentapp.models import GuidelineMatch, Run, Step, ToolEvaluation, ToolInsight
from approvals.digest import storable, storable_json

MAX_NAME_CHARS = 200


def record(run: Run, step: Step, guidance: Guidance) -> dict[str, ToolEvaluation]:
    """Store what a step considered. Returns, by call, the evaluation that led to it. Inside the step's transaction."""
    GuidelineMatch.objects.bulk_create(_match(run, step, index, match) for index, match in enumerate(guidance.matches))
    rows = [_evaluation(run, step, index, each, guidance.asked) for index, each in enumerate(guidance.evaluations)]
    ToolEvaluation.objects.bulk_create(rows)
    ToolInsight.objects.bulk_create(
        _insight(row, index, insight)
        for row, each in zip(rows, guidance.evaluations, strict=True)
        for index, insight in enumerate(each.insights)
    )
    return {call: row for row, each in zip(rows, guidance.evaluations, strict=True) for call in each.calls}


def matches_of(run: Run) -> list[Matched]:
    """What the run's steps have said about guidelines, earliest first. One query."""
    found = GuidelineMatch.objects.filter(run=run).select_related("step").order_by("step__number", "index")
    return [
        Matched(
            row.guideline,
            row.matched,
            row.origin,  # type: ignore[arg-type]
            row.rationale,
            row.suppressed_by,
            row.version,
            row.snapshot.get("condition", ""),
            row.snapshot.get("action", ""),
            row.step.number,
        )
        for row in found
    ]


def evaluations_of(run: Run) -> list[Evaluated]:
    """How the run's steps have evaluated tools, earliest first. Two queries."""
    found = ToolEvaluation.objects.filter(run=run).select_related("step").prefetch_related("insights")
    return [
        Evaluated(
            row.tool,
            row.batch,
            row.state,  # type: ignore[arg-type]
            row.mode,  # type: ignore[arg-type]
            tuple(row.guidelines),
            row.rationale,
            tuple(_read(row.tool, insight) for insight in row.insights.all()),
            step=row.step.number,
        )
        for row in found.order_by("step__number", "index")
    ]


def _match(run: Run, step: Step, index: int, match: Matched) -> GuidelineMatch:
    return GuidelineMatch(
        run=run,
        step=step,
        index=index,
        guideline=match.guideline,
        version=match.version,
        snapshot=storable_json({"condition": match.condition, "action": match.action}),
        matched=match.matched,
        rationale=storable(match.why),
        origin=match.origin,
        suppressed_by=match.suppressed_by,
    )


def _evaluation(run: Run, step: Step, index: int, each: Evaluated, asked: Sequence[Asked]) -> ToolEvaluation:
    took = next((use for use in asked if use.batch == each.batch), None)
    usage: dict[str, Any] = {}
    if took is not None:
        usage = {**asdict(took), "cost": None if took.cost is None else str(took.cost)}
    return ToolEvaluation(
        run=run,
        step=step,
        index=index,
        tool=each.tool,
        batch=each.batch,
        state=each.state,
        mode=each.mode,
        guidelines=list(each.guidelines),
        rationale=storable(each.why),
        usage=usage,
    )


def _insight(row: ToolEvaluation, index: int, insight: Insight) -> ToolInsight:
    return ToolInsight(
        evaluation=row,
        index=index,
        kind=insight.kind,
        parameter=insight.parameter[:MAX_NAME_CHARS],
        display_name=insight.display_name[:MAX_NAME_CHARS],
        significance=insight.significance,
        description=insight.description,
        examples=list(insight.examples),
        choices=None if insight.choices is None else storable_json(list(insight.choices)),
        precedence=insight.precedence,
        invalid_value=storable_json(insight.invalid_value),
        hidden=insight.hidden,
    )


def _read(tool: str, row: ToolInsight) -> Insight:
    return Insight(
        kind=row.kind,  # type: ignore[arg-type]
        tool=tool,
        parameter=row.parameter,
        display_name=row.display_name,
        significance=row.significance,
        description=row.description,
        examples=tuple(row.examples),
        choices=None if row.choices is None else tuple(row.choices),
        precedence=row.precedence,
        invalid_value=row.invalid_value,
        hidden=row.hidden,
    )


def erase(run: Run) -> None:
    """Erase the models' words on why guidelines and tools were judged as they were, and what tools brought along."""
    GuidelineMatch.objects.filter(step__run=run).update(rationale="")
    GuidelineMatch.objects.filter(step__run=run, origin="transient").update(snapshot={})
    ToolEvaluation.objects.filter(step__run=run).update(rationale="")
    ToolInsight.objects.filter(evaluation__step__run=run).update(invalid_value=None, choices=None, examples=[])
