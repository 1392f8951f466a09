"""The two contracts of a run: a driver decides the next step, an executor runs the calls it asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentapp import llm
from agentapp.guidance.known import Known
from agentapp.llm import ModelError
from agentapp.messages import ChatMessage, Reply, ToolSpec

__all__ = ["Driver", "ModelError", "Runtime", "StepRequest"]


@dataclass(frozen=True)
class StepRequest:
    """What a driver may know when it decides a step: the run as plain values, without its rows."""

    run_id: str
    step: int
    """The number of the step to decide. The first is 1, or follows the steps that a retry takes as done."""
    agent: Mapping[str, Any]
    """The agent's configuration as the run keeps it."""
    script: list[dict[str, Any]] | None
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...]
    tool_choice: str = "auto"
    """"auto", "required", "none" or the name of one tool."""
    known: Known | None = None
    """What guidance is based on; None for a driver that does not follow guidelines."""


class Runtime(Protocol):
    """What a driver is bound to for one drive. Its models are behind the run's hooks and breakers."""

    def complete(self, request: llm.Request, *, seen: bool = False) -> Reply:
        """Ask a model and wait for the whole reply. Raises ModelError. `seen`: its text is meant for people as it is,
        and they may read it while it is written.
        """
        ...

    def complete_all(self, requests: Sequence[llm.Request]) -> list[Reply | ModelError]:
        """Send several requests at once and wait for all. Returns the outcomes in the same order."""
        ...

    def replay(self, request: llm.Request, reply: Reply) -> Reply:
        """Take a reply from a script as if a model had given it."""
        ...


class Driver(Protocol):
    """A strategy that decides steps, and leaves every call to the executor. It never runs a tool.

    An instance serves one drive; between drives a driver remembers only what the steps say, so that any
    worker may decide any step of any run. A driver that reads the agent's `driver_settings` may have a
    `check_settings(settings) -> list[str]`: the sentences people read where they configure it. A driver
    that does not use native function calling may have an `in_words(state) -> Reply`: the answer to a
    person whose question comes last in the messages.
    """

    def bind(self, runtime: Runtime) -> None:
        """Called once, before the first step of a drive."""
        ...

    def next_step(self, state: StepRequest) -> Reply:
        """Decide one step: text, calls, or both. Raises ModelError; its `retryable` says whether to try again."""
        ...
