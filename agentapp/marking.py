"""Which fields of a call are secret and which are a person's, decided once: where its row is made."""

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
    """The marks of a call's tool. Of one that was not disclosed, those of the tool of that name, which is looked up, as
    are the tools that the calls of a plan name. `proposed`: what the model asked for, where a hook made this of it.
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
    """The tools with marks that are named, one way or the other. One query."""
    unread = []
    for text in plans:
        try:
            names = names | set(_named(json.loads(text)))
        except (ValueError, RecursionError):
            unread.append(text)
    marked = Tool.objects.exclude(secret_fields=[], pii_fields=[])
    if not unread:
        marked = marked.filter(name__in=[storable(name) for name in names])
    # What cannot be read is about every tool whose name stands in it.
    return [tool for tool in marked if tool.name in names or any(tool.name in text for text in unread)]


def _named(plan: object) -> Iterator[str]:
    """The tools that a plan names, also one that fits no schema and will be refused."""
    if isinstance(plan, dict):
        for name, value in plan.items():
            if name == "tool" and isinstance(value, str):
                yield value
            yield from _named(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _named(value)
