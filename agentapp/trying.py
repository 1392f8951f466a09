"""Trying a tool: what would become of a call that a person fills in, and proposing that call for real.

A rehearsal puts the call through the checks of a live one and stops there: it calls nothing and writes nothing. For
real, it is a run of an agent whose whole script is that one call, so that rules, limits and people all apply.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import agent_tools, auth, previews, runs, starters, tasks, weighing
from agentapp.messages import ToolCall
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.proposals import Situation, as_rules_see_it, judge, origins_for
from agentapp.reasons import Reason
from agentapp.refused import Refused
from agentapp.tools import sentences
from agentapp.tools.arguments import effective
from agentapp.tools.planning import proposes_plan
from agentapp.tools.results import ToolError
from agentapp.tools.schema import check_arguments
from agentapp.tools.sources import implementation_of
from agentapp.toolset import read_configuration, snapshot_for
from agentapp.totals import KeptCalls
from approvals import ledger, lens, policy, standing, step_up
from approvals.digest import as_typed, canonical, parse, sha256, storable
from approvals.entitlement import deciders
from approvals.masking import STILL_MASKED, masked, with_masks
from approvals.models import Rule, Verdict
from approvals.policy import Ruling

MAX_WHY_CHARS = 2000
# How many of the people who could decide are named.
NAMED = 5
REFUSED = "refused"
FIRES, RESTS, FAILS, ELSEWHERE = "fires", "rests", "fails", "elsewhere"


@dataclass(frozen=True)
class Trial:
    """One call of a tool, filled in by a person, in the name of an agent."""

    tool: Tool
    agent: Agent
    arguments: dict[str, Any]
    route: str = ""
    customer: str = ""
    why: str = ""


@dataclass(frozen=True)
class Looked:
    """What one rule says about the call: it fires, its condition rests or fails, or it is about other calls."""

    rule: Rule
    outcome: str


@dataclass(frozen=True)
class Rehearsal:
    """What would become of a call now. `verdict` is a rule's verdict, or `refused` by a check that is not a rule."""

    verdict: str
    why: str
    rules: Sequence[Looked] = ()
    ruling: Ruling | None = None
    allowed_by: str = ""
    groups: Sequence[str] = ()
    people: Sequence[User] = ()
    people_needed: int = 1
    ways: str = ""
    """The thresholds in words, if a rule has any."""
    step_up: str = ""
    sentence: Sequence[dict[str, Any]] = ()
    effects: Sequence[dict[str, Any]] = ()
    preview_text: str = ""
    factors: Sequence[dict[str, Any]] = field(default_factory=list)


def may_try(user: User) -> bool:
    """Whether this person may propose a call from the page of a tool."""
    return auth.may_start(user) and user.has_perm("agentapp.try_tool")


def hindrance(tool: Tool) -> str:
    """Why a tool cannot be tried at all. Empty: it can."""
    if agent_tools.asks_agent(tool):
        return "This tool asks an agent. Start a run of that agent to see what it does."
    if proposes_plan(tool):
        return "This tool proposes a plan of other calls. It only makes sense within a run."
    return ""


def agents_of(tool: Tool) -> list[Agent]:
    """The agents that may call the tool, with their routes."""
    return list(tool.agents.filter(enabled=True).order_by("name").prefetch_related("routes__tools"))


