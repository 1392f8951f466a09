"""What is checked again when a call that was proposed earlier is about to run."""

from dataclasses import replace
from functools import partial

from django.contrib.auth.models import User
from django.db.models import IntegerField, TextField, UUIDField

from agentapp import (
    breakers,
    budgets,
    business_keys,
    families,
    locked,
    other_code,
    provenance,
    runs,
    starters,
    weighing,
)
from agentapp.budgets import Breach
from agentapp.business_keys import Key
from agentapp.call_checks import refusal
from agentapp.messages import ToolResult
from agentapp.models import Tool, ToolExecution
from agentapp.proposals import ruling_for, stopped_by_breaker
from agentapp.reasons import Reason
from agentapp.repeating import NO_BUSINESS_KEY
from agentapp.state import RunState
from agentapp.tools.schema import check_arguments
from approvals import signatures, standing, step_up
from approvals.digest import parse
from approvals.models import HIGH_RISKS, Approval, DecisionType, Verdict
from approvals.policy import Ruling
from approvals.prepared import Given, Prepared
from approvals.risk import higher

_ACTIVE = Prepared(
    lambda: User.objects.filter(pk=Given("user", IntegerField()), is_active=True).values_list("pk", flat=True)
)
_SAME_ACTS = Prepared(
    lambda: (
        ToolExecution.objects.select_related("tool")
        .filter(
            run=Given("run", UUIDField()),
            name=Given("name", TextField()),
            executed_text=Given("text", TextField()),
            idempotency_key__isnull=False,
        )
        .exclude(pk=Given("pk", UUIDField()))
        .order_by()
    )
)


def no_longer_possible(state: RunState, execution: ToolExecution, text: str, tool_version: str) -> ToolResult | None:
    """Why a call that was proposed earlier cannot run under the present configuration."""
    tool = state.disclosed.get(execution.name)
    if tool is None and execution.name in state.configuration.barred:
        return refusal(Reason.PERMISSION_DENIED, starters.NOT_FOR.format(execution.name))
    if tool is None:
        return refusal(Reason.TOOL_DISABLED, f"{execution.name} is no longer available.")
    if tool_version and tool.version != tool_version:
        return refusal(Reason.ACTION_CHANGED, f"{execution.name} has changed since. Propose the call again.")
    problems = check_arguments(tool.input_schema, parse(text))
    if problems:
        return refusal(Reason.INVALID_ARGUMENTS, problems[0].sentence)
    if tool.consequential and tool.business_key_template and not business_keys.act_of(tool, parse(text)):
        return refusal(Reason.MISSING_IDEMPOTENCY_KEY, NO_BUSINESS_KEY.format(tool.business_key_template))
    starter = state.run.starter_id
    if starter is not None and not _ACTIVE.rows(user=starter):
        return refusal(Reason.PERMISSION_DENIED, "The person who started this run may no longer act.")
    # Other runs of the family may have asked agents meanwhile.
    if execution.subrun_id is None and (why := families.full(state.run, tool)):
        return refusal(Reason.CALL_LIMIT_EXCEEDED, why)
    return None


def stale(state: RunState, execution: ToolExecution, approval: Approval, ruling: Ruling, snapshot: str) -> str:
    """Why an approval no longer covers the call, so that people are asked again. Empty: it does. Raises OtherCode."""
    tool, text = state.configuration.tools[approval.tool], approval.final_arguments_text
    if tool.version != approval.tool_version:
        return "The tool has changed since it was approved."
    if tool.effect_class != approval.effect_class and not approval.plan_text:  # a plan's calls are checked one by one
        return "The tool's effect class has changed since it was approved."
    given = standing.on_record(approval)
    if approval.terms and not standing.is_enough(approval, given):
        return "Not enough of the people who approved still count."
    if approval.mocked != state.run.is_mocked or not standing.is_bound(approval, given):
        return "The request on record is not the one that people approved."
    if not signatures.hold(approval, given):
        return "A decision on record is not what was signed."
    by_people = approval.editor_id is not None or any(one.type == DecisionType.EDIT for one in given)
    # A retry repeats an act that has already begun, so fields locked since then do not matter.
    if by_people and not execution.attempts and (changed := locked.changed(approval, tool, text)):
        return f"People changed fields that nobody may change any more: {', '.join(changed)}."
    if snapshot != approval.snapshot_text:
        unseen = other_code.unseen(execution, tool, parse(text))
        return unseen or "The state that the decision rested on has changed since it was approved."
    if not standing.deciders_still_allowed(approval, given):
        return "A person who approved may no longer decide."
    if ruling.verdict == Verdict.ASK and not standing.meets(approval, ruling, given):
        if approval.is_edited and higher(ruling.risk, approval.risk) != approval.risk:
            return f"Since it was changed, its risk is {ruling.risk} and no longer {approval.risk}."
        return f"The rules have become stricter: {ruling.reason}"
    return ""


