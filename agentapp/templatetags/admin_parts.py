"""What parts of admin pages show: schemas as tables, texts compared line by line, rows counted by kind."""

from dataclasses import dataclass
from typing import Any

from django import template

from agentapp.console import differences, schemas
from agentapp.models import Tool

register = template.Library()

_KINDS = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "yes or no",
    "array": "list",
    "object": "object",
}


@dataclass(frozen=True)
class Argument:
    """One argument as the page of a tool shows it."""

    name: str
    kind: str
    hint: str
    required: bool
    marks: list[str]


@register.filter
def arguments_of(tool: Tool) -> list[Argument]:
    """A tool's arguments in the order of its author."""
    schema = tool.input_schema
    definitions = schema.get("$defs", {})
    rows = []
    for name in schemas.in_order(schema, {}):
        described = schemas.resolve(schemas.properties(schema)[name], definitions)
        described, _ = schemas.without_null(described, definitions)
        marks = [
            mark
            for mark, named in (
                ("locked", tool.locked_fields),
                ("secret", tool.secret_fields),
                ("personal", tool.pii_fields),
            )
            if name in named
        ]
        rows.append(
            Argument(name, kind_of(described), schemas.hint(described), name in schema.get("required", []), marks)
        )
    return rows


@register.filter
def counted(number: int, kind: str) -> str:
    """How many rows of a kind: "0 runs", "1 run", "1,200 runs"."""
    return f"{number:,} {kind.removesuffix('s') if number == 1 else kind}"


@register.filter
def compared(before: str, after: str) -> list[differences.Line]:
    return differences.differences(before, after)


def kind_of(described: dict[str, Any]) -> str:
    """The type of an argument, in a word or two."""
    if described.get("enum"):
        return "one of " + ", ".join(map(str, described["enum"]))
    kind = described.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    return _KINDS.get(str(kind), str(kind or "anything"))
