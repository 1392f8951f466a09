"""What an installation may do with a plan: look at it, leave calls out, reorder them, ask for another look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentapp.considered import Matched
from agentapp.guidance import extensions
from agentapp.guidance.known import Context, Done


@dataclass(frozen=True)
class PlannedCall:
    """One call that is about to be proposed, and the guidelines that asked for it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    guidelines: tuple[str, ...] = ()


class Planner(Protocol):
    """Named by the dotted path of its class in an agent's `driver_settings`. A new one is made for each step."""

    def on_guidelines_resolved(self, context: Context, matches: Sequence[Matched]) -> None:
        """The guidelines of an iteration are known."""
        ...

    def on_tools_inferred(self, context: Context, calls: Sequence[PlannedCall]) -> Sequence[PlannedCall]:
        """The calls of an iteration, if any. Those returned are proposed in that order; no other call can be added."""
        ...

    def on_tools_called(self, context: Context, calls: Sequence[Done]) -> None:
        """The calls of the previous step are answered."""
        ...

    def needs_additional_iteration(self, context: Context) -> bool:
        """Whether to look at the guidelines once more before an answer is written. Asked if nothing is called."""
        ...


class ByCode:
    """An installation's planner. If it raises, or returns something else than calls, the run ends and names it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.planner = extensions.call(path, _WHAT)

    def on_guidelines_resolved(self, context: Context, matches: Sequence[Matched]) -> None:
        self._ask("on_guidelines_resolved", context, matches)

    def on_tools_inferred(self, context: Context, calls: Sequence[PlannedCall]) -> Sequence[PlannedCall]:
        found = self._ask("on_tools_inferred", context, calls)
        if not isinstance(found, list | tuple) or not all(isinstance(call, PlannedCall) for call in found):
            raise extensions.unusable(f"{self.path}.on_tools_inferred", _WHAT, "did not return a list of calls")
        return found

    def on_tools_called(self, context: Context, calls: Sequence[Done]) -> None:
        self._ask("on_tools_called", context, calls)

    def needs_additional_iteration(self, context: Context) -> bool:
        found = self._ask("needs_additional_iteration", context)
        if not isinstance(found, bool):
            raise extensions.unusable(f"{self.path}.needs_additional_iteration", _WHAT, "gave neither true nor false")
        return found

    def _ask(self, name: str, *arguments: Any) -> Any:
        method = getattr(self.planner, name, None)
        if not callable(method):
            raise extensions.unusable(self.path, _WHAT, f"has no {name}")
        return extensions.ask(method, f"{self.path}.{name}", _WHAT, *arguments)


_WHAT = "The planner"


class PassThrough:
    """Accepts everything as it is, and wants no further look."""

    def on_guidelines_resolved(self, context: Context, matches: Sequence[Matched]) -> None:
        return None

    def on_tools_inferred(self, context: Context, calls: Sequence[PlannedCall]) -> Sequence[PlannedCall]:
        return calls

    def on_tools_called(self, context: Context, calls: Sequence[Done]) -> None:
        return None

    def needs_additional_iteration(self, context: Context) -> bool:
        return False
