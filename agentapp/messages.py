"""The vocabulary that the loop, the drivers and the tools share: frozen dataclasses, no Django."""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from agentapp.considered import Guidance

# The most that one reply can have used. More is a mistake, and would not fit the columns.
MAX_TOKENS = 1_000_000_000
MAX_COST = 100_000
# The longest wait for one call of a tool: a day.
MAX_TIMEOUT_SECONDS = 86_400

# Reasons why a call that acted did not return the promised result.
ACTED = ("tool_result_invalid", "limit_reached")
# In the control of an error result: the tool does not rule out that something was done.
MAY_HAVE_ACTED = "may_have_acted"

ResultStatus = Literal["ok", "refused", "retryable_error", "fatal_error"]
Trust = Literal["trusted_system", "untrusted_content"]


@dataclass(frozen=True)
class ToolCall:
    """A call as the model proposed it: nothing about it has been checked yet."""

    id: str
    name: str
    arguments_text: str
    variable: str = ""
    """The context variable that a driver refreshes with this call; empty if the model itself asked for it."""


@dataclass(frozen=True)
class Usage:
    """What one model reply used. `cost` is in US dollars; None means the price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: Decimal | None = Decimal(0)

    def __add__(self, other: "Usage") -> "Usage":
        """What two replies used together. An unknown price makes the sum unknown."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    @property
    def credible(self) -> "Usage":
        """Limited to what one reply can have used: an absurd figure from a provider must not stop a run."""
        return Usage(
            min(max(self.input_tokens, 0), MAX_TOKENS),
            min(max(self.output_tokens, 0), MAX_TOKENS),
            min(max(self.cached_tokens, 0), MAX_TOKENS),
            None if self.cost is None or not 0 <= self.cost <= MAX_COST else self.cost,
        )


@dataclass(frozen=True)
class DecisionFailure:
    """The model answered, but its answer is not a usable decision. `reason` is one of `reasons.Reason`."""

    reason: str
    message: str
    attempts: int = 1


@dataclass(frozen=True)
class Note:
    """A fact about a step or a call that belongs in the record, such as content_dropped."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)


# Why a model's reply ended, in the same words for every provider.
FINISH_REASONS = ("stop", "length", "content_filter", "tool_call", "error")


MAX_CALLS = 128
"""Per reply. Calls beyond a step's lower limit are refused one by one; calls beyond this are dropped unread."""


@dataclass(frozen=True)
class Reply:
    """One decision of the model. `provider_parts` is handed back to the provider unchanged."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    finish_reason: str = ""
    provider_parts: list[dict[str, Any]] | None = None
    reasoning: str = ""
    """What the model thought, if a driver asks it to say so separately from its text."""
    first_token_seconds: float | None = None
    """How long the first part took to arrive. None: the reply came in one piece, or nobody measured."""
    failure: DecisionFailure | None = None
    notes: tuple[Note, ...] = ()
    guidance: Guidance | None = None
    """What was considered before the decision, if guidelines decide."""

    def with_fewer_calls(self) -> "Reply":
        """The reply without its calls beyond the maximum, and with a note of how many were dropped."""
        dropped = len(self.tool_calls) - MAX_CALLS
        if dropped <= 0:
            return self
        note = Note("calls_dropped", {"kept": MAX_CALLS, "dropped": dropped})
        return replace(self, tool_calls=tuple(self.tool_calls[:MAX_CALLS]), notes=(*self.notes, note))


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told about one tool."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True)
class UserMessage:
    text: str


@dataclass(frozen=True)
class AssistantMessage:
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    provider_parts: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class ToolMessage:
    """The answer to one call, as text for the model. `ok` is False for refusals and errors."""

    call_id: str
    name: str
    text: str
    ok: bool = True


ChatMessage = UserMessage | AssistantMessage | ToolMessage


FAILED = ("retryable_error", "fatal_error")
"""Statuses of a call that was attempted and failed."""


@dataclass(frozen=True)
class ToolResult:
    """The envelope of every result. `metadata`, `control` and `artifact` are never shown to the model."""

    status: ResultStatus = "ok"
    data: Any = None
    message: str = ""
    reason: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    control: dict[str, Any] = field(default_factory=dict)
    trust: Trust | None = None
    evidence_ref: str = ""
    retry_after: float | None = None
    artifact: Any = None
    """For the application, such as a file's reference or the rows behind a sum. Never shown to the model."""
    notes: tuple[Note, ...] = ()
    """Facts about the call that belong in the record, such as outbound.refused."""

    @property
    def took_effect(self) -> bool:
        """Whether the tool did what it was asked to do, or part of it, even if its result is not as promised."""
        return self.status == "ok" or self.reason in ACTED

    @property
    def doubt(self) -> dict[str, Any]:
        """Says that a failed call may have had its effect, as in `control`. Empty: the tool rules that out."""
        return {MAY_HAVE_ACTED: True} if self.control.get(MAY_HAVE_ACTED) else {}


@dataclass(frozen=True)
class StopSignal:
    """Why a run should end before the model says so."""

    reason: str
    message: str
    context: dict[str, Any] = field(default_factory=dict)
    source: str = ""


class StopRun(Exception):
    """Raised by a tool or a hook to end the run as stopped. People read the message.

    The call of a tool that raises it counts as done. A tool that could not do its work raises ToolError instead.
    """

    def __init__(self, message: str, context: dict[str, Any] | None = None, source: str = "") -> None:
        super().__init__(message)
        self.context, self.source = context or {}, source
