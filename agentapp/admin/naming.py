"""What knows an agent, a route or a tool by its name alone, in words: it would mean nothing under another name."""

from django import forms

from agentapp import agent_tools
from agentapp.models import Agent, KillSwitch, Tool
from approvals import grants, rule_versions

# So many of those that know a name are listed.
MOST_NAMED = 5


def refuse_rename(what: str, named_by: list[str]) -> None:
    """Refuse a new name where something knows the old one, which would then be for nobody."""
    if named_by:
        more = ", and more" if len(named_by) > MOST_NAMED else ""
        raise forms.ValidationError(
            f"These know this {what} by its name: {', '.join(named_by[:MOST_NAMED])}{more}. "
            "Let them name another first, or take them back; a switch is released."
        )


def of_agent(name: str) -> list[str]:
    """Without its rules and switches an agent does what they forbid, and another by its name has its grants."""
    return [
        *(f"kill switch on the {switch}" for switch in KillSwitch.objects.filter(scope="agent", key=name)),
        *(f"rule {rule.name}" for rule in rule_versions.about(name)),
        *(f"grant {grant.reference}" for grant in grants.in_force(name)),
    ]


def of_asking(was: str, name: str) -> list[str]:
    """What lets other agents ask this one, or keeps them from it. The tool for that is called after it."""
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
    ]


def refuse_taken(was: str, name: str) -> None:
    """Refuse a new name whose tool there is: what was set for that one is not meant for this agent."""
    tool, row = agent_tools.tool_name(name), agent_tools.asking(was).first()
    if row is not None and Tool.objects.filter(name=tool).exclude(pk=row.pk).exists():
        raise forms.ValidationError(
            f"There is a tool {tool} already, so the one that asks this agent cannot be called so. Choose another "
            "name, or delete that tool first, if nothing uses it any more."
        )
