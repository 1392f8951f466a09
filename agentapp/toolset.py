"""Which tools a step discloses, and the agent's configuration as a run keeps it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.db.models import Q, UUIDField

from agentapp import agent_tools, configuration_cache, starters, switches
from agentapp.breakers import Thing, of_tool
from agentapp.considered import GUIDED
from agentapp.messages import ToolSpec
from agentapp.models import (
    Agent,
    Breaker,
    ContextVariable,
    GuidelineRelation,
    KillSwitch,
    Route,
    Run,
    Tool,
    ToolRelation,
)
from approvals import grants, shadows, supposing
from approvals.models import Channel, Grant, Rule
from approvals.prepared import Given, Prepared
from approvals.shadows import Shadow

_AGENT = Given("agent", UUIDField())
_TOOLS = Prepared(lambda: Tool.objects.filter(agents=_AGENT).order_by().values_list("name", flat=True))
_ROUTED = Prepared(lambda: Route.objects.filter(agent=_AGENT).order_by("name").values_list("name", "tools__name"))


@dataclass(frozen=True)
class Configuration:
    """What is read from the tables at one height of the configuration chain."""

    height: int
    tools: dict[str, Tool]
    rules: tuple[Rule, ...]
    channels: tuple[Channel, ...]
    subagents: dict[str, Agent] = field(default_factory=dict)
    """The agents that the run's agent may ask, by the name of their tool."""
    breakers: dict[Thing, Breaker] = field(default_factory=dict)
    """Those that are not closed."""
    switches: tuple[KillSwitch, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    """Drafts of rules that watch and decide nothing."""
    agent: str = ""
    """The agent whose grants count. Empty: no grants count."""
    starter: int | None = None
    """The person whose run it is."""
    mocked: bool = False
    """The run reaches no tool, so none is kept from it."""

    @cached_property
    def grants(self) -> tuple[Grant, ...]:
        """The agent's grants in force. Read only for the first call that would ask and that a grant may allow."""
        return tuple(grants.in_force(self.agent)) if self.agent else ()

    @cached_property
    def barred(self) -> frozenset[str]:
        """The tools that only other people's runs may call. Read once, if one of them is kept to some people's."""
        return frozenset() if self.mocked else starters.barred(self.starter, self.tools.values())

    def disclosed(self, run: Run) -> dict[str, Tool]:
        """The run's tools that may be used now: those of its agent and route that are enabled, still exist, and are
        not kept to other people's runs.
        """
        names = {*run.agent_snapshot["tools"], *self.subagents}
        if run.route:
            names &= set(run.agent_snapshot["routes"].get(run.route, []))
        return {
            name: tool
            for name, tool in self.tools.items()
            if name in names
            and tool.is_in_use
            and agent_tools.asks_agent(tool) == (name in self.subagents)
            and not self.switch_of_tool(name)
            and name not in self.barred
        }

    def switch_of(self, run: Run) -> KillSwitch | None:
        """The kill switch that stops the whole run, if one is engaged."""
        scope = KillSwitch.Scope
        names = switches.names_of(run)
        for switch in self.switches:
            if switch.scope == scope.ALL or (switch.scope == scope.AGENT and switch.key in names):
                return switch
        return None

    def switch_of_tool(self, name: str) -> KillSwitch | None:
        """The kill switch that stops calls of one tool, if one is engaged."""
        scope = KillSwitch.Scope.TOOL
        return next((switch for switch in self.switches if switch.scope == scope and switch.key == name), None)

    def breakers_of(self, tool: Tool) -> list[Breaker]:
        """The breakers that could stop the next call of a tool. Nearly always none."""
        return [self.breakers[thing] for thing in of_tool(tool) if thing in self.breakers] if self.breakers else []


def may_call(run: Run) -> bool:
    """Whether steps of a run may call tools or agents, by its snapshot. Those switched off since still count."""
    agent = run.agent_snapshot
    return bool(agent["routes"].get(run.route) if run.route else agent["tools"] or agent.get("subagents"))


def read_configuration(run: Run, height: int, hash: str = "") -> Configuration:
    """Tools, rules, channels and what is stopped, at the start of a drive and after a change.

    Seven queries, and one more for an agent that may ask others. With the `hash` of the configuration's chain, only
    those whose answers this process does not have yet.
    """
    subagents = _subagents(run)
    names = frozenset([*run.agent_snapshot["tools"], *subagents])
    tools = configuration_cache.at(hash, names, lambda: _tools(names))
    rules, watching = configuration_cache.at(hash, "rules", shadows.read)
    switches_on = configuration_cache.at(hash, "switches", _switches)
    if run.is_mocked:
        rules = supposing.suppose(rules, run.agent_snapshot.get("rules", {}))
        # The same rules and tools. Breakers, grants and channels belong to the real world and are left out.
        return Configuration(
            height=height, tools=tools, rules=rules, channels=(), subagents=subagents, switches=switches_on,
            mocked=True,
        )  # fmt: skip
    return Configuration(
        height=height,
        tools=tools,
        rules=rules,
        shadows=watching,
        channels=configuration_cache.at(hash, "channels", _channels),
        subagents=subagents,
        breakers=configuration_cache.at(hash, "breakers", _breakers),
        switches=switches_on,
        agent=run.agent_snapshot["name"],
        starter=run.starter_id,
    )


def _tools(names: Collection[str]) -> dict[str, Tool]:
    rows = Tool.objects.filter(name__in=names).select_related("source").annotate(is_kept=starters.is_kept())
    return {tool.name: tool for tool in rows}


def _channels() -> tuple[Channel, ...]:
    return tuple(Channel.objects.filter(active=True).prefetch_related("groups"))


def _switches() -> tuple[KillSwitch, ...]:
    return tuple(KillSwitch.objects.select_related("engaged_by"))


def read_rules(run: Run) -> Configuration:
    """The part of the configuration that decides how rules apply to a call: rules, their groups and open breakers."""
    return Configuration(
        height=0, tools={}, rules=_rules(), channels=(), breakers=_breakers(), agent=run.agent_snapshot["name"]
    )


def _rules() -> tuple[Rule, ...]:
    return shadows.read()[0]


def _breakers() -> dict[Thing, Breaker]:
    opened = Breaker.objects.exclude(state=Breaker.State.CLOSED)
    return {Thing(breaker.scope, breaker.key): breaker for breaker in opened}


def _subagents(run: Run) -> dict[str, Agent]:
    """The enabled agents that the run's agent may ask, according to the run's snapshot."""
    agent = run.agent_snapshot
    allowed, denied = agent.get("subagents", []), agent.get("denied_subagents", [])
    if not allowed:
        return {}
    enabled = Agent.objects.filter(enabled=True)
    named = enabled if agent_tools.EVERY_AGENT in allowed else enabled.filter(name__in=allowed)
    asked = [other for other in named if agent_tools.may_ask(agent["name"], allowed, denied, other.name)]
    return {agent_tools.tool_name(other.name): other for other in asked}


def specs(tools: dict[str, Tool]) -> list[ToolSpec]:
    """What the model is told, in a stable order, so that providers can cache it."""
    return [ToolSpec(name, tools[name].description, tools[name].input_schema) for name in sorted(tools)]


def tool_choice(run: Run, disclosed: Collection[str], has_called: bool) -> str:
    """What a step's model is told about using tools: the agent's choice, for as long as it can be followed.

    `has_called`: an earlier step of the run asked for calls. If a choice that forces a call were kept
    after that, the run would never end.
    """
    choice: str = run.agent_snapshot.get("tool_choice", "auto")
    if choice == "none":
        return choice
    if has_called and run.agent_snapshot.get("reset_tool_choice", True):
        return "auto"
    return choice if choice in disclosed or (choice == "required" and disclosed) else "auto"


# The columns that a new run copies from its agent's row. `subagents` are offered as tools.
_SNAPSHOT = (
    "name", "instructions", "driver", "driver_settings", "model", "model_settings", "parallel_tool_calls",
    "tool_choice", "reset_tool_choice", "message_compiler", "compiler_settings", "subagents", "denied_subagents",
    "max_depth", "hooks", "hook_contract", "max_iterations", "on_limit", "max_steps", "max_tokens", "max_seconds",
    "max_calls", "on_call_limit", "finish_reasons", "max_cost", "max_daily_cost", "on_budget", "on_reject",
    "raise_on_tool_failure", "fail_run_on_tool_error", "stop_on_tool_block", "streams",
)  # fmt: skip


def _guidance(agent: Agent) -> dict[str, Any]:
    """The enabled guidelines and how they and the agent's tools relate, in the form that guidance reads."""
    on = agent.guidelines.filter(enabled=True)
    pairs = GuidelineRelation.objects.filter(source__in=on).filter(Q(target__in=on) | Q(tool__isnull=False))
    overlaps = ToolRelation.objects.filter(kind=ToolRelation.Kind.OVERLAP)
    return {
        "guidelines": [
            {
                **{name: getattr(row, name) for name in _GUIDELINE},
                "tools": sorted(tool.name for tool in row.tools.all()),
            }
            for row in on.order_by("name").prefetch_related("tools")
        ],
        "relations": [
            {"kind": row.kind, "source": row.source.name, "target": (row.target or row.tool).name}  # type: ignore[union-attr]
            for row in pairs.select_related("source", "target", "tool").order_by("source__name", "kind", "pk")
        ],
        "variables": sorted(ContextVariable.objects.filter(agent=agent).values_list("name", flat=True)),
        "overlaps": [list(pair) for pair in overlaps.order_by("pk").values_list("source__name", "target__name")],
    }


_GUIDELINE = (
    "name", "condition", "action", "description", "criticality", "priority", "matcher", "python", "version",
)  # fmt: skip


def snapshot_for(agent: Agent, tool: str, route: str = "") -> dict[str, Any]:
    """The snapshot of a run that makes one call of one tool in an agent's name.

    It has the agent's limits, hooks and reporting as they are now, only that one tool, and nothing of its model.
    """
    return {
        **snapshot_of(agent), "driver": "scripted", "tools": [tool], "subagents": [],
        # The rules of the route apply to this call as well.
        "routes": {route: [tool]} if route else {},
        "tool_choice": "auto",
    }  # fmt: skip


def snapshot_of(agent: Agent) -> dict[str, Any]:
    """The agent's configuration, as a run keeps it for its whole life. Amounts of money are strings."""
    kept = {name: getattr(agent, name) for name in _SNAPSHOT}
    return {
        **{name: str(value) if isinstance(value, Decimal) else value for name, value in kept.items()},
        **({"guidance": _guidance(agent)} if agent.driver == GUIDED else {}),
        "tools": sorted(_TOOLS.rows(agent=agent.pk)),
        "routes": _routes(_ROUTED.rows(agent=agent.pk)),
    }


def _routes(found: Sequence[tuple[str, str | None]]) -> dict[str, list[str]]:
    """The tools of each route. A route without tools is still included."""
    routes: dict[str, list[str]] = {}
    for route, tool in found:
        routes.setdefault(route, []).extend([tool] if tool is not None else [])
    return {name: sorted(tools) for name, tools in routes.items()}
