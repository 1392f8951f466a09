"""The first half of the one pipeline: every check of a proposed call that needs no person.

In order: well-formed, disclosed, arguments fit the schema, not a repetition, permitted, ruled on,
within limits. The result is a Proposal: refused with a reason, ready to run, or waiting for people.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import Any

from django.conf import settings

from agentapp import (
    agent_tools,
    breakers,
    budgets,
    call_limits,
    customer_links,
    families,
    grant_use,
    plan_use,
    planning,
    provenance,
    repeating,
    runs,
    starters,
    weighing,
)
from agentapp.call_checks import CallRefused, fits, refusal, well_formed, written_out
from agentapp.compilers import Earlier
from agentapp.executions import Proposal
from agentapp.messages import ToolCall
from agentapp.models import Run, Tool, ToolExecution
from agentapp.reasons import Reason
from agentapp.tools.arguments import effective
from agentapp.tools.planning import proposes_plan
from agentapp.toolset import Configuration
from agentapp.totals import KeptCalls
from agentapp.transcript import StepRows
from approvals import moments, policy, shadows, totals
from approvals.digest import sha256
from approvals.granted import Wanted
from approvals.models import Question, Verdict
from approvals.policy import Ruling

MAX_CALLS_PER_STEP = 32
BESIDE_TOO_MANY = "Another call in this reply exceeded a limit, which ends the run. This one did not run."


@dataclass(frozen=True)
class Situation:
    """What the checks of a step's calls look at."""

    run: Run
    configuration: Configuration
    disclosed: dict[str, Tool]
    steps: Sequence[StepRows]
    earlier: Earlier | None = None
    asked: Sequence[Question] = ()
    """What people asked about the one call being checked, and the agent answered."""

    @cached_property
    def sources(self) -> provenance.Sources:
        """What the model had been told when it proposed these calls, without the step that they belong to."""
        steps = [rows for rows in self.steps if not rows.open]
        past = past_of(self.run, steps, self.earlier)
        handed = [*provenance.handed_to(self.run), *provenance.asked(self.asked)]
        return provenance.sources_of(replace(past, handed=handed))


def past_of(run: Run, steps: Sequence[StepRows], earlier: Earlier | None) -> provenance.Past:
    """What was said and done before, as far as it has already been read."""
    if earlier is None:
        return provenance.Past(run, steps)
    before = [rows for made in earlier.steps.values() for rows in made]
    said = [*earlier.messages, *earlier.meanwhile]
    return provenance.Past(run, [*before, *earlier.kept, *steps], said, summary=earlier.summary)


def judge(
    situation: Situation, calls: Sequence[ToolCall], answered: Mapping[int, Proposal] = MappingProxyType({})
) -> list[Proposal]:
    """Check a step's calls, in the model's order. Leading reads may start as soon as they are stored, unless the run
    is about to be paused.

    `answered` are the calls that hooks have already answered, by position.
    """
    proposals: list[Proposal] = []
    run = situation.run
    leading = not run.is_told_to_stop and situation.configuration.switch_of(run) is None
    for index, call in enumerate(calls):
        proposal = answered.get(index) or _judge_one(situation, call, index, proposals)
        if not proposal.refusal:
            leading = leading and not proposal.asks and _is_free(situation, proposal.tool)
            # A call that asks an agent begins together with the run that answers it; see `subagents`.
            if leading and proposal.tool is not None and not agent_tools.asks_agent(proposal.tool):
                proposal = replace(proposal, starts_now=True)
        proposals.append(proposal)
    return _at_call_limit(run, proposals)


def _at_call_limit(run: Run, proposals: list[Proposal]) -> list[Proposal]:
    """If a call over the limit ends the run, no call of its reply runs, but each still gets an answer."""
    too_many = any(p.refusal is not None and call_limits.CONTROL in p.refusal.control for p in proposals)
    if not too_many or not call_limits.ends_run(run):
        return proposals
    ended = refusal(Reason.CANCELLED, BESIDE_TOO_MANY)
    return [
        p if p.refusal else replace(p, refusal=ended, allowed_by="", asks=False, starts_now=False) for p in proposals
    ]


