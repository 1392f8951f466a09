"""What an installation may write for its guidance: matchers, choices, planners, batchers."""

from collections.abc import Sequence
from typing import Any, ClassVar

from agentapp.guidance.batching import Batch, Candidate
from agentapp.guidance.known import Context


def is_vip(context: Context) -> tuple[bool, str]:
    return context.customer.startswith("vip"), f"The customer is {context.customer}."


def broken(context: Context) -> bool:
    return bool(1 / 0)


def own_accounts(context: Context) -> list[str]:
    return [f"{context.customer}-savings", f"{context.customer}-daily"]


def nothing_to_choose(context: Context) -> list[str]:
    return []


def one_batch(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    return [Batch(1, tuple(candidates))]


class Watching:
    """A planner that notes what it is told."""

    noted: ClassVar[list[tuple[str, Any]]] = []

    def on_guidelines_resolved(self, context: Context, matches: Any) -> None:
        self.noted.append(("resolved", [match.guideline for match in matches if match.is_active]))

    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        self.noted.append(("inferred", [call.tool for call in calls]))
        return calls

    def on_tools_called(self, context: Context, calls: Any) -> None:
        self.noted.append(("called", [call.tool for call in calls]))

    def needs_additional_iteration(self, context: Context) -> bool:
        self.noted.append(("more", context.iteration))
        return False


class Backwards(Watching):
    """Takes calls in the other order, leaves the last out, and looks twice."""

    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        return list(reversed(calls))[:-1] if len(calls) > 1 else calls

    def needs_additional_iteration(self, context: Context) -> bool:
        return context.iteration == 1
