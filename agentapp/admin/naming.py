"""What refers to an agent, a route or a tool only by name, in words: without that name it would mean nothing."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django import forms
from django.db.models import Model, Q

from agentapp import agent_settings, agent_tools
from agentapp.models import Agent, ContextVariable, EvalCase, Guideline, KillSwitch, Route, Tool
from approvals import delegations, grants, rule_versions

# How many of those that use a name are listed.
MOST_NAMED = 5


def refuse_rename(what: str, named_by: list[str]) -> None:
    """Refuse a new name while something uses the old one, which would then refer to nobody."""
    if named_by:
        more = ", and more" if len(named_by) > MOST_NAMED else ""
        raise forms.ValidationError(
            f"These refer to this {what} by name: {', '.join(named_by[:MOST_NAMED])}{more}. "
            "Make them name another first, or take them back; release switches."
        )


def of_agent(name: str) -> list[str]:
    """Without its rules and switches an agent could do what they forbid; another with its name would get its grants."""
    return [
        *(f"kill switch on the {switch}" for switch in KillSwitch.objects.filter(scope="agent", key=name)),
        *(f"rule {rule.name}" for rule in rule_versions.about(name)),
        *(f"grant {grant.reference}" for grant in grants.in_force(name)),
        *(f"eval case {case}" for case in EvalCase.objects.filter(agent=name)[: MOST_NAMED + 1]),
    ]


def of_asking(was: str, name: str) -> list[str]:
    """What lets other agents ask this one, or stops them. The tool for asking it is named after it."""
    others = Agent.objects.exclude(name=was).order_by("name")
    listed = [
        f"agent {other.name} ({column})"
        for other in others
        for column in ("subagents", "denied_subagents")
        if was in getattr(other, column)
    ]
    tool = agent_tools.tool_name(was)
    if tool == agent_tools.tool_name(name):
        return listed
    return [
        *listed,
        *(f"agent {other.name} (tool_choice)" for other in others if other.tool_choice == tool),
        *(f"kill switch on the {switch}" for switch in KillSwitch.objects.filter(scope="tool", key=tool)),
        *(f"rule {rule.name} (tool {tool})" for rule in rule_versions.about_tool(tool)),
        *(f"grant {grant.reference} (tool {tool})" for grant in grants.standing_grants().filter(tool=tool)),
        *(f"right lent to {lent} (tool {tool})" for lent in delegations.about_tool(tool)),
    ]


def refuse_taken(was: str, name: str) -> None:
    """Refuse a new name whose tool already exists: that tool's settings were not made for this agent."""
    tool, row = agent_tools.tool_name(name), agent_tools.asking(was).first()
    if row is not None and Tool.objects.filter(name=tool).exclude(pk=row.pk).exists():
        raise forms.ValidationError(
            f"A tool {tool} already exists, so the tool that asks this agent cannot have that name. Choose another "
            "name, or delete that tool first if nothing uses it any more."
        )


def keeping(rows: Iterable[Model]) -> list[str]:
    """What would name an agent, a route or a tool that no longer exists, and could not be loaded from a file."""
    rows = list(rows)
    going = [row.name for row in rows if isinstance(row, Agent)]
    routes = [row for row in rows if isinstance(row, Route)]
    routes += Route.objects.filter(agent__name__in=going).select_related("agent")
    found = [words for route in routes for words in _keeping_route(route, routes)]
    for row in rows:
        if isinstance(row, Agent):
            found += _keeping_agent(row, going)
        elif isinstance(row, Tool):
            found += [f"rule {rule.name}" for rule in rule_versions.about_tool(row.name)]
            found += [f"agent {agent.name} (tool_choice)" for agent in Agent.objects.filter(tool_choice=row.name)]
    return list(dict.fromkeys(found))


def _keeping_route(route: Route, going: Collection[Route]) -> list[str]:
    """A rule for a route of any agent still applies while another agent has a route of that name."""
    others = Route.objects.filter(name=route.name).exclude(pk__in=[each.pk for each in going])
    rules = rule_versions.about(route.agent.name, route.name, of_any_agent=not others.exists())
    return [f"rule {rule.name}" for rule in rules]


def _keeping_agent(agent: Agent, going: Collection[str]) -> Iterator[str]:
    yield from (f"rule {rule.name}" for rule in rule_versions.about(agent.name))
    tool = agent_tools.tool_name(agent.name)
    for other in Agent.objects.exclude(name__in=going).order_by("name"):
        for column in ("subagents", "denied_subagents"):
            if agent.name in getattr(other, column):
                yield f"agent {other.name} ({column})"
        if other.tool_choice == tool:
            yield f"agent {other.name} (tool_choice)"
    using = Q(tools__in=agent_tools.asking(agent.name)) & ~Q(agent__name__in=going)
    yield from (f"route {row}" for row in Route.objects.filter(using).select_related("agent"))
    yield from (f"guideline {row}" for row in Guideline.objects.filter(using).select_related("agent"))
    reading = ContextVariable.objects.filter(tool__in=agent_tools.asking(agent.name)).exclude(agent__name__in=going)
    yield from (f"context variable {row}" for row in reading.select_related("agent"))


class OwnToolsForm(forms.ModelForm):
    """The page of something that belongs to an agent and calls tools: only those the agent may call."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        agent = cleaned.get("agent") or (None if self.instance._state.adding else self.instance.agent)
        if agent is not None:
            refuse_foreign(self, agent_settings.own_tools(agent))
        return cleaned


def refuse_foreign(form: Any, own: Collection[str]) -> None:
    """Refuse tools that the agent may not call: it would never be offered them."""
    for tool in form.cleaned_data.get("tools", ()):
        if tool.name not in own:
            form.add_error("tools", f"{tool.name} is not among the agent's tools.")
