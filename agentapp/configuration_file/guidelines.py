"""The guidelines of an agent and the overlaps of tools in a file: checked, written, and written back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError

from agentapp.configuration_file.checking import by_key
from agentapp.configuration_file.shape import GuidelineEntry, columns
from agentapp.guidance import extensions
from agentapp.models import Agent, Guideline, GuidelineRelation, Tool, ToolRelation
from approvals import configuration

type Changes = list[configuration.Change | None]

# The key of a file for each kind of relation between two guidelines.
_TO_GUIDELINES = {"entails": GuidelineRelation.Kind.ENTAILS, "goes_before": GuidelineRelation.Kind.PRIORITY}
_TO_TOOLS = {"looked_at_again_after": GuidelineRelation.Kind.REEVALUATES}


def problems(entries: Mapping[str, Any], own: set[str]) -> Iterator[tuple[str, str]]:
    """(where, what is wrong) for an agent's guidelines. `own`: the tools that it may call."""
    for name, entry in entries.items():
        row = Guideline(name=name, **columns(entry))
        for check in (row.clean_fields, row.validate_constraints):
            try:
                check(exclude={"agent"})
            except ValidationError as error:
                yield from by_key(name, error)
        if row.python and (wrong := extensions.problem(row.python)):
            yield f"{name}.python", wrong
        for tool in entry.get("tools", ()):
            if tool not in own:
                yield f"{name}.tools", f"{tool!r} is not among the agent's tools."
        for key in _TO_GUIDELINES:
            for other in entry.get(key, ()):
                if other == name or other not in entries:
                    yield f"{name}.{key}", f"{other!r} is not another guideline of the agent."


def write(agent: Agent, entries: Mapping[str, Any], actor: str) -> Changes:
    """Make an agent's guidelines what a file says. Those it does not name are deleted."""
    changes: Changes = []
    for name, entry in entries.items():
        row = Guideline.objects.filter(agent=agent, name=name).first() or Guideline(agent=agent, name=name)
        for column, value in columns(entry).items():
            setattr(row, column, value)
        many = {"tools": list(Tool.objects.filter(name__in=entry["tools"]))} if "tools" in entry else {}
        changes.append(configuration.save(row, actor, many))
    for gone in Guideline.objects.filter(agent=agent).exclude(name__in=entries):
        changes += configuration.delete(gone, actor)
    for name, entry in entries.items():
        changes += _write_relations(Guideline.objects.get(agent=agent, name=name), entry, actor)
    return changes


def _write_relations(source: Guideline, entry: Mapping[str, Any], actor: str) -> Changes:
    changes: Changes = []
    for key, kind in {**_TO_GUIDELINES, **_TO_TOOLS}.items():
        if key not in entry:
            continue
        column = "target" if key in _TO_GUIDELINES else "tool"
        others: Iterable[Any] = (
            Guideline.objects.filter(agent=source.agent, name__in=entry[key])
            if key in _TO_GUIDELINES
            else Tool.objects.filter(name__in=entry[key])
        )
        wanted = {other.pk: other for other in others}
        there = GuidelineRelation.objects.filter(source=source, kind=kind)
        for row in there:
            if wanted.pop(getattr(row, f"{column}_id"), None) is None:
                changes += configuration.delete(row, actor)
        for other in wanted.values():
            changes.append(configuration.save(GuidelineRelation(source=source, kind=kind, **{column: other}), actor))
    return changes


def write_overlaps(tool: Tool, names: Iterable[str], actor: str) -> Changes:
    """Make the overlaps listed under a tool what a file says. Each may be listed under either of its tools."""
    changes: Changes = []
    wanted = {other.pk: other for other in Tool.objects.filter(name__in=names).exclude(pk=tool.pk)}
    for row in ToolRelation.objects.filter(source=tool):
        if wanted.pop(row.target_id, None) is None:
            changes += configuration.delete(row, actor)
    changes += [configuration.save(ToolRelation(source=tool, target=other), actor) for other in wanted.values()]
    return changes


def dump(agent: Agent) -> dict[str, Any]:
    return {row.name: _entry(row) for row in agent.guidelines.order_by("name")}


def _entry(row: Guideline) -> dict[str, Any]:
    entry = {name: getattr(row, name) for name in columns(dict.fromkeys(GuidelineEntry.__annotations__))}
    entry["tools"] = sorted(row.tools.values_list("name", flat=True))
    for key, kind in _TO_GUIDELINES.items():
        entry[key] = sorted(row.relations.filter(kind=kind).values_list("target__name", flat=True))
    for key, kind in _TO_TOOLS.items():
        entry[key] = sorted(row.relations.filter(kind=kind).values_list("tool__name", flat=True))
    return entry


def overlaps_of(tool: Tool) -> list[str]:
    return sorted(tool.relations.values_list("target__name", flat=True))