def ruling_of(state: RunState, execution: ToolExecution, approval: Approval, tool: Tool, text: str) -> Ruling:
    """What the rules say now about the call that people were asked about. Its values have the origins that they saw.

    A call that somebody changed is weighed again: the risk on its card is that of the call the agent proposed.
    """
    was, now = parse(approval.arguments_text), parse(text)
    origins = partial(provenance.after_edit, approval.provenance, was, now) if approval.provenance else None
    ruling = ruling_for(state.situation, tool, now, again=execution, begins=True, origins=origins)
    if not approval.is_edited or ruling.verdict != Verdict.ASK:
        return ruling
    known = origins() if origins is not None else []
    return replace(ruling, risk=weighing.risk_of(state.run, tool, ruling.risk, now, known, execution))


def people_next(execution: ToolExecution, approval: Approval, ruling: Ruling) -> bool:
    """Whether people must allow what the customer has confirmed, by the rules now or when it was proposed."""
    asked = (Ruling.from_json(execution.ruling), ruling)
    shows = step_up.needed("", approval.risk, approval.effect_class)
    untold = execution.tool is not None and weighing.untold(execution.tool, parse(approval.arguments_text))
    weighty = approval.risk in HIGH_RISKS or bool(shows) or untold
    return approval.asks_customer and (weighty or any(one.verdict == Verdict.ASK and one.people for one in asked))


def key_of(execution: ToolExecution, tool: Tool, text: str) -> Key:
    """The idempotency key: the same for every attempt at this call, different for every other act. It comes with the
    other call that has the key, if there is one: the act was done, or is under way.

    `tool` is the row as configured now: the one read with the call may predate a change.
    """
    if tool.business_key_template:
        return business_keys.key_of(execution.run, business_keys.act_of(tool, parse(text)), execution)
    # Only the same act of the same run can have the key.
    same = _SAME_ACTS.rows(run=execution.run_id, name=execution.name, text=text, pk=execution.pk)
    failed_or_repeatable = sum(
        tool.repeatable or not (other.took_effect or other.was_left_unknown) for other in same
    )  # fmt: skip
    digest = business_keys.digest_for(
        execution.run, f"{execution.run_id}|{execution.name}|{text}|{failed_or_repeatable}"
    )
    return Key(digest, next((other for other in same if other.idempotency_key == digest), None))


def key_consumed(taken: ToolExecution | None) -> ToolResult | None:
    return refusal(Reason.IDEMPOTENCY_KEY_CONSUMED, business_keys.told(taken)) if taken is not None else None


def over_budget(state: RunState, tool: Tool) -> Breach | None:
    """The limit that this call would exceed if it began now without approval. Call it before locking more than runs."""
    return budgets.breach_at_begin(state.run, state.steps, tool.cost_per_call, runs.clock(state.run).date())


def exhausted(over: Breach | None, tool: Tool) -> ToolResult | None:
    """Why a call beyond a budget is refused. None: there is room, or people are asked."""
    return refusal(Reason.BUDGET_EXHAUSTED, over.told(tool.name)) if over is not None and not over.asks else None


def cannot_be_asked(state: RunState, tool: Tool) -> ToolResult | None:
    """Why a breaker stops a call whatever people say: it is refused, and nobody is asked."""
    stopped = stopped_by_breaker(state.situation, tool)
    return refusal(Reason.CIRCUIT_OPEN, stopped) if stopped else None


def circuit_open(state: RunState, tool: Tool) -> ToolResult | None:
    """Why a breaker does not let the call through now. The last check before it begins: it may take the one probe."""
    if not state.configuration.breakers_of(tool):
        return None
    stopped = breakers.admit(breakers.of_tool(tool), tool.timeout_seconds * tool.max_attempts)
    return refusal(Reason.CIRCUIT_OPEN, f"{stopped} Go on without it.") if stopped else None


def denied(ruling: Ruling) -> ToolResult | None:
    """Why the rules forbid a call now. When it was proposed they did not, or it would have been refused then."""
    if ruling.verdict != Verdict.DENY:
        return None
    return refusal(Reason.POLICY_CHANGED, f"The rules now forbid this call: {ruling.reason}")
