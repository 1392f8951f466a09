"""What is asked of a model, and what the loop must know when no reply came."""

from dataclasses import dataclass, field
from typing import Any

from agentapp.messages import ChatMessage, ToolSpec

_OF_THE_REQUEST = frozenset(("rejected", "context_window", "content_filter", "not_configured", "unknown_model"))


@dataclass(frozen=True)
class Request:
    """One question to one model. `timeout` is in seconds and covers everything up to the last byte."""

    model: str
    """Such as "anthropic:claude-sonnet-5": the provider, a colon, the provider's name for the model."""
    instructions: str
    messages: tuple[ChatMessage, ...]
    """In order; every call of an assistant's message is answered before the next assistant's message."""
    tools: tuple[ToolSpec, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    """Such as {"temperature": 0}. Settings that are not in `settings.SENT` are not sent."""
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    """"auto", "required", "none" or the name of one tool."""
    timeout: float = 120


class ModelError(Exception):
    """There is no reply. The message may be shown to people: it contains no key, no header and no whole body.

    `retryable` says that the same request may succeed later, `retry_after` after how many seconds the
    provider wants to be asked again (None: it did not say), and `code` in one word what happened.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, code: str = "error"
    ) -> None:
        super().__init__(message)
        self.retryable, self.retry_after, self.code = retryable, retry_after, code

    @property
    def is_failure(self) -> bool:
        """Whether the model failed, rather than this one request, which cannot be answered or sent from here."""
        return self.code not in _OF_THE_REQUEST
