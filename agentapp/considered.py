"""What a guided step considered before it decided, as plain values that go into the record with the reply."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

GUIDED = "guided"
"""The driver that follows guidelines. Its runs keep their guidelines, and a script does not replace it."""

Origin = Literal["model", "always", "python", "entailed", "reevaluated", "transient"]
EvaluationState = Literal["needs_to_run", "data_already_in_context", "cannot_run", "not_applicable"]
Mode = Literal["auto_approved", "short", "full"]


@dataclass(frozen=True)
class Matched:
    """One guideline that was considered: whether it holds here, who says so, and why."""

    guideline: str
    matched: bool
    origin: Origin
    why: str = ""
    suppressed_by: str = ""
    """The guideline that takes precedence. This one's action and tools then do not count."""
    version: int = 0
    condition: str = ""
    action: str = ""
    step: int = 0
    """The number of the earlier step it comes from. 0: this step."""

    @property
    def is_active(self) -> bool:
        return self.matched and not self.suppressed_by


@dataclass(frozen=True)
class Insight:
    """A parameter that keeps a tool from running: it is missing, or its value is invalid."""

    kind: Literal["missing", "invalid"]
    tool: str
    parameter: str
    display_name: str
    significance: str = ""
    description: str = ""
    examples: tuple[str, ...] = ()
    choices: tuple[Any, ...] | None = None
    precedence: int | None = None
    """The group of parameters with the lowest number is asked for first; None comes last."""
    invalid_value: Any = None
    hidden: bool = False
    """Never named to the customer, but it still blocks."""


@dataclass(frozen=True)
class Evaluated:
    """What became of one candidate tool, and why."""

    tool: str
    batch: int
    state: EvaluationState
    mode: Mode
    guidelines: tuple[str, ...] = ()
    why: str = ""
    insights: tuple[Insight, ...] = ()
    calls: tuple[str, ...] = ()
    """The ids of the resulting calls."""
    step: int = 0


@dataclass(frozen=True)
class Asked:
    """The model requests for one purpose in a step, and what they cost."""

    purpose: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    """None: the price is unknown."""
    seconds: float
    batch: int | None = None


@dataclass(frozen=True)
class Guidance:
    """Everything a guided step considered."""

    iteration: int
    matches: tuple[Matched, ...] = ()
    evaluations: tuple[Evaluated, ...] = ()
    offered: tuple[str, ...] = ()
    """The candidate tools: no other could be called in this step."""
    asked: tuple[Asked, ...] = ()
    more_looks: int = 0
    """How often guidelines were matched again because a planner asked for it."""
