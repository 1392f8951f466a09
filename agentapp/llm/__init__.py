"""The one door to model providers."""

from agentapp.llm.errors import ModelError

__all__ = ["ModelError"]
