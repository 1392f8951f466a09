"""From what a model sent to the arguments of a call: in one function, so the same are judged, shown and run."""

from collections.abc import Iterable
from typing import Any, Protocol

from agentapp.tools import python_source
from agentapp.tools.schema import unknown_names
from approvals.digest import canonical
from approvals.looked_at import looked_at


class Contract(Protocol):
    """The parts of a tool's row that say what its arguments are and what happens to additional ones."""

    name: str
    input_schema: Any
    additional_arguments: Any


def effective(tool: Contract, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with defaults, but without what the runtime fills in and what is dropped."""
    kept = {name: value for name, value in arguments.items() if name not in injected_names(tool.name)}
    if tool.additional_arguments == "drop":
        unknown = unknown_names(tool.input_schema, kept)
        kept = {name: value for name, value in kept.items() if name not in unknown}
    return with_defaults(tool.input_schema, kept)


def unknown_in(condition: str, tool: Contract) -> list[str]:
    """Arguments that a condition names but the tool lacks. Such a condition cannot be evaluated, so it asks."""
    named = [found["name"].split(".") for found in looked_at(condition, {"args": {}})]
    return unknown_names(tool.input_schema, dict.fromkeys(path[1] for path in named if len(path) > 1))


def injected_names(tool_name: str) -> frozenset[str]:
    """The arguments of a tool that the runtime fills in. Only its code says which they are."""
    implementation = python_source.get(tool_name)
    return implementation.hidden if implementation is not None else frozenset()


def misfit(tool_name: str, arguments: dict[str, Any], version: str = "") -> str:
    """What a tool's own types find wrong that its schema cannot express. Empty if nothing is wrong.

    If a version is given, only code of that version is asked: a web server may run another than the workers.
    """
    implementation = python_source.get(tool_name)
    if implementation is None or (version and implementation.version != version):
        return ""
    return implementation.misfit(arguments)


def with_defaults(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with the schema's defaults for those left out, so that people see everything that will run."""
    filled = dict(arguments)
    for name, described in schema.get("properties", {}).items():
        if isinstance(described, dict) and "default" in described:
            filled.setdefault(name, described["default"])
    return filled


def differing(names: Iterable[str], one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which of these arguments differ, in type as well: `true` is not `1`, and a missing value is not null."""
    return [
        name
        for name in names
        if (name in one) != (name in other) or canonical(one.get(name)) != canonical(other.get(name))
    ]
