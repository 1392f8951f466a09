"""Names of arguments in a file that the tool does not have: what was meant would not be."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentapp.models import Tool
from agentapp.tools.arguments import unknown_in
from agentapp.tools.schema import unknown_names
from approvals.models import Rule


def of_tool(row: Tool, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(column, what is wrong) of what is locked or secret."""
    known = ", ".join(sorted(row.input_schema.get("properties", {}))) or "none"
    for column in ("locked_fields", "secret_fields"):
        for name in unknown_names(row.input_schema, entry.get(column, [])):
            yield column, f"{row.name} has no argument {name!r}; it has {known}."


def of_rule(row: Rule, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same of what a condition names, where the file says it or its tool: it could never be evaluated."""
    looks = row.tool and row.condition and entry.keys() & {"tool", "condition"}
    tool = Tool.objects.filter(name=row.tool).first() if looks else None
    unknown = unknown_in(row.condition, tool) if tool is not None else []
    if unknown:
        yield "condition", f"{row.tool} has no argument {', '.join(map(repr, unknown))}."
