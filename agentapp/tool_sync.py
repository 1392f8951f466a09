"""Writes the tools of TOOL_MODULES, and those of agents that may be asked, into rows."""

from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured
from django.utils.text import slugify

from agentapp import agent_tools, contracts
from agentapp.models import Tool, ToolSource
from agentapp.tools import base, declared, python_source
from approvals import configuration


@dataclass(frozen=True)
class Synced:
    """What a sync did: its changes, how many requests it set aside, and what an admin should look at."""

    changes: list[configuration.Change]
    voided: int
    warnings: list[str]


def sync(actor: str, dry_run: bool = False) -> Synced:
    """Write the contracts of every tool in TOOL_MODULES. A dry run reports the same and changes nothing.

    Raises ImproperlyConfigured if a module cannot be read, a name is taken, or a tool declares what no row can hold or
    names a tool that does not exist. Nothing is written then.
    """
    found = python_source.modules()
    changes: list[configuration.Change] = []
    with configuration.transaction(dry_run):
        for module, tools in found.items():
            changes += _sync_module(module, tools, actor)
        listed = {tool.name for tools in found.values() for tool in tools}
        changes += contracts.mark_missing(listed, Tool.objects.filter(source__kind="python"), actor)
        changes += _sync_agents(actor)
        every = [tool for tools in found.values() for tool in tools]
        warnings = [*_ways_back(every), *_weaker_than_declared()]
        warnings += [doubt for tool in every for doubt in declared.doubts(tool)]
        voided = contracts.outdated().count()
    if not dry_run:
        voided = contracts.void_outdated()
    return Synced(changes, voided, warnings)


def _sync_module(module: str, tools: list[base.Tool], actor: str) -> list[configuration.Change]:
    source = ToolSource.objects.filter(kind="python", location=module).first()
    made = []
    if source is None:
        source = ToolSource(name=slugify(module.replace(".", "-"))[-80:], kind="python", location=module)
        made.append(configuration.save(source, actor))
    return [*filter(None, made), *contracts.write(source, tools, actor)]


def _sync_agents(actor: str) -> list[configuration.Change]:
    try:
        return agent_tools.sync(actor)
    except agent_tools.NameTaken as taken:
        raise ImproperlyConfigured(str(taken)) from taken


def _ways_back(tools: list[base.Tool]) -> list[str]:
    """Tools whose undoing tool is gone. Raises ImproperlyConfigured if there never was such a tool."""
    gone = dict(Tool.objects.values_list("name", "missing_since"))
    warnings = []
    for tool in tools:
        if tool.undone_by and tool.undone_by not in gone:
            raise ImproperlyConfigured(f"The tool {tool.name!r} is undone_by {tool.undone_by!r}, which is not a tool.")
        if tool.undone_by and gone[tool.undone_by]:
            warnings.append(f"{tool.name} is undone by {tool.undone_by}, which its source no longer lists.")
    return warnings


def _weaker_than_declared() -> list[str]:
    return [
        f"{tool.name} is declared {tool.declared_effect_class} in code, but set to {tool.effect_class}."
        for tool in Tool.objects.filter(missing_since=None).exclude(declared_effect_class="")
        if contracts.is_weaker(tool.effect_class, tool.declared_effect_class)
    ]
