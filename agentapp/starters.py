"""Whose runs may call a tool. A tool can be kept to runs that members of some groups start.

An agent acts with the installation's credentials. Without this, whoever may start an agent may have done whatever its
tools can do.
"""

from collections.abc import Iterable

from django.contrib.auth.models import Group, User
from django.db.models import Exists, OuterRef, Q

from agentapp.models import Agent, Tool

NOT_FOR = "Runs of the person who started this one may not call {}."
NOT_YOURS = "Your runs may not call {}: it is kept to those of other people."
_KEPT = Tool.starters.through.objects


def is_kept() -> Exists:
    """Whether a tool is kept to some people's runs: the annotation with which `barred` need not ask for every tool."""
    return Exists(_KEPT.filter(tool=OuterRef("pk")))


def keeps_tools() -> Exists:
    """The same of an agent: whether it has such a tool."""
    return Exists(_KEPT.filter(tool__agents=OuterRef("pk")))


def barred(starter: int | None, tools: Iterable[Tool]) -> frozenset[str]:
    """The names of the tools that runs of this person may not call. None: nobody's run, which may call no kept tool.

    One query, if one of the tools may be kept; groups and the person are looked up as they are now.
    """
    kept = {tool.pk: tool.name for tool in tools if getattr(tool, "is_kept", True)}
    if not kept:
        return frozenset()
    theirs = Group.objects.filter(user=starter, user__is_active=True) if starter is not None else Group.objects.none()
    may = Tool.objects.filter(Q(starters__isnull=True) | Q(starters__in=theirs), pk__in=kept)
    return frozenset(kept.values()) - frozenset(may.values_list("name", flat=True))


def barred_from(agent: Agent, route: str, user: User) -> list[str]:
    """The tools in use of an agent and route that runs of this person may not call, in order.

    `agent` comes with `keeps_tools`.
    """
    if not getattr(agent, "keeps_tools", True):
        return []
    tools = agent.tools.select_related("source").annotate(is_kept=is_kept())
    if route:
        tools = tools.filter(routes__agent=agent, routes__name=route)
    return sorted(barred(user.pk, [tool for tool in tools if tool.is_in_use]))
