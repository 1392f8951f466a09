"""A tool that writes a line of its own to the log."""

import logging

from agentapp.tools.base import tool


@tool(effect="read")
def talk(secret: str) -> str:
    """Says so in the log."""
    logging.getLogger("tests.tools").warning("Talking.")
    return "said"