def rehearse(trial: Trial, user: User, *, looks: bool) -> Rehearsal:
    """Judge a call as if it were proposed now. `looks`: the tool's own code may look up what it would change."""
    situation = _situation(trial, user)
    tool = situation.configuration.tools[trial.tool.name]
    arguments = effective(tool, trial.arguments)
    call = ToolCall("trial", tool.name, canonical(trial.arguments))
    [proposal] = judge(situation, [call])
    rules = _rules(situation, tool, arguments)
    if proposal.refusal is not None:
        denied = proposal.refusal.reason == Reason.POLICY_DENIED
        ruling = Ruling.from_json(proposal.ruling) if proposal.ruling else None
        return Rehearsal(Verdict.DENY if denied else REFUSED, proposal.refusal.message, rules, ruling)
    ruling = Ruling.from_json(proposal.ruling)
    state, impossible = _snapshot(tool, arguments) if looks else (sentences.looked_up(tool), "")
    if impossible and proposal.asks:  # if nobody is asked about a call, its state is not looked up
        return Rehearsal(REFUSED, impossible, rules, ruling)
    # Arguments: the person filled them in. State: it was looked up, so marked fields are hidden.
    state = masked(state, lens.hidden(tool.secret_fields, tool.pii_fields))
    shown = masked(arguments, tool.secret_fields)
    words: dict[str, Any] = {
        "rules": rules,
        "sentence": sentences.sentence(tool, shown, state),
        "effects": sentences.effects(tool, shown, state),
        "preview_text": previews.take(tool, arguments) if looks else "",
    }
    if not proposal.asks:
        return Rehearsal(Verdict.ALLOW, ruling.reason, ruling=ruling, allowed_by=proposal.allowed_by, **words)
    return _asked(situation, tool, arguments, ruling, user, words)


def try_tool(trial: Trial, user: User, request_key: uuid.UUID) -> Run:
    """Propose the call in its own run; rules and people decide whether it runs. Once per key."""
    if not may_try(user):
        raise Refused("forbidden", "Trying a tool for real needs the rights to start runs and to try tools.")
    problem = hindrance(trial.tool) or _not_now(trial)
    if not problem and starters.barred(user.pk, [trial.tool]):
        problem = starters.NOT_YOURS.format(trial.tool.name)
    if problem:
        raise Refused("cannot_try", problem)
    if trial.tool.consequential and not trial.why.strip():
        raise Refused("message_required", "Say why. The people who decide will read it.", "why")
    if with_masks(trial.customer):
        raise Refused("invalid", STILL_MASKED, "customer")
    wanted = _digest(trial)
    earlier = _earlier(user, request_key, wanted)
    if earlier is not None:
        return earlier
    try:
        with ledger.transaction():
            run = runs.create(_start(trial, user, str(request_key), wanted))
            transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
            return run
    except IntegrityError:
        # The same form was posted twice at once: the first post has started the run.
        earlier = _earlier(user, request_key, wanted)
        if earlier is None:
            raise
        return earlier


def _earlier(user: User, key: uuid.UUID, wanted: str) -> Run | None:
    found = Run.objects.filter(starter=user, request_key=str(key)).first()
    if found is not None and found.request_digest != wanted:
        raise Refused(
            "idempotency_key_reused", "This form has already started a run. Open the page again to try another."
        )
    return found


def _digest(trial: Trial) -> str:
    about = [trial.tool.name, trial.agent.name, trial.route, trial.customer, trial.why, trial.arguments]
    return sha256(canonical(about))


def _not_now(trial: Trial) -> str:
    """Why this call cannot be proposed, before anything else judges it. Empty: it can."""
    tool = trial.tool
    if not tool.is_in_use:
        return f"{tool.name} is not in use, so its calls do not run."
    if not trial.agent.enabled or not trial.agent.tools.filter(pk=tool.pk).exists():
        return f"The agent {trial.agent.name} may not call {tool.name}."
    if trial.route and not trial.agent.routes.filter(name=trial.route, tools=tool).exists():
        return f"The route {trial.route} of {trial.agent.name} does not offer {tool.name}."
    try:
        problems = check_arguments(tool.input_schema, effective(tool, trial.arguments))
    except ValueError as error:
        return f"{tool.name} cannot be used: {error}"
    return problems[0].sentence if problems else ""


