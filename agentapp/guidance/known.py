"""What guidance is based on besides the messages: the tools, what this run did, what its earlier steps looked at."""

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
    """One disclosed tool: what a model reads about it, and what affects how it is looked at."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    consequential: bool = True
    overlap: Overlap = "auto"
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """For each argument, what its declaration says beyond the schema; see `tools.parameters`."""
    secret_fields: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.input_schema.get("properties", {}))


@dataclass(frozen=True)
class Done:
    """One call that this run has made or tried."""

    step: int
    """0: the call belongs to a run that this one tries again."""
    tool: str
    arguments: Mapping[str, Any] | None
    """None if they cannot be read."""
    took_effect: bool = False
    """It took effect and has not been taken back since."""
    stands: bool = True
    """Whether it counts as made, so that the same call is not made again. It does not if it did not run or failed for
    now, nor if it belongs to a run that this one tries again and has been taken back since."""
    is_answered: bool = True
    told: str = ""
    """What the model was told about it."""
    transient: tuple[Mapping[str, Any], ...] = ()
    """Guidelines that its result brought along."""


@dataclass(frozen=True)
class Known:
    """What a guided step may know besides what every driver is told."""

    step: int = 1
    """The number of the step to decide, among the run's own."""
    iteration: int = 1
    """How often guidelines have been looked at in the run, including this time: once per step, plus each extra look
    that a planner wanted."""
    tools: Mapping[str, ToolFacts] = field(default_factory=lambda: MappingProxyType({}))
    calls: tuple[Done, ...] = ()
    done_before: frozenset[str] = frozenset()
    """The tools whose acts were done by earlier runs of the conversation, or by another run if a repeat was refused."""
    matches: tuple[Matched, ...] = ()
    """Those of the run's earlier steps, the earliest first."""
    evaluations: tuple[Evaluated, ...] = ()
    customer: str = ""
    conversation_id: str = ""
    route: str = ""
    stale: tuple[ToolCall, ...] = ()
    """The calls that read context variables again, before anything else is looked at."""
    variables: tuple[tuple[str, str], ...] = ()
    """The context variables read before this run, each by name with the text that a model may read."""
    readings: int = 0
    """How many of the run's earlier steps only read context variables."""


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
    """What an installation's own code is told: matchers, choice providers, planners. Plain values only."""

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
