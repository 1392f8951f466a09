"""What a customer is asked for: values that are missing or invalid, one group at a time."""

from collections.abc import Sequence

from agentapp.considered import Evaluated, Insight


def standing(evaluations: Sequence[Evaluated]) -> list[Insight]:
    """What the latest evaluation of each tool left open, hidden or not."""
    latest = {evaluation.tool: evaluation for evaluation in evaluations}
    return [insight for evaluation in latest.values() for insight in evaluation.insights]


def to_ask_for(insights: Sequence[Insight]) -> list[Insight]:
    """Those that may be named and have the lowest precedence value among them."""
    shown = [insight for insight in insights if not insight.hidden]
    if not shown:
        return []
    lowest = min(_rank(insight) for insight in shown)
    return [insight for insight in shown if _rank(insight) == lowest]


def _rank(insight: Insight) -> float:
    return float("inf") if insight.precedence is None else insight.precedence
