"""A file → rows. The whole file is checked before anything is written; it is written in one transaction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from django.contrib.auth.models import Group, Permission
from django.db import models

from agentapp import agent_settings, agent_tools, plain_yaml
from agentapp.configuration_file import arguments, guidelines, variables
from agentapp.configuration_file.checking import (
    Problem,
    Shaped,
    channel_problems,
    route_problems,
    row_problems,
    shaped,
    threshold_problems,
)
from agentapp.configuration_file.shape import SECTIONS, Known, columns
from agentapp.drivers import DRIVERS
from agentapp.models import Agent, Route, Tool, WebhookEndpoint
from agentapp.roles import ROLES, ensure_roles
from approvals import channels, configuration, rule_versions
from approvals.digest import storable
from approvals.models import Channel, EffectClass, Rule

MODELS: dict[str, type[models.Model]] = {
    "groups": Group,
    "tools": Tool,
    "agents": Agent,
    "rules": Rule,
    "channels": Channel,
    "webhooks": WebhookEndpoint,
}


class ConfigurationRefused(Exception):
    """A file that cannot be loaded. Nothing has been written; `problems` names every place."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True)
class Planned:
    """One row as a file wants it: not yet stored, with the entry it came from."""

    row: Any
    entry: dict[str, Any]


def load(text: str, actor: str, dry_run: bool = False) -> list[configuration.Change]:
    """Make the configuration what the file says. Returns what changed; a dry run changes nothing.

    Raises ConfigurationRefused, naming everything that is wrong.
    """
    plans = _plan(_read(text))
    changes: list[configuration.Change | None] = []
    with configuration.transaction(dry_run):
        made = ensure_roles()
        changes += [
            configuration.record_change(role, None, actor)
            for role in Group.objects.filter(name__in=made).order_by("name")
        ]
        for section, planned in plans.items():
            for plan in planned:
                if not _comes_with_its_agent(plan):
                    changes += _write(section, plan, actor)
            if section == "agents":
                changes += _write_agent_tools(plans, actor)
    return [change for change in changes if change]


