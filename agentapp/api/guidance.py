"""How the API shows what a step looked at where guidelines decide."""

from typing import Any

from pydantic import BaseModel, Field

from agentapp.models import GuidelineMatch, Step, ToolEvaluation, ToolInsight


class MatchOut(BaseModel):
    """What a step said about one guideline."""

    guideline: str
    version: int | None = Field(description="Null for one that came with the result of a call.")
    condition: str | None
    action: str | None
    matched: bool
    suppressed_by: str | None = Field(description="The guideline that takes precedence, so this action does not count.")
    origin: str = Field(description="`model`, `always`, `python`, `entailed`, `reevaluated` or `transient`.")
    rationale: str | None = Field(description="The model's reason, if it gave one: a claim.")


class InsightOut(BaseModel):
    """A parameter that keeps a tool from running."""

    kind: str = Field(description="`missing` or `invalid`.")
    parameter: str
    display_name: str
    significance: str | None
    description: str | None
    examples: list[str]
    choices: list[Any] | None
    precedence: int | None
    invalid_value: Any = Field(description="Masked if the argument is secret.")
    hidden: bool = Field(description="Never named to the customer.")


class ToolEvaluationOut(BaseModel):
    """What a step decided about one candidate tool."""

    tool: str
    batch: int
    state: str = Field(description="`needs_to_run`, `data_already_in_context`, `cannot_run` or `not_applicable`.")
    mode: str = Field(description="`auto_approved` (no model was asked), `short` or `full` (argument by argument).")
    guidelines: list[str] = Field(description="Those that asked for the tool. Empty if guidance is open.")
    rationale: str | None = Field(description="The model's own words: a claim.")
    insights: list[InsightOut]


class GuidanceOut(BaseModel):
    """What a step looked at before it decided."""

    matches: list[MatchOut]
    evaluations: list[ToolEvaluationOut]
    asked: list[dict[str, Any]] = Field(description="What models were asked, by purpose, and what it cost.")


def guidance_out(step: Step) -> GuidanceOut:
    """Reads the step's matches and its evaluations with their insights, which the caller has fetched."""
    return GuidanceOut(
        matches=[_match(match) for match in step.guideline_matches.all()],
        evaluations=[_evaluation(evaluation) for evaluation in step.tool_evaluations.all()],
        asked=step.asked,
    )


def _match(match: GuidelineMatch) -> MatchOut:
    return MatchOut(
        guideline=match.guideline,
        version=match.version or None,
        condition=match.snapshot.get("condition") or None,
        action=match.snapshot.get("action") or None,
        matched=match.matched,
        suppressed_by=match.suppressed_by or None,
        origin=match.origin,
        rationale=match.rationale or None,
    )


def _evaluation(evaluation: ToolEvaluation) -> ToolEvaluationOut:
    return ToolEvaluationOut(
        tool=evaluation.tool,
        batch=evaluation.batch,
        state=evaluation.state,
        mode=evaluation.mode,
        guidelines=evaluation.guidelines,
        rationale=evaluation.rationale or None,
        insights=[_insight(insight) for insight in evaluation.insights.all()],
    )


def _insight(insight: ToolInsight) -> InsightOut:
    return InsightOut(
        kind=insight.kind,
        parameter=insight.parameter,
        display_name=insight.display_name,
        significance=insight.significance or None,
        description=insight.description or None,
        examples=insight.examples,
        choices=insight.choices,
        precedence=insight.precedence,
        invalid_value=insight.invalid_value,
        hidden=insight.hidden,
    )
