"""What may be in a plan, what the rules say about it, and the state of the world it rests on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentapp import agent_tools
from agentapp.executions import Proposal
from agentapp.messages import ToolCall
from agentapp.models import Tool
from agentapp.tools.arguments import effective
from agentapp.tools.planning import NAME, calls_of
from approvals import step_up
from approvals.digest import canonical, load
from approvals.masking import secret_texts
from approvals.models import PlannedCall, Risk, Verdict
from approvals.policy import Ruling
from approvals.strictest import strictest

NO_LONGER = "{} is not available, so the plan cannot be carried out."
# Each reason why a call may not be planned tells the model what to do instead.
IN_A_PLAN = "A plan cannot contain a plan. List the calls themselves."
ONLY_READS = "It only reads. Make it when you need it, outside the plan."
ASKS_AN_AGENT = "It asks another agent, whose calls are decided separately. Leave it out."
FOR_GOOD = "It cannot be taken back, so it is decided separately. Leave it out."
OF_THE_CUSTOMER = "The customer decides it, and customers decide one call at a time. Leave it out."
NOT_ASKED = "It needs no approval. Make it outside the plan."
CRITICAL = "Its risk is critical, so it is decided separately. Leave it out."
THRESHOLDS = "It needs approval from several groups of people, each with its own count. Leave it out."
SECRET = "It contains a secret, which a list cannot show. Leave it out."  # noqa: S105
TWICE = "The same call is already in the plan; it runs once."


def objections(
    arguments: Mapping[str, Any], before: Sequence[Proposal], judge: Callable[[ToolCall, list[Proposal]], Proposal]
) -> str:
    """Why a plan cannot be proposed: a sentence for each call that does not belong in it. Empty: it can.

    `judge` checks a call like any proposed call, together with those before it.
    """
    fit: list[Proposal] = []
    said: list[str] = []
    for number, planned in enumerate(calls_of(arguments), start=1):
        call = ToolCall(f"plan-{number}", planned.tool, canonical(planned.arguments))
        proposal = Proposal(call) if planned.tool == NAME else judge(call, [*before, *fit])
        why = _why_not(proposal, fit)
        if why:
            said.append(f"{number}. {planned.tool}: {why}")
        else:
            fit.append(proposal)
    if not said and fit:
        rulings = [Ruling.from_json(each.ruling) for each in fit]
        together = strictest(rulings[0], rulings)
        said += [together.reason] if together.verdict == Verdict.DENY else []
    return " ".join(said)


def ruling_of(
    own: Ruling, arguments: Mapping[str, Any], tools: Mapping[str, Tool], rule_on: Callable[[Tool, Any], Ruling]
) -> Ruling:
    """What the rules say about a plan now: the strictest of what they say about planning and about each call."""
    found = []
    for call in calls_of(arguments):
        tool = tools.get(call.tool)
        if tool is None:
            return replace(own, verdict=Verdict.DENY, reason=NO_LONGER.format(call.tool))
        ruling = rule_on(tool, effective(tool, call.arguments))
        why = _not_by_rules(tool, ruling)
        if why:
            return replace(ruling, verdict=Verdict.DENY, reason=f"{tool.name}: {why}")
        # By the effect class of each call: the plan's own class says nothing about theirs.
        needed = step_up.needed(ruling.assurance, ruling.risk, tool.effect_class)
        found.append(replace(ruling, assurance=needed))
    return strictest(own, found)


def tools_of(arguments: Mapping[str, Any]) -> dict[str, Tool]:
    """The tools of a plan's calls, by name, as far as they exist."""
    names = {call.tool for call in calls_of(arguments)}
    return {tool.name: tool for tool in Tool.objects.filter(name__in=names).select_related("source")}


def snapshot_of(arguments: Mapping[str, Any], take: Callable[[Tool, dict[str, Any]], str]) -> str:
    """The state that a plan rests on: for each call, its tool's contract and what the tool looks up."""
    tools = tools_of(arguments)
    looked: dict[str, Any] = {}
    for number, call in enumerate(calls_of(arguments), start=1):
        tool = tools.get(call.tool)
        state = take(tool, effective(tool, call.arguments)) if tool is not None else ""
        looked[place(number, call.tool)] = {"version": tool.version if tool is not None else "", "state": state}
    return canonical(looked)


def told(snapshot_text: str) -> dict[str, Any]:
    """A state in the form in which people compare it with another. For a plan: the state of each of its calls."""
    found = load(snapshot_text) if snapshot_text else {}
    told: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict) and set(value) == {"version", "state"} and isinstance(value["state"], str):
            told[f"{name}, its contract"] = value["version"][:12]
            state = load(value["state"]) if value["state"] else {}
            told |= {f"{name}, {key}": one for key, one in state.items()}
        else:
            told[name] = value
    return told


def place(number: int, tool: str) -> str:
    """How a call of a plan is named among the others: with its position."""
    return f"{number}. {tool}"


def _why_not(proposal: Proposal, fit: Sequence[Proposal]) -> str:
    """Why a call does not belong in a plan, or an empty string."""
    tool = proposal.tool
    if proposal.call.name == NAME:
        return IN_A_PLAN
    if proposal.refusal is not None or tool is None:
        return proposal.refusal.message if proposal.refusal is not None else ""
    if agent_tools.asks_agent(tool):
        return ASKS_AN_AGENT
    if not tool.consequential:
        return ONLY_READS
    ruling = Ruling.from_json(proposal.ruling)
    if ruling.verdict == Verdict.ALLOW:
        return NOT_ASKED
    if secret_texts(proposal.arguments, tool.secret_fields):
        return SECRET
    # Even for a tool that may be repeated: nobody could tell which of two identical calls was made.
    if any((each.call.name, each.canonical_text) == (tool.name, proposal.canonical_text) for each in fit):
        return TWICE
    return _not_by_rules(tool, ruling)


def _not_by_rules(tool: Tool, ruling: Ruling) -> str:
    """Why the rules or an admin's settings keep a call out of every plan."""
    if ruling.verdict == Verdict.DENY:
        return ruling.reason
    if tool.effect_class not in PlannedCall.EFFECT_CLASSES:
        return FOR_GOOD
    if ruling.customer:
        return OF_THE_CUSTOMER
    if ruling.risk == Risk.CRITICAL:
        return CRITICAL
    return THRESHOLDS if ruling.terms else ""