def _is_free(situation: Situation, tool: Tool | None) -> bool:
    """Whether a call may start as soon as it is stored. It must be a read. It must not be a probe, which is checked
    again first. No rule may count it, since the count must include the calls before it in the reply. It must be free of
    charge: a cost is checked against what has begun elsewhere, and is charged when the call begins.
    """
    if tool is None or tool.consequential or tool.cost_per_call or situation.configuration.breakers_of(tool):
        return False
    return not any(
        totals.is_asked(rule.condition)
        and rule.tool in ("", tool.name)
        and rule.effect_class in ("", tool.effect_class)
        for rule in situation.configuration.rules
    )


def ruling_for(
    situation: Situation,
    tool: Tool,
    arguments: dict[str, Any],
    *,
    always_ask: bool = False,
    again: ToolExecution | None = None,
    begins: bool = False,
    watched: bool = False,
    origins: Callable[[], list[dict[str, Any]]] | None = None,
) -> Ruling:
    """What the rules say about a call now. `watched`: also what drafts would have said, which decides nothing.

    `again`: its row, if it was proposed before: it does not count in its own totals. `begins`: in the transaction in
    which it may begin, so that no other call that the totals would count begins at the same time. `origins`: where its
    values came from, if already known.
    """
    run = situation.run
    history = KeptCalls(run, situation.configuration.tools, runs.clock(run), again, begins, arguments)
    found = origins or partial(origins_for, situation, tool, arguments)
    call = as_rules_see_it(situation, tool, arguments, history, found, always_ask)
    rules, watching = situation.configuration.rules, situation.configuration.shadows
    ruling = policy.evaluate(rules, call)
    if proposes_plan(tool):
        tools = situation.configuration.tools
        ruling = planning.ruling_of(ruling, arguments, tools, partial(ruling_for, situation, always_ask=False))
    if ruling.customer and not customer_links.reaches_customer(run):
        ruling = ruling.without_customer()
    return replace(ruling, shadow=shadows.verdicts(watching, rules, call)) if watched and watching else ruling


def as_rules_see_it(
    situation: Situation,
    tool: Tool,
    arguments: dict[str, Any],
    history: KeptCalls,
    origins: Callable[[], list[dict[str, Any]]],
    always_ask: bool,
) -> policy.Call:
    run = situation.run
    doubtful = repeating.is_doubtful(situation.steps, situation.earlier, tool, arguments)
    probes = tool.consequential and situation.configuration.breakers_of(tool)
    return policy.Call(
        tool=tool.name,
        effect_class=tool.effect_class,
        arguments=arguments,
        agent=run.agent_snapshot["name"],
        route=run.route,
        run={"id": str(run.pk), "title": run.title, "step": run.step_count, "metadata": run.metadata},
        customer=run.customer,
        always_ask=always_ask
        or bool(probes)
        or doubtful
        or proposes_plan(tool)  # a person approves every plan, whatever the rules say
        or run.undoes_id is not None  # people are asked before a call is taken back, whatever the rules allow
        or tool.approval_mode == Tool.ApprovalMode.ALWAYS,
        asks_because=repeating.DOUBTFUL if doubtful else "",
        secret=tuple(tool.secret_fields),
        now=moments.seen(runs.clock(run), settings.BUSINESS_HOURS),
        environment=settings.ENVIRONMENT,
        history=history,
        origins=lambda: provenance.by_argument(origins(), tool.input_schema),
    )


