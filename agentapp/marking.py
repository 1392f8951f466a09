"""Which fields of a call are secret and which are personal. Decided once, when its row is created."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from agentapp.messages import ToolCall
from agentapp.models import Tool
from agentapp.tools.planning import NAME
from approvals.digest import storable


@dataclass(frozen=True)
class Marks:
    secret: list[str]
    personal: list[str]


def of_call(tool: Tool | None, call: ToolCall, proposed: ToolCall | None = None) -> Marks:
    """The marks of a call's tool. A tool that was not disclosed is looked up by name, and so are the tools that the
    calls of a plan name. `proposed`: what the model asked for, if a hook changed it into this call.
    """
    names = {call.name} if tool is None else set()
    written = [call]
    if proposed is not None:
        names |= {proposed.name} - {call.name}
        written.append(proposed)
    plans = [each.arguments_text for each in written if each.name == NAME]
    looked_up = _tools(names, plans) if names or plans else []
    tools = [*([tool] if tool is not None else []), *looked_up]
    return Marks(
        list(dict.fromkeys(name for each in tools for name in each.secret_fields)),
        list(dict.fromkeys(name for each in tools for name in each.pii_fields)),
    )


def _tools(names: set[str], plans: list[str]) -> list[Tool]:
    """The tools with marks that the call or a plan names. One query."""
    unread = []
    for text in plans:
        try:
            names = names | set(_named(json.loads(text)))
        except (ValueError, RecursionError):
            unread.append(text)
    marked = Tool.objects.exclude(secret_fields=[], pii_fields=[])
    if not unread:
        marked = marked.filter(name__in=[storable(name) for name in names])
    # A plan that cannot be parsed counts as naming every tool whose name occurs in it.
    return [tool for tool in marked if tool.name in names or any(tool.name in text for text in unread)]


def _named(plan: object) -> Iterator[str]:
    """The tools that a plan names, even if the plan fits no schema and will be refused."""
    if isinstance(plan, dict):
        for name, value in plan.items():
            if name == "tool" and isinstance(value, str):
                yield value
            yield from _named(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _named(value)
