"""The one door to model providers."""

from agentapp.llm.contract import ModelError, Request
from agentapp.messages import Reply

__all__ = ["ModelError", "Request", "complete"]


def complete(request: Request) -> Reply:
    """Ask once, and wait for the whole reply. Raises ModelError; trying again is the caller's decision.

    May be called from any number of threads, never from a coroutine.
    """
    from agentapp.llm import exchange  # pydantic-ai and the providers' clients take seconds to import

    return exchange.complete(request)
