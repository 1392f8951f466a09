"""The only way to model providers."""

from collections.abc import Callable

from agentapp.llm.contract import ModelError, Request
from agentapp.messages import Reply

__all__ = ["ModelError", "Request", "complete"]


def complete(request: Request, watch: Callable[[str], None] | None = None) -> Reply:
    """Ask once, and wait for the whole reply. Raises ModelError; trying again is the caller's decision.

    `watch` is called from time to time, in this thread, with the text that has arrived so far. `complete` may be
    called from any number of threads, but never from a coroutine.
    """
    from agentapp.llm import exchange  # pydantic-ai and the providers' clients take seconds to import

    return exchange.complete(request, watch)
