"""What a guided step looked at before it decided, as plain values: it travels with the reply into the record."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

GUIDED = "guided"
"""The driver that follows guidelines: its runs keep theirs, and a script does not take its place."""

Origin = Literal["model", "always", "python", "entailed", "reevaluated", "transient"]
EvaluationState = Literal["needs_to_run", "data_already_in_context", "cannot_run", "not_applicable"]
Mode = Literal["auto_approved", "short", "full"]


@dataclass(frozen=True)
class Matched:
    """One guideline that was looked at: whether it holds here, who says so, and why."""

    guideline: str
    matched: bool
    origin: Origin
    why: str = ""
    suppressed_by: str = ""
    """The guideline that goes before this one. Its action and its tools do not count then."""
    version: int = 0
    condition: str = ""
    action: str = ""
    step: int = 0
    """Of an earlier step: its number. 0: this one."""

    @property
    def is_active(self) -> bool:
        return self.matched and not self.suppressed_by


@dataclass(frozen=True)
class Insight:
    """A parameter without which a tool cannot run: missing, or given a value it cannot have."""

    kind: Literal["missing", "invalid"]
    tool: str
    parameter: str
    display_name: str
    significance: str = ""
    description: str = ""
    examples: tuple[str, ...] = ()
    choices: tuple[Any, ...] | None = None
    precedence: int | None = None
    """Of several groups of parameters the one with the lowest number is asked for first; None comes last."""
    invalid_value: Any = None
    hidden: bool = False
    """Never named to the customer. It blocks all the same."""


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
    """The ids of the calls that came of it."""
    step: int = 0


@dataclass(frozen=True)
class Asked:
    """What a model was asked for one purpose in a step, and what that took."""

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
    """Everything a guided step looked at."""

    iteration: int
    matches: tuple[Matched, ...] = ()
    evaluations: tuple[Evaluated, ...] = ()
    offered: tuple[str, ...] = ()
    """The candidate tools: nothing else could be called in this step."""
    asked: tuple[Asked, ...] = ()
    more_looks: int = 0
    """How often guidelines were looked at again because a planner wanted to."""
