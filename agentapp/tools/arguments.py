"""From what a model sent to what a call is about: one function, so that what is judged, shown and run is the same."""

from collections.abc import Iterable
from typing import Any, Protocol

from agentapp.tools import python_source
from agentapp.tools.schema import unknown_names
from approvals.digest import canonical
from approvals.looked_at import looked_at


class Contract(Protocol):
    """A tool's row: what its arguments are, and what an admin says about others."""

    name: str
    input_schema: Any
    additional_arguments: Any


def effective(tool: Contract, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call: without what the runtime fills in, without what is dropped, with the defaults."""
    kept = {name: value for name, value in arguments.items() if name not in injected_names(tool.name)}
    if tool.additional_arguments == "drop":
        unknown = unknown_names(tool.input_schema, kept)
        kept = {name: value for name, value in kept.items() if name not in unknown}
    return with_defaults(tool.input_schema, kept)


def unknown_in(condition: str, tool: Contract) -> list[str]:
    """Arguments that a condition names and a tool does not have. With them it cannot be evaluated, so it asks."""
    named = [found["name"].split(".") for found in looked_at(condition, {"args": {}})]
    return unknown_names(tool.input_schema, dict.fromkeys(path[1] for path in named if len(path) > 1))


def injected_names(tool_name: str) -> frozenset[str]:
    """The arguments of a tool that the runtime fills in. Its code is the one place that says so."""
    implementation = python_source.get(tool_name)
    return implementation.hidden if implementation is not None else frozenset()


def misfit(tool_name: str, arguments: dict[str, Any], version: str = "") -> str:
    """What a tool's own types find wrong, which a schema cannot say. Empty when nothing is.

    Given a version, only code of that version is asked: a web server may have another than the workers.
    """
    implementation = python_source.get(tool_name)
    if implementation is None or (version and implementation.version != version):
        return ""
    return implementation.misfit(arguments)


def with_defaults(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with what the schema says about the ones left out, so that people see all that will run."""
    filled = dict(arguments)
    for name, described in schema.get("properties", {}).items():
        if isinstance(described, dict) and "default" in described:
            filled.setdefault(name, described["default"])
    return filled


def differing(names: Iterable[str], one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which of these arguments are others, to the type: `true` is not `1`, and nothing is not null."""
    return [
        name
        for name in names
        if (name in one) != (name in other) or canonical(one.get(name)) != canonical(other.get(name))
    ]
