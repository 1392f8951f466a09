"""The one door to model providers."""

from collections.abc import Callable

from agentapp.llm.contract import ModelError, Request
from agentapp.messages import Reply

__all__ = ["ModelError", "Request", "complete"]


def complete(request: Request, watch: Callable[[str], None] | None = None) -> Reply:
    """Ask once, and wait for the whole reply. Raises ModelError; trying again is the caller's decision.

    `watch` is told, in this thread and now and then, the text that has come so far. May be called from any
    number of threads, never from a coroutine.
    """
    from agentapp.llm import exchange  # pydantic-ai and the providers' clients take seconds to import

    return exchange.complete(request, watch)
