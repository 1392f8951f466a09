"""Agents as tools: the only writer of the rows that offer one agent to another.

An agent that another may ask has a tool `ask_<name>`. Admins set its effect class, approval, rules and
switches as for any other tool. Its contract comes from the agent's own row.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from agentapp.models import Agent, Tool, ToolSource
from approvals import configuration, ledger
from approvals.digest import canonical, sha256
from approvals.models import EffectClass

KIND = "agent"
PREFIX = "ask_"
MAX_INPUT_CHARS = 100_000
EVERY_AGENT = "*"


class NameTaken(ValueError):
    """Two things would need the same name; the message says which."""


def tool_name(agent: str) -> str:
    """The name of the tool that asks an agent."""
    return PREFIX + agent.replace("-", "_")


def asks_agent(tool: Tool | None) -> bool:
    """Whether a tool asks an agent. Reads `source`, which the caller must have fetched."""
    return tool is not None and tool.source.kind == KIND


def may_ask(name: str, allowed: Iterable[str], denied: Iterable[str], other: str) -> bool:
    """Whether the agent of this name may ask the other: allowed, not denied, and not itself."""
    allowed, denied = set(allowed), set(denied)
    if other == name or other in denied or EVERY_AGENT in denied:
        return False
    return other in allowed or EVERY_AGENT in allowed


def offered(agents: Iterable[Agent]) -> dict[str, Agent]:
    """The agents that another agent may ask, by the name of their tool. Raises NameTaken."""
    rows = list(agents)
    found: dict[str, Agent] = {}
    for other in rows:
        if not any(may_ask(row.name, row.subagents, row.denied_subagents, other.name) for row in rows):
            continue
        name = tool_name(other.name)
        if name in found:
            raise NameTaken(f"The tool {name!r} would ask both agents {found[name].name!r} and {other.name!r}.")
        found[name] = other
    return found


def check_names(agents: Iterable[Agent]) -> dict[str, Agent]:
    """`offered`, after checking that no other tool has one of the names. Raises NameTaken."""
    found = offered(agents)
    taken = Tool.objects.filter(name__in=found).exclude(source__kind=KIND).values_list("name", flat=True).first()
    if taken is not None:
        raise NameTaken(
            f"There is a tool {taken!r} already, so no agent can ask {found[taken].name!r}, whose tool would have "
            "the same name. Rename one of the two."
        )
    return found


def contract_columns(agent: Agent, routes: Iterable[str]) -> dict[str, Any]:
    """The columns that follow from the agent."""
    contract: dict[str, Any] = {
        "description": agent.description or f"Ask the agent {agent.name} for help.",
        "input_schema": _input_schema(sorted(routes)),
        "title_template": _title(agent.name),
        "sentence_template": f"The agent {agent.name} will be asked: {{input}}",
        "effects_template": [],
        "button_template": "Ask it",
        "declared_effect_class": str(EffectClass.READ),
    }
    return {**contract, "version": sha256(canonical({"agent": agent.name, **contract})), "missing_since": None}


def planned(name: str) -> Tool:
    """A new row, not stored, for checking a file that creates its agent too."""
    return Tool(name=name, source=ToolSource(name="agents", kind=KIND, location="agents"), **_FIRST_SAFETY)


def asking(agent: str) -> QuerySet[Tool]:
    """The row by which an agent is or was asked. If two agents' tools share a name, it is the row made for this one."""
    return Tool.objects.filter(source__kind=KIND, name=tool_name(agent), title_template=_title(agent))


def rename(was: str, name: str, actor: str) -> None:
    """Rename the tool that asks an agent along with the agent, keeping all that admins have set. Call before `sync`.

    The caller has checked that no tool has the new name.
    """
    row = asking(was).select_for_update(of=("self",), no_key=True).first()
    if row is not None and was != name:
        row.name, row.title_template = tool_name(name), _title(name)
        configuration.save(row, actor)


def sync(actor: str) -> list[configuration.Change]:
    """Write a tool for every agent that another may ask, and mark those that no agent may ask any more.

    Raises NameTaken, and then writes nothing.
    """
    with ledger.transaction():
        found = check_names(Agent.objects.prefetch_related("routes").order_by("name"))
        # Locked, so that nothing an admin sets meanwhile is overwritten.
        held = Tool.objects.filter(source__kind=KIND).select_for_update(of=("self",), no_key=True).order_by("name")
        rows = {row.name: row for row in held}
        changes = _write(found, rows, actor) if found else []
        for name in sorted(rows.keys() - found.keys()):
            if rows[name].missing_since is None:
                rows[name].missing_since = timezone.now()
                changes.append(configuration.save(rows[name], actor))
    return [change for change in changes if change]


# The calls that the asked agent makes pass the gate themselves.
_FIRST_SAFETY: dict[str, Any] = {"effect_class": str(EffectClass.READ), "max_attempts": 1, "version": "0"}


def _write(found: Mapping[str, Agent], rows: Mapping[str, Tool], actor: str) -> list[configuration.Change | None]:
    changes: list[configuration.Change | None] = []
    source = ToolSource.objects.filter(kind=KIND).first()
    if source is None:
        source = ToolSource(name="agents", kind=KIND, location="agents")
        if ToolSource.objects.filter(name=source.name).exists():
            source.name = "agents-that-can-be-asked"
        changes.append(configuration.save(source, actor))
    for name, agent in found.items():
        row = rows.get(name) or Tool(name=name, **_FIRST_SAFETY)
        row.source = source
        for column, value in contract_columns(agent, (route.name for route in agent.routes.all())).items():
            setattr(row, column, value)
        changes.append(configuration.save(row, actor))
    return changes


def _title(agent: str) -> str:
    return f"Ask the agent {agent}"


def _input_schema(routes: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "input": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_INPUT_CHARS,
            "description": "What it is to do, with everything it must know: it sees nothing of this conversation.",
        }
    }
    if routes:
        properties["route"] = {"type": "string", "enum": routes, "description": "What kind of task it is."}
    return {"type": "object", "properties": properties, "required": ["input"], "additionalProperties": False}
