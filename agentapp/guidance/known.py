"""What guidance rests on beside the messages: the tools, what this run has done, what its earlier steps looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from agentapp.considered import Evaluated, Matched
from agentapp.guidance.guidelines import Guidelines
from agentapp.messages import ChatMessage, ToolCall

Overlap = Literal["none", "auto", "always"]


@dataclass(frozen=True)
class ToolFacts:
    """One disclosed tool: what a model reads of it, and what bears on how it is looked at."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    consequential: bool = True
    overlap: Overlap = "auto"
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """By argument what its declaration says beyond the schema; see `tools.parameters`."""
    secret_fields: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.input_schema.get("properties", {}))


@dataclass(frozen=True)
class Done:
    """One call that this run has made or tried."""

    step: int
    """0: of a run that this one tries again."""
    tool: str
    arguments: Mapping[str, Any] | None
    """None where they cannot be read."""
    took_effect: bool = False
    """And was not taken back since."""
    stands: bool = True
    """Whether it counts as made: not one that was not run, failed for now, or was taken back since."""
    is_answered: bool = True
    told: str = ""
    """What the model was told of it."""
    transient: tuple[Mapping[str, Any], ...] = ()
    """Guidelines that its result brought along."""


@dataclass(frozen=True)
class Known:
    """What a guided step may know beside what every driver is told."""

    step: int = 1
    """The number of the step to decide, among the run's own."""
    iteration: int = 1
    """How often guidelines have been looked at in the run, this time included: once a step, and as often more as a
    planner wanted."""
    tools: Mapping[str, ToolFacts] = field(default_factory=lambda: MappingProxyType({}))
    calls: tuple[Done, ...] = ()
    done_before: frozenset[str] = frozenset()
    """The tools whose acts earlier runs of the conversation did, or whoever did what was refused a second time."""
    matches: tuple[Matched, ...] = ()
    """Of the run's earlier steps, the first first."""
    evaluations: tuple[Evaluated, ...] = ()
    customer: str = ""
    conversation_id: str = ""
    route: str = ""
    stale: tuple[ToolCall, ...] = ()
    """The calls that read context variables anew, before anything else is looked at."""
    variables: tuple[tuple[str, str], ...] = ()
    """By name what was read of context variables before this run, as a model may read it."""
    readings: int = 0
    """Of the run's earlier steps, those that only read context variables."""


@dataclass(frozen=True)
class Turn:
    """What one iteration of the preparation works on."""

    run_id: str
    step: int
    agent: Mapping[str, Any]
    messages: tuple[ChatMessage, ...]
    guidelines: Guidelines
    known: Known


@dataclass(frozen=True)
class Context:
    """What code of an installation is told: matchers, choice providers, planners. Plain values only."""

    run_id: str
    step: int
    iteration: int
    agent: str
    customer: str
    conversation_id: str
    route: str
    messages: tuple[ChatMessage, ...]
    calls: tuple[Done, ...]

    @classmethod
    def of(cls, turn: Turn) -> "Context":
        known = turn.known
        return cls(
            turn.run_id, turn.step, known.iteration, turn.agent.get("name", ""), known.customer,
            known.conversation_id, known.route, turn.messages, known.calls,
        )  # fmt: skip
