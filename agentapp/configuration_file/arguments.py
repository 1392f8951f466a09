"""Arguments that a file names but the tool does not have: the file would not do what its author meant."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentapp.models import Tool
from agentapp.tools.arguments import unknown_in
from agentapp.tools.fields import fields_of
from agentapp.tools.schema import unknown_names
from approvals.models import Rule

_MARKS = ("locked_fields", "secret_fields")


def of_tool(row: Tool, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(column, what is wrong) for locked and secret fields. What code or an admin has already set may stay."""
    kept = Tool.objects.filter(pk=row.pk).values(*_MARKS).first() or {}
    known = ", ".join(sorted(row.input_schema.get("properties", {}))) or "none"
    # A secret field counts at any depth, and in results; a lock counts only at the top.
    may_stay = {"locked_fields": frozenset(), "secret_fields": _names_in(row)}
    for column in _MARKS:
        for name in unknown_names(row.input_schema, entry.get(column, [])):
            if name not in may_stay[column] and name not in kept.get(column, []):
                yield column, f"{row.name} has no argument {name!r}; it has {known}."


def _names_in(row: Tool) -> frozenset[str]:
    results = fields_of(row.output_schema).names if row.output_schema is not None else frozenset()
    return fields_of(row.input_schema).names | results


def of_rule(row: Rule, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for names in a condition, if the file gives the condition or its tool: it could never be evaluated."""
    looks = row.tool and row.condition and entry.keys() & {"tool", "condition"}
    tool = Tool.objects.filter(name=row.tool).first() if looks else None
    unknown = unknown_in(row.condition, tool) if tool is not None else []
    if unknown:
        yield "condition", f"{row.tool} has no argument {', '.join(map(repr, unknown))}."
