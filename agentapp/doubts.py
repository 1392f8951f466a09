"""What deserves a second look about a tool before agents use it. Nothing is refused for it or reported elsewhere."""

import re
from typing import Any

from agentapp import agent_tools
from agentapp.models import Tool
from agentapp.tools.planning import proposes_plan

UNOWNED = "No owner is named, so nobody knows whom to ask about it."
BROAD = (
    "It runs without a person, as a read, and seems to do whatever its text says. Set its effect to the worst that a "
    "call could do, have it always ask, or offer narrower tools instead."
)
# Words in a name that suggest that the tool does whatever it is told.
_DOES_ANYTHING = {"bash", "cmd", "command", "eval", "exec", "execute", "python", "script", "shell", "sql"}
# Parameters whose text decides what is done, not what it is done to. With another word they do not: a postal code, say.
_SAYS_ANYTHING = {"code", "expression", "query", "statement", "uri", "url"}


def about(tool: Tool) -> list[str]:
    """What a person should think about, as sentences."""
    found = []
    if not tool.owner and not _comes_with_it(tool):
        found.append(UNOWNED)
    if not tool.consequential and tool.approval_mode != Tool.ApprovalMode.ALWAYS and _is_broad(tool):
        found.append(BROAD)
    return found


def _comes_with_it(tool: Tool) -> bool:
    """Whether it acts only on runs, so that nobody outside has to be asked about it."""
    return agent_tools.asks_agent(tool) or proposes_plan(tool)


def _is_broad(tool: Tool) -> bool:
    """Whether its name, or its only free-text parameter, suggests that it can do anything."""
    if _DOES_ANYTHING & _words(tool.name):
        return True
    texts = [name for name, schema in tool.input_schema.get("properties", {}).items() if _is_free_text(schema)]
    return len(texts) == 1 and (texts[0].lower() in _SAYS_ANYTHING or bool(_DOES_ANYTHING & _words(texts[0])))


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _is_free_text(schema: Any) -> bool:
    if not isinstance(schema, dict) or {"enum", "const", "pattern"} & set(schema):
        return False
    types = schema.get("type")
    return types == "string" or (isinstance(types, list) and "string" in types)