def origins_for(
    situation: Situation, tool: Tool, arguments: dict[str, Any], was: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Where the value of each argument came from. `was`: the call before a person changed it."""
    found = provenance.origins_of(
        situation.sources, arguments, schema=tool.input_schema, was=was, secret=tool.secret_fields
    )
    return [origin.as_json() for origin in found]


def _judge_one(situation: Situation, call: ToolCall, index: int, before: list[Proposal]) -> Proposal:
    tool = situation.configuration.tools.get(call.name)
    arguments: Any = None
    text = ""
    ruling: Ruling | None = None
    try:
        if index >= MAX_CALLS_PER_STEP:
            raise CallRefused(
                Reason.CALL_LIMIT_EXCEEDED, f"More than {MAX_CALLS_PER_STEP} calls at once. Propose fewer."
            )
        arguments = well_formed(call)
        tool = _disclosed(situation, call.name)
        arguments = effective(tool, arguments)
        fits(tool, arguments)
        text = written_out(arguments)
        repeating.is_new(situation.steps, situation.earlier, tool, sha256(text), before)
        repeating.is_one_act(situation.run, tool, arguments, before)
        _may_ask_further(situation.run, tool, before)
        if situation.run.starter is not None and not situation.run.starter.is_active:
            raise CallRefused(Reason.PERMISSION_DENIED, "The person who started this run may no longer act.")
        _can_be_planned(situation, tool, arguments, before)
        costs = _needs_budget(situation, tool, before)
        ruling = ruling_for(situation, tool, arguments, always_ask=costs, watched=True)
        if ruling.verdict == Verdict.DENY:
            raise CallRefused(Reason.POLICY_DENIED, f"A rule forbids this call: {ruling.reason}")
        _within_limits(situation, tool, before)
    except CallRefused as refused:
        return Proposal(
            call, tool, arguments, text, ruling.as_json() if ruling else {}, refusal=refused.result,
            replay_of=refused.replay_of,
        )  # fmt: skip
    if ruling.verdict == Verdict.ALLOW:
        return Proposal(call, tool, arguments, text, ruling.as_json(), allowed_by=grant_use.allowed_by(ruling))
    # As things look now. When the call's turn comes, plan and grant are checked again and the call is counted.
    by = "" if costs else plan_use.expected(planned_as(situation, tool, text, ruling, before))
    if by:
        return Proposal(call, tool, arguments, text, ruling.as_json(), allowed_by=by)
    found = grant_use.find(situation.configuration, wanted_of(situation, tool, arguments, ruling))
    by = grant_use.allowed_by(ruling, found[0]) if found else ""
    return Proposal(call, tool, arguments, text, ruling.as_json(), allowed_by=by, asks=not found)


def wanted_of(
    situation: Situation,
    tool: Tool,
    arguments: dict[str, Any],
    ruling: Ruling,
    execution: ToolExecution | None = None,
) -> Wanted:
    """A call as grants see it, with what came from outside and how risky that makes it. Both are found at most once,
    when first needed.

    `execution`: its row, if it already has one.
    """
    run, origins = situation.run, cache(lambda: origins_for(situation, tool, arguments))
    outside = cache(lambda: tuple(provenance.from_outside(origins())))
    weighed = cache(lambda: weighing.risk_of(run, tool, ruling.risk, arguments, origins(), execution))
    return grant_use.wanted(run, tool, arguments, ruling, outside, weighed)


def planned_as(
    situation: Situation, tool: Tool, text: str, ruling: Ruling, beside: Sequence[Proposal] = ()
) -> plan_use.Wanted:
    """A call as plans see it."""
    return plan_use.Wanted(situation.run, situation.configuration, situation.steps, tool, text, ruling, beside)


def judge_again(situation: Situation, call: ToolCall, instead_of: ToolExecution) -> tuple[str, str]:
    """The arguments of a call that is proposed in place of a waiting one, or why it cannot be: one of the two is empty.

    People are asked about it whatever the rules allow, and it counts as the call that it replaces. Budget and limits
    let that call through; they are checked again before this one runs, as is whether the run's starter may still act.
    """
    try:
        arguments = well_formed(call)
        tool = _disclosed(situation, call.name)
        arguments = effective(tool, arguments)
        fits(tool, arguments)
        text = written_out(arguments)
        repeating.is_new(situation.steps, situation.earlier, tool, sha256(text), [])
        repeating.is_one_act(situation.run, tool, arguments, [])
        _can_be_planned(situation, tool, arguments, [])
        ruling = ruling_for(situation, tool, arguments, again=instead_of)
        if ruling.verdict == Verdict.DENY:
            raise CallRefused(Reason.POLICY_DENIED, f"A rule forbids this call: {ruling.reason}")
    except CallRefused as refused:
        return "", refused.result.message
    return text, ""


def _can_be_planned(situation: Situation, tool: Tool, arguments: dict[str, Any], before: list[Proposal]) -> None:
    """Refuse a plan that contains a call that does not belong there. Each call is checked as if it were proposed."""
    if proposes_plan(tool):
        why = planning.objections(arguments, before, lambda call, beside: _judge_one(situation, call, 0, beside))
        if why:
            raise CallRefused(
                Reason.PLAN_REFUSED, f"Nobody was asked about this plan. {why} Propose it again without that."
            )


def _needs_budget(situation: Situation, tool: Tool, before: list[Proposal]) -> bool:
    """Whether a person must allow the cost of this call and those before it. Raises CallRefused if nobody is asked."""
    if not tool.cost_per_call:
        return False
    others = sum((p.tool.cost_per_call for p in before if p.tool is not None and not p.refusal), Decimal(0))
    run = situation.run
    breach = budgets.breach(run, situation.steps, tool.cost_per_call + others, runs.clock(run).date())
    if breach is not None and not breach.asks:
        raise CallRefused(Reason.BUDGET_EXHAUSTED, breach.told(tool.name))
    return breach is not None


def _disclosed(situation: Situation, name: str) -> Tool:
    tool = situation.disclosed.get(name)
    if tool is not None:
        return tool
    listed = ", ".join(sorted(situation.disclosed)) or "none"
    subagents = situation.configuration.subagents
    if name.startswith(agent_tools.PREFIX) and name not in subagents:
        agents = ", ".join(sorted(set(subagents) & set(situation.disclosed))) or "none"
        raise CallRefused(
            Reason.TOOL_NOT_DISCLOSED,
            f"There is no such agent to ask. Agents you can ask: {agents}. Tools you can use: {listed}.",
        )
    known = situation.configuration.tools.get(name)
    stopped = situation.configuration.switch_of_tool(name)
    if known is not None and (stopped or not known.is_in_use):
        raise CallRefused(Reason.TOOL_DISABLED, f"{name} is switched off. Tools you can use: {listed}.")
    if name in situation.configuration.barred:
        raise CallRefused(Reason.PERMISSION_DENIED, f"{starters.NOT_FOR.format(name)} Tools you can use: {listed}.")
    raise CallRefused(Reason.TOOL_NOT_DISCLOSED, f"There is no such tool here. Tools you can use: {listed}.")


def _may_ask_further(run: Run, tool: Tool, before: list[Proposal]) -> None:
    """Refuse to ask an agent if agents have already asked agents as deeply, or as often, as they may."""
    most = run.agent_snapshot.get("max_depth", 0)
    if agent_tools.asks_agent(tool) and run.depth >= most:
        raise CallRefused(
            Reason.CALL_LIMIT_EXCEEDED,
            f"Depth limit reached: {run.depth}/{most}. No further agent can be asked from here; "
            "do it yourself or answer with what you have.",
        )
    if why := families.full(run, tool, before):
        raise CallRefused(Reason.CALL_LIMIT_EXCEEDED, why)


def _within_limits(situation: Situation, tool: Tool, before: list[Proposal]) -> None:
    too_many = call_limits.exceeded(situation.run, tool, situation.steps, before)
    if too_many is not None:
        raise CallRefused(Reason.CALL_LIMIT_EXCEEDED, too_many.told, control=too_many.control)
    stopped = stopped_by_breaker(situation, tool)
    if stopped:
        raise CallRefused(Reason.CIRCUIT_OPEN, stopped)


def stopped_by_breaker(situation: Situation, tool: Tool) -> str:
    """Why a breaker lets no call of a tool through now, not even a probe; or an empty string."""
    now = runs.clock(situation.run)
    for breaker in situation.configuration.breakers_of(tool):
        if breakers.is_blocked(breaker, now):
            return f"{breakers.describe(breaker)} Go on without it."
    return ""
