"""What an installation may do with a plan: look at it, leave calls out, reorder them, ask for another look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentapp.considered import Matched
from agentapp.guidance.known import Context, Done


@dataclass(frozen=True)
class PlannedCall:
    """One call that is about to be proposed, and the guidelines that asked for it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    guidelines: tuple[str, ...] = ()


class Planner(Protocol):
    """Named by the dotted path of its class in an agent's `driver_settings`. Made anew for each step."""

    def on_guidelines_resolved(self, context: Context, matches: Sequence[Matched]) -> None:
        """The guidelines of an iteration are known."""
        ...

    def on_tools_inferred(self, context: Context, calls: Sequence[PlannedCall]) -> Sequence[PlannedCall]:
        """The calls of an iteration, if any. Those returned are proposed, in that order; no other call can be added."""
        ...

    def on_tools_called(self, context: Context, calls: Sequence[Done]) -> None:
        """The calls of the step before are answered."""
        ...

    def needs_additional_iteration(self, context: Context) -> bool:
        """Nothing is called. Whether to look at the guidelines once more before an answer is written."""
        ...


class PassThrough:
    """Takes everything as it comes, and wants no more."""

    def on_guidelines_resolved(self, context: Context, matches: Sequence[Matched]) -> None:
        return None

    def on_tools_inferred(self, context: Context, calls: Sequence[PlannedCall]) -> Sequence[PlannedCall]:
        return calls

    def on_tools_called(self, context: Context, calls: Sequence[Done]) -> None:
        return None

    def needs_additional_iteration(self, context: Context) -> bool:
        return False
