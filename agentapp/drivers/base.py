"""What a driver is: a strategy that turns the state of a run into the model's next step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentapp.llm import ModelError
from agentapp.messages import ChatMessage, Reply, ToolSpec

__all__ = ["Driver", "ModelError", "StepRequest"]


@dataclass(frozen=True)
class StepRequest:
    """What a driver may know when it decides a step: the run as plain values, without its rows."""

    run_id: str
    step: int
    """The number of the step to decide; the first is 1."""
    agent: Mapping[str, Any]
    """The agent's configuration as the run keeps it."""
    script: list[dict[str, Any]] | None
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...]


class Driver(Protocol):
    """Stateless, so that any worker may decide any step of any run."""

    def next_step(self, state: StepRequest) -> Reply:
        """Decide one step. Raises ModelError; its `retryable` says whether the step is worth another try."""
        ...