def _start(trial: Trial, user: User, key: str = "", digest: str = "") -> runs.Start:
    tool = trial.tool
    why = as_typed(trial.why)[:MAX_WHY_CHARS]
    # The values go into the input: people read them there, and their origin is found to be a person.
    shown = json.dumps(masked(trial.arguments, tool.secret_fields), ensure_ascii=False, indent=2)
    call = {"id": "trial", "name": tool.name, "arguments": trial.arguments}
    return runs.Start(
        agent=trial.agent,
        agent_snapshot=snapshot_for(trial.agent, tool.name, trial.route),
        input="\n\n".join(filter(None, (why, f"Filled in on the page of {tool.name}:\n{shown}"))),
        title=f"Try {tool.name}"[:200],
        starter=user,
        route=trial.route,
        customer=storable(trial.customer.strip())[:200],
        script=[
            {"tool_calls": [call]},
            {"text": "The decision about this call and its outcome are shown above."},
        ],
        request_key=key,
        request_digest=digest,
        is_trial=True,
    )


def _situation(trial: Trial, user: User) -> Situation:
    """The trial as a run that is not stored."""
    start, now = _start(trial, user), timezone.now()
    run = Run(
        agent=start.agent, agent_snapshot=start.agent_snapshot, input=start.input, title=start.title, starter=user,
        route=start.route, customer=start.customer, script=start.script, is_trial=True, created_at=now,
    )  # fmt: skip
    run.database_now = now  # type: ignore[attr-defined]
    configuration = read_configuration(run, 0)
    return Situation(run, configuration, configuration.disclosed(run), [])


def _rules(situation: Situation, tool: Tool, arguments: dict[str, Any]) -> list[Looked]:
    """Every rule that can be about the tool, in order, and what it says about this call."""
    run = situation.run
    history = KeptCalls(run, situation.configuration.tools, runs.clock(run), arguments=arguments)
    origins = partial(origins_for, situation, tool, arguments)
    call = as_rules_see_it(situation, tool, arguments, history, origins, False)
    about = [r for r in situation.configuration.rules if r.tool in ("", tool.name)]
    return [Looked(r, _outcome(r, call)) for r in about if r.effect_class in ("", tool.effect_class)]


def _outcome(rule: Rule, call: policy.Call) -> str:
    if not policy.addresses(rule, call):
        return ELSEWHERE
    try:
        return FIRES if policy.holds(rule.condition, call) else RESTS
    except Exception:  # a condition can fail in ways its author did not foresee; then the rule asks
        return FAILS


def _asked(
    situation: Situation, tool: Tool, arguments: dict[str, Any], ruling: Ruling, user: User, words: dict[str, Any]
) -> Rehearsal:
    """Who would be asked about the call, and what approving it would take."""
    run, now = situation.run, runs.clock(situation.run)
    origins = origins_for(situation, tool, arguments)
    earlier = weighing.before(run, tool, None)
    weighed = weighing.weigh(ToolExecution(), tool, ruling, arguments, origins, earlier, now)
    terms = standing.terms_of(weighed.terms)
    groups = list(Group.objects.filter(pk__in=ruling.groups).order_by("name")) if ruling.groups else []
    could = deciders().filter(is_active=True).exclude(pk=user.pk).order_by("first_name", "username")
    if groups:
        could = could.filter(groups__in=groups).distinct()
    return Rehearsal(
        Verdict.ASK,
        ruling.reason,
        ruling=weighed.terms,
        groups=[group.name for group in groups],
        people=list(could[: NAMED + 1]),
        people_needed=terms.fewest if terms else standing.people_needed(weighed.terms),
        ways=terms.words if terms else "",
        step_up=step_up.needed(weighed.terms.assurance, weighed.terms.risk, tool.effect_class),
        factors=weighed.factors,
        **words,
    )


def _snapshot(tool: Tool, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The state that the tool's words name, looked up with a read-only connection, or a stand-in for it. And why the
    tool refuses the call, if it does so during the look-up.
    """
    implementation = implementation_of(tool) if tool.takes_snapshot else None
    if implementation is None or implementation.snapshot is None or implementation.version != tool.version:
        return sentences.looked_up(tool), ""
    try:
        found = parse(canonical(previews.look(implementation, implementation.snapshot, arguments)))
    except Exception as error:  # a tool's own code may fail in any way
        refuses = isinstance(error, ToolError) and error.refused
        return sentences.looked_up(tool), str(error) if refuses else ""
    return (found if isinstance(found, dict) else sentences.looked_up(tool)), ""