class _StrictLoader(plain_yaml.Loader):
    """Only YAML's plain types, JSON's numbers, and no repeated key: YAML itself would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # it cannot be a key, as the call below reports
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"The key {key.value!r} appears twice in one place.", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(text: str) -> dict[str, Any]:
    try:
        data = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationRefused([Problem("", f"The file is not readable YAML. {error}")]) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigurationRefused([Problem("", f"The file must be a mapping of {', '.join(SECTIONS)}.")])
    return data


def _plan(data: dict[str, Any]) -> dict[str, list[Planned]]:
    """Every row the file wants, checked. Raises ConfigurationRefused."""
    problems = [
        Problem(str(name), f"There is no such section; a file has {', '.join(SECTIONS)}.")
        for name in data
        if name not in SECTIONS
    ]
    known = _known_names(data, problems)
    plans: dict[str, list[Planned]] = {section: [] for section in SECTIONS}
    for section in SECTIONS:
        for name, raw in _entries(data, section, problems):
            found = shaped(section, f"{section}.{name}", raw, known)
            if isinstance(found, list):
                problems += found
                continue
            row, wrong = _wanted_row(section, name, found, known)
            plans[section].append(Planned(row, found.entry))
            problems += [*found.problems, *found.others(wrong)]
    if problems:
        raise ConfigurationRefused(problems)
    return plans


def _entries(data: Mapping[str, Any], section: str, problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    entries = data.get(section)
    if entries is not None and not isinstance(entries, dict):
        problems.append(Problem(section, "A section must be a mapping from names to entries."))
        return
    for name, raw in (entries or {}).items():
        if not isinstance(name, str):
            problems.append(Problem(f"{section}.{name}", "A name must be text; put it in quotes."))
        elif storable(name) != name:
            problems.append(Problem(section, f"{name!r} cannot be stored as a name."))
        else:
            yield name, raw


def _wanted_row(section: str, name: str, shaped: Shaped, known: Known) -> tuple[models.Model, list[Problem]]:
    """The row as the entry wants it, and what the database would refuse about it."""
    model, path, entry = MODELS[section], shaped.path, shaped.entry
    row: Any = model._default_manager.filter(name=name).first()
    is_draft = isinstance(row, Rule) and row.version == 0
    is_new = row is None or is_draft
    if is_draft:
        row = _without_draft(row)
    with_agent = section == "tools" and name in known.agent_tools
    if row is None:
        row = agent_tools.planned(name) if with_agent else model(name=name)
    for column, value in columns(entry).items():
        setattr(row, column, value)
    if with_agent:
        return row, row_problems(shaped, row, is_new=False)
    if is_new and section == "tools":
        return row, [Problem(path, "There is no such tool. If its module is new, run sync_tools first.")]
    problems = row_problems(shaped, row, is_new)
    if isinstance(row, Tool):
        problems += [Problem(f"{path}.{column}", message) for column, message in arguments.of_tool(row, entry)]
    opened = {f"{path}.kind", f"{path}.config"}
    if isinstance(row, Channel) and not any(each.path in opened for each in [*shaped.problems, *problems]):
        problems += channel_problems(path, row)
    if isinstance(row, Rule):
        problems += _rule_problems(row, shaped)
    if isinstance(row, Agent):
        problems += _agent_problems(row, shaped, known)
    return row, problems


def _rule_problems(row: Rule, shaped: Shaped) -> list[Problem]:
    """What is wrong with several keys together although each of them is right."""
    problems = []
    if not {"groups", "thresholds", "escalation"} & shaped.left_out:
        groups = shaped.entry["groups"] if "groups" in shaped.entry else _names(row, "groups")
        problems += threshold_problems(shaped.path, row, groups)
    if not {"tool", "condition"} & shaped.left_out:
        wrong = arguments.of_rule(row, shaped.entry)
        problems += [Problem(f"{shaped.path}.{column}", message) for column, message in wrong]
    return problems


def _agent_problems(row: Agent, shaped: Shaped, known: Known) -> list[Problem]:
    path, entry = shaped.path, shaped.entry
    listed = shaped.names("tools")
    names = agent_settings.Names(known.agents, _names(row, "tools") if listed is None else listed)
    touched = agent_settings.touched(entry, but=shaped.left_out)
    wrong = [(column, message) for column, message in agent_settings.problems(row, names, touched)]
    own = agent_settings.tools_to_call(row, names)
    problems = route_problems(path, own, entry)
    wrong += [(f"guidelines.{where}", said) for where, said in guidelines.problems(entry.get("guidelines", {}), own)]
    read = variables.problems(row, entry.get("variables", {}), own, known.reading_tools)
    wrong += [(f"variables.{where}", message) for where, message in read]
    asking = [tool for tool in entry.get("tools", []) if tool in known.agent_tools]
    wrong += [("tools", f"{tool!r} asks an agent: name the agent in subagents instead.") for tool in asking]
    return [*problems, *(Problem(f"{path}.{where}", message) for where, message in wrong)]


def _write(section: str, plan: Planned, actor: str) -> list[configuration.Change | None]:
    row, entry = _current(plan), plan.entry
    many: dict[str, Any] = {}
    if "groups" in entry:
        many["groups"] = list(Group.objects.filter(name__in=entry["groups"]))
    many |= _starters(entry)
    if "tools" in entry:
        many["tools"] = list(Tool.objects.filter(name__in=entry["tools"]))
    if "permissions" in entry:
        many["permissions"] = _permissions(entry["permissions"])
    if isinstance(row, Rule):
        return [rule_versions.load(row, actor, many, "Loaded from a configuration file.")]
    changes = [configuration.save(row, actor, many)]
    if "routes" in entry:
        changes += _write_routes(row, entry["routes"], actor)
    if "guidelines" in entry:
        changes += guidelines.write(row, entry["guidelines"], actor)
    if "overlaps" in entry:
        changes += guidelines.write_overlaps(row, entry["overlaps"], actor)
    return changes


def _starters(entry: dict[str, Any]) -> dict[str, Any]:
    return {"starters": list(Group.objects.filter(name__in=entry["starters"]))} if "starters" in entry else {}


def _without_draft(row: Rule) -> Rule:
    """The rule of a file that has the name of a draft, without anything the draft says."""
    made = Rule(pk=row.pk, name=row.name)
    made._state.adding = False
    return made


def _comes_with_its_agent(plan: Planned) -> bool:
    """Whether a row is the tool of an agent that the file also makes: it exists once the agent does."""
    return isinstance(plan.row, Tool) and plan.row._state.adding


def _write_agent_tools(plans: dict[str, list[Planned]], actor: str) -> list[configuration.Change | None]:
    """Bring the tools that ask agents up to date, and write what the file says about new ones."""
    changes: list[configuration.Change | None] = []
    try:
        changes += agent_tools.sync(actor)
    except agent_tools.NameTaken as taken:
        raise ConfigurationRefused([Problem("agents", str(taken))]) from taken
    for plan in filter(_comes_with_its_agent, plans["tools"]):
        row = Tool.objects.get(name=plan.row.name)
        for column, value in columns(plan.entry).items():
            setattr(row, column, value)
        changes.append(configuration.save(row, actor, _starters(plan.entry)))
        if "overlaps" in plan.entry:
            changes += guidelines.write_overlaps(row, plan.entry["overlaps"], actor)
    for plan in plans["agents"]:  # again: their routes and guidelines may name these tools
        agent = Agent.objects.get(name=plan.row.name)
        if "routes" in plan.entry:
            changes += _write_routes(agent, plan.entry["routes"], actor)
        if "guidelines" in plan.entry:
            changes += guidelines.write(agent, plan.entry["guidelines"], actor)
        if "variables" in plan.entry:
            changes += variables.write(agent, plan.entry["variables"], actor)
    return changes


def _current(plan: Planned) -> Any:
    """The row to store: as it is now, locked, with what the file says. It may have been made in the meantime."""
    found = type(plan.row)._default_manager.select_for_update(of=("self",)).filter(name=plan.row.name).first()
    if found is None or (isinstance(found, Rule) and found.version == 0):
        return plan.row
    for column, value in columns(plan.entry).items():
        setattr(found, column, value)
    return found


def _write_routes(agent: Agent, routes: dict[str, Any], actor: str) -> list[configuration.Change | None]:
    changes: list[configuration.Change | None] = []
    for name, entry in routes.items():
        route = Route.objects.filter(agent=agent, name=name).first() or Route(agent=agent, name=name)
        for column, value in columns(entry).items():
            setattr(route, column, value)
        many = {"tools": list(Tool.objects.filter(name__in=entry["tools"]))} if "tools" in entry else {}
        changes.append(configuration.save(route, actor, many))
    for route in Route.objects.filter(agent=agent).exclude(name__in=routes):
        changes += configuration.delete(route, actor)
    return changes


def _permissions(names: list[str]) -> list[Permission]:
    chosen = models.Q(pk__in=[])
    for name in names:
        app, _, codename = name.partition(".")
        chosen |= models.Q(content_type__app_label=app, codename=codename)
    return list(Permission.objects.filter(chosen))


def _agent_tools(data: dict[str, Any], problems: list[Problem]) -> set[str]:
    """The tools by which agents will be asked once the file is loaded."""
    agents = {agent.name: agent for agent in Agent.objects.all()}
    entries = data.get("agents")
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        agent = agents.setdefault(str(name), Agent(name=str(name)))
        for column in ("subagents", "denied_subagents"):
            listed = entry.get(column) if isinstance(entry, dict) else None
            if isinstance(listed, list):
                setattr(agent, column, [str(other) for other in listed])
    try:
        return set(agent_tools.check_names(agents.values()))
    except agent_tools.NameTaken as taken:
        problems.append(Problem("agents", str(taken)))
        return set()


def _known_names(data: dict[str, Any], problems: list[Problem]) -> Known:
    def named(section: str) -> set[str]:
        entries = data.get(section)
        return {str(name) for name in entries} if isinstance(entries, dict) else set()

    agents = data.get("agents")
    entries = list(agents.values()) if isinstance(agents, dict) else []
    route_maps = [entry.get("routes") for entry in entries if isinstance(entry, dict)]
    routes = {str(name) for found in route_maps if isinstance(found, dict) for name in found}
    permissions = Permission.objects.values_list("content_type__app_label", "codename")
    asking = _agent_tools(data, problems)
    return Known(
        agent_tools=frozenset(asking),
        agents=frozenset({*Agent.objects.values_list("name", flat=True), *named("agents")}),
        channel_kinds=frozenset(channels.CHANNELS),
        drivers=frozenset(DRIVERS),
        groups=frozenset({*Group.objects.values_list("name", flat=True), *named("groups"), *ROLES}),
        permissions=frozenset(f"{app}.{codename}" for app, codename in permissions),
        reading_tools=frozenset(_reading_tools(data, asking)),
        routes=frozenset({*Route.objects.values_list("name", flat=True), *routes}),
        tools=frozenset({*Tool.objects.values_list("name", flat=True), *asking}),
    )


def _reading_tools(data: dict[str, Any], asking: set[str]) -> set[str]:
    """The tools that will only read once the file is loaded."""
    classes: dict[str, Any] = {name: agent_tools.planned(name).effect_class for name in asking}
    classes |= dict(Tool.objects.values_list("name", "effect_class"))
    entries = data.get("tools")
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and "effect_class" in entry:
            classes[name] = entry["effect_class"]
    return {name for name, effect_class in classes.items() if effect_class == EffectClass.READ}


def _names(row: models.Model, link: str) -> list[str]:
    return [] if row._state.adding else sorted(getattr(row, link).values_list("name", flat=True))
