"""Rows → a file. Loading what was dumped changes nothing."""

from decimal import Decimal
from typing import Any

import yaml
from django.contrib.auth.models import Group

from agentapp import plain_yaml
from agentapp.configuration_file import guidelines, variables
from agentapp.configuration_file.shape import (
    LINKS,
    SECTIONS,
    AgentEntry,
    ChannelEntry,
    GroupEntry,
    RouteEntry,
    RuleEntry,
    ToolEntry,
    WebhookEntry,
)
from agentapp.models import Agent, Tool, WebhookEndpoint
from approvals.models import Channel, Rule

_HEADER = "# Configuration of Countersign. Load it with: manage.py load_config FILE\n"


class _ReadableDumper(plain_yaml.Dumper):
    """Writes texts of several lines as blocks, so that differences are readable."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # In a block, U+0085 also ends a line, and would be read back as a line feed.
    style = '"' if "\x85" in value else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_ReadableDumper.add_representer(str, _text)


def dump() -> str:
    """The whole configuration as YAML, in an order that does not depend on the database."""
    # A rule that was never in force is a draft: it is not yet part of the configuration.
    rules = Rule.objects.exclude(version=0).order_by("order", "name")
    data = {
        "groups": {group.name: _group(group) for group in Group.objects.order_by("name")},
        "tools": {tool.name: _tool(tool) for tool in Tool.objects.order_by("name")},
        "agents": {agent.name: _agent(agent) for agent in Agent.objects.order_by("name")},
        "rules": {rule.name: _with_groups(rule, RuleEntry) for rule in rules},
        "channels": {channel.name: _with_groups(channel, ChannelEntry) for channel in Channel.objects.order_by("name")},
        "webhooks": {row.name: _columns(row, WebhookEntry) for row in WebhookEndpoint.objects.order_by("name")},
    }
    assert list(data) == list(SECTIONS)
    return _HEADER + yaml.dump(data, Dumper=_ReadableDumper, sort_keys=False, allow_unicode=True, width=110)


def _agent(agent: Agent) -> dict[str, Any]:
    routes = {
        route.name: {**_columns(route, RouteEntry), "tools": _names(route.tools)}
        for route in agent.routes.order_by("name")
    }
    own = {"guidelines": guidelines.dump(agent), "variables": variables.dump(agent)}
    return {**_columns(agent, AgentEntry), "tools": _names(agent.tools), "routes": routes, **own}


def _tool(tool: Tool) -> dict[str, Any]:
    return {**_columns(tool, ToolEntry), "starters": _names(tool.starters), "overlaps": guidelines.overlaps_of(tool)}


def _group(group: Group) -> dict[str, Any]:
    permissions = group.permissions.values_list("content_type__app_label", "codename")
    names = sorted(f"{app}.{codename}" for app, codename in permissions)
    return {**_columns(group, GroupEntry), "permissions": names}


def _with_groups(row: Rule | Channel, shape: Any) -> dict[str, Any]:
    return {**_columns(row, shape), "groups": _names(row.groups)}


def _columns(row: Any, shape: Any) -> dict[str, Any]:
    return {name: _plain(getattr(row, name)) for name in shape.__annotations__ if name not in LINKS}


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _names(related: Any) -> list[str]:
    return sorted(related.values_list("name", flat=True))
