"""The context variables of an agent in a file: checked, written, and written back."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError

from agentapp.configuration_file.checking import by_key
from agentapp.configuration_file.shape import VariableEntry
from agentapp.models import Agent, ContextVariable, Tool
from approvals import configuration

type Changes = list[configuration.Change | None]


def problems(
    agent: Agent, entries: Mapping[str, Any], own: Container[str], reading: Container[str]
) -> Iterator[tuple[str, str]]:
    """(where, what is wrong) for an agent's variables. `own`: the tools that it may call; `reading`: those that only
    read, once the file is loaded.
    """
    for name, entry in entries.items():
        row = _changed(_row(agent, name), entry)
        try:
            row.clean_fields(exclude={"agent", "tool"})
        except ValidationError as error:
            yield from by_key(name, error)
        tool = entry.get("tool") or (row.tool.name if row.tool_id else "")
        if not tool:
            yield name, "A variable must name the tool that reads it."
        elif tool not in own:
            yield f"{name}.tool", f"{tool!r} is not among the agent's tools."
        elif tool not in reading:
            yield f"{name}.tool", f"{tool} may change something; a variable is only read."


def write(agent: Agent, entries: Mapping[str, Any], actor: str) -> Changes:
    """Make an agent's variables what a file says. Those it does not name are deleted."""
    changes: Changes = []
    for name, entry in entries.items():
        row = _changed(_row(agent, name), entry)
        if "tool" in entry:
            row.tool = Tool.objects.get(name=entry["tool"])
        changes.append(configuration.save(row, actor))
    for gone in ContextVariable.objects.filter(agent=agent).exclude(name__in=entries):
        changes += configuration.delete(gone, actor)
    return changes


def dump(agent: Agent) -> dict[str, Any]:
    return {
        row.name: {"tool": row.tool.name, **{column: getattr(row, column) for column in _COLUMNS}}
        for row in ContextVariable.objects.filter(agent=agent).select_related("tool").order_by("name")
    }


_COLUMNS = [name for name in VariableEntry.__annotations__ if name != "tool"]


def _row(agent: Agent, name: str) -> ContextVariable:
    """The variable as it is, or a new one."""
    there = (
        None
        if agent._state.adding
        else ContextVariable.objects.filter(agent=agent, name=name).select_related("tool").first()
    )
    return there or ContextVariable(agent=agent, name=name)


def _changed(row: ContextVariable, entry: Mapping[str, Any]) -> ContextVariable:
    for column in _COLUMNS:
        if column in entry:
            setattr(row, column, entry[column])
    return row
