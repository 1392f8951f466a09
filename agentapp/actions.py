"""What people and programs can do. Pages, the API and commands parse, call one of these, and render.

Each returns what it did, or raises Refused with a code for programs and a sentence for people.
"""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from agentapp import auth, conversations, executions, runs, subagents, tasks, turns
from agentapp.asking import answer_question, ask_agent, may_answer, reveal_secret
from agentapp.attention import claim_request, hand_over, release_claim, renew_claim, snooze_request, wake_request
from agentapp.confirming import confirmed
from agentapp.controls import (
    engage_switch,
    pause_run,
    raise_budget,
    release_switch,
    reset_breaker,
    resume_run,
    set_breaker_limits,
)  # fmt: skip
from agentapp.conversing import fork_conversation, summarise_conversation
from agentapp.messages import StopSignal, ToolResult
from agentapp.models import Agent, ApiToken, Run, Tool, ToolExecution
from agentapp.proposals import Situation, ruling_for
from agentapp.reasons import Reason, StopReason
from agentapp.refused import Refused
from agentapp.script import ScriptError, check_script
from agentapp.takeover import (
    changed_meanwhile,
    conversation_of,
    hand_back_run,
    same_message,
    take_over_run,
    write_message,
)
from agentapp.tools import sentences
from agentapp.tools.arguments import misfit, with_defaults
from agentapp.tools.schema import ArgumentProblem, check_arguments
from agentapp.toolset import read_configuration, snapshot_of
from approvals import decisions, ledger, standing
from approvals.digest import MalformedJSON, canonical, parse, sha256, storable
from approvals.masking import masked
from approvals.models import Approval, DecisionType, Verdict

__all__ = [
    "NewDecision", "NewRun", "Refused", "Started", "answer_question", "ask_agent", "cancel_run", "claim_request",
    "decide", "engage_switch", "fork_conversation", "hand_back_run", "hand_over", "may_answer", "pause_run",
    "raise_budget", "release_claim", "release_switch", "renew_claim", "reset_breaker", "resolve_outcome", "resume_run",
    "reveal_secret", "set_breaker_limits", "snooze_request", "start_run", "start_run_once", "summarise_conversation",
    "take_over_run", "undo_decision", "wake_request", "write_message",
]  # fmt: skip

MAX_INPUT_CHARS = 100_000


@dataclass(frozen=True)
class NewRun:
    """The request to start a run, as it came in."""

    agent: str
    input: str
    route: str = ""
    customer: str = ""
    conversation: str = ""
    conversation_version: int | None = None
    metadata: dict[str, Any] | None = None
    script: list[Any] | None = None
    request_key: str = ""
    title: str = ""
    """What people call the run; the first line of its input where it is not given."""
    follows: uuid.UUID | None = None
    """A run whose conversation this one goes on in; where it had none, one begins with it."""


@dataclass(frozen=True)
class NewDecision:
    """A decision about one request, as it came in. `arguments_text` is JSON, for an edit.

    `typed` and `assurance` are what a critical approval costs: a word, and how the person signed in anew.
    """

    id: uuid.UUID
    type: str
    version: int
    action_digest: str
    arguments_text: str = ""
    message: str = ""
    stop_run: bool = False
    via: str = "console"
    typed: str = ""
    assurance: str = ""


@dataclass(frozen=True)
class Started:
    """A run, and whether it had been started before with the same key.

    `kept`: a person has taken over that run, and what was said waits for them; no other run was started.
    """

    run: Run
    repeated: bool = False
    kept: bool = False


def start_run(new: NewRun, user: User, token: ApiToken | None = None) -> Run:
    """Start a run, or return the one this person started before with the same key and the same request."""
    return start_run_once(new, user, token).run


def start_run_once(new: NewRun, user: User, token: ApiToken | None = None) -> Started:
    """`start_run`, for callers who tell a repeat from a start."""
    if not auth.may_start(user):
        raise Refused("forbidden", "Starting runs needs the right to start runs.")
    digest = sha256(canonical(_request(new)))
    if new.request_key:
        earlier = _earlier(new, user, digest)
        if earlier is not None:
            return earlier
    agent = _agent(new)
    _check_new_run(new, agent)
    try:
        with ledger.transaction():
            run = _create_run(new, agent, user, token, digest)
    except IntegrityError:
        # Two requests with one key at once: the first has made the run.
        earlier = _earlier(new, user, digest) if new.request_key else None
        if earlier is None:
            raise
        return earlier
    return Started(run, kept=run.taken_over_by_id is not None)


def cancel_run(run_id: uuid.UUID, user: User) -> Run:
    """Stop a run: at once when it waits, before its next model or tool call when it is running."""
    with ledger.transaction():
        runs.lock_parent(run_id)
        run = runs.lock(run_id)
        if run is None:
            raise Refused("not_found", "There is no such run.")
        if not auth.may_cancel(user, run):
            raise Refused("forbidden", "Cancelling this run needs the right to cancel runs.")
        signal = StopSignal(StopReason.USER_REQUESTED, "Cancelled by a person.", source="person")
        subagents.cancel(run, signal, ledger.actor_of(user))
        transaction.on_commit(partial(tasks.nudge_following, run.pk), robust=True)
    run.refresh_from_db()
    return run


def decide(approval_id: uuid.UUID, new: NewDecision, user: User) -> decisions.Taken:
    """Take one person's decision about one request and let the run go on when it takes effect."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    if new.type not in DecisionType.values:
        raise Refused("invalid", f"A decision is one of {', '.join(DecisionType.values)}.", "type")
    edited_text, edited_title = _edited(approval, new) if new.type == DecisionType.EDIT else ("", "")
    confirmed(approval, new.type, new.via, new.typed, edited_text)
    verdict = decisions.Verdict(
        id=new.id,
        type=new.type,
        user=user,
        version=new.version,
        action_digest=new.action_digest,
        message=storable(new.message),
        stop_run=new.stop_run,
        via=new.via,
        edited_text=edited_text,
        edited_title=edited_title,
        assurance=new.assurance,
    )
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        taken = decisions.decide(approval_id, verdict, timedelta(seconds=settings.APPROVAL_USE_WITHIN_SECONDS))
        if isinstance(taken, decisions.Taken) and not taken.repeated and run is not None and taken.approval.runs_at:
            # An earlier decision that is still held keeps its moment.
            runs.wake(run, min(run.wake_at or taken.approval.runs_at, taken.approval.runs_at))
            transaction.on_commit(partial(tasks.nudge, run.pk, taken.approval.hold_seconds), robust=True)
    if isinstance(taken, standing.Refusal):
        approval.refresh_from_db()
        raise Refused(taken.code, taken.message, approval=approval)
    return taken


def undo_decision(approval_id: uuid.UUID, user: User) -> Approval:
    """Take back one's own decision while it is held."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        undone = decisions.undo(approval_id, user)
        if isinstance(undone, Approval) and run is not None:
            held = Approval.objects.filter(run_id=run.pk, state__in=Approval.DECIDED, used_at__isnull=True)
            # A waking that is due already has a cause of its own, such as a request that expired.
            if run.wake_at is None or run.wake_at > runs.clock(run):
                runs.wake(run, held.order_by("runs_at").values_list("runs_at", flat=True).first())
    if isinstance(undone, standing.Refusal):
        approval.refresh_from_db()
        raise Refused(undone.code, undone.message, approval=approval)
    return undone


def resolve_outcome(
    execution_id: uuid.UUID, outcome: Literal["happened", "did_not_happen", "retry"], note: str, user: User
) -> ToolExecution:
    """Say what became of a call whose outcome is unknown. `retry` asks for it again, by the usual rules."""
    execution = ToolExecution.objects.select_related("run").filter(pk=execution_id).first()
    if execution is None:
        raise Refused("not_found", "There is no such call.")
    if not auth.may_resolve(user, execution.run):
        raise Refused(
            "forbidden", "Resolving this needs the right to resolve outcomes, and not to have started the run."
        )
    if outcome not in ("happened", "did_not_happen", "retry"):
        raise Refused("invalid", "An outcome is happened, did_not_happen or retry.", "outcome")
    if not note.strip():
        raise Refused("message_required", "Say how you know: it goes into the record.", "note")
    with ledger.transaction():
        run = runs.lock(execution.run_id)
        execution.refresh_from_db()
        actor, note = ledger.actor_of(user), storable(note)
        if outcome == "retry" and (run is None or run.is_final):
            raise Refused("run_ended", "The run has ended, so the call cannot be tried again in it.", "outcome")
        if outcome == "retry":
            done = executions.reopen(execution, note, actor)
        else:
            done = executions.resolve(execution, _resolved(outcome, note), note, actor)
        if done and run is not None:
            runs.wake(run, runs.clock(run))
            transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    if not done:
        raise Refused("already_resolved", "The outcome of this call is known already.")
    execution.refresh_from_db()
    return execution


def _resolved(outcome: str, note: str) -> ToolResult:
    if outcome == "happened":
        return ToolResult(message=f"A person found out that the call did happen. They noted: {note}")
    return ToolResult(
        status="fatal_error",
        reason=Reason.OUTCOME_UNKNOWN,
        message=f"A person found out that the call did not happen. They noted: {note}",
    )


def _agent(new: NewRun) -> Agent:
    agent = Agent.objects.filter(name=new.agent, enabled=True).first()
    if agent is None:
        raise Refused("unknown_agent", f"There is no agent named {new.agent!r}.", "agent")
    return agent


def _check_new_run(new: NewRun, agent: Agent) -> None:
    if not new.input.strip():
        raise Refused("invalid", "The input is empty.", "input")
    if len(new.input) > MAX_INPUT_CHARS:
        raise Refused("invalid", f"The input is longer than {MAX_INPUT_CHARS} characters.", "input")
    if new.conversation_version is not None and not (new.conversation or new.follows):
        raise Refused("invalid", "A version is that of a conversation: name it.", "conversation_version")
    if new.route and not agent.routes.filter(name=new.route).exists():
        raise Refused("unknown_route", f"The agent {agent.name!r} has no route named {new.route!r}.", "route")
    if new.script is not None and not settings.ALLOW_SCRIPTED_RUNS:
        raise Refused("forbidden", "Scripted runs are switched off here (ALLOW_SCRIPTED_RUNS).", "script")
    if new.script is not None:
        try:
            check_script(new.script)
        except ScriptError as error:
            raise Refused("invalid", str(error), "script") from error


def _create_run(new: NewRun, agent: Agent, user: User, token: ApiToken | None, digest: str) -> Run:
    text = storable(new.input)
    conversation = None
    if new.follows is not None:
        conversation = conversation_of(new.follows, user)
    elif new.conversation:
        conversation = conversations.find_or_open(agent, storable(new.conversation), new.customer)
    if conversation is not None and not auth.may_join(user, conversation):
        raise Refused("forbidden", "This conversation is somebody else's.", "conversation")
    start = runs.Start(
        agent=agent,
        agent_snapshot=snapshot_of(agent),
        input=text,
        title=_title(storable(new.title) or text),
        starter=user,
        token=token,
        route=new.route,
        customer=storable(new.customer),
        conversation=conversation,
        metadata=new.metadata,
        script=new.script,
        request_key=new.request_key,
        request_digest=digest,
    )
    via = f"token {token.name}" if token else ""
    if conversation is None:
        run = runs.create(start, via)
    else:
        try:
            run = turns.take(start, via, new.conversation_version)
        except conversations.Changed as changed:
            raise changed_meanwhile(changed) from changed
    transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    return run


def _request(new: NewRun) -> dict[str, Any]:
    return {
        "agent": new.agent,
        "input": storable(new.input),
        "route": new.route,
        "customer": new.customer,
        "conversation": new.conversation,
        # Left out where it is not given, so that requests of before keep their digest.
        **({} if new.conversation_version is None else {"conversation_version": new.conversation_version}),
        **({} if new.follows is None else {"follows": str(new.follows)}),
        "metadata": new.metadata,
        "script": new.script,
    }


def _earlier(new: NewRun, user: User, digest: str) -> Started | None:
    """What this person's key has done before: it started a run, or left a message for whoever had taken over."""
    earlier = Run.objects.filter(starter=user, request_key=new.request_key).first()
    if earlier is None:
        kept = conversations.written(user, new.request_key)
        if kept is None or kept.run is None:
            return None
        same_message(kept, new.input, kept.run)
        return Started(kept.run, repeated=True, kept=True)
    if earlier.request_digest != digest:
        raise Refused(
            "idempotency_key_reused",
            "This Idempotency-Key was used for a different request.",
            "Idempotency-Key",
        )
    return Started(earlier, repeated=True)


def _title(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= 120 else first[:119].rstrip() + "…"


def _edited(approval: Approval, new: NewDecision) -> tuple[str, str]:
    """The arguments a person changed, checked as strictly as the model's, and the title they give the card."""
    try:
        arguments = parse(new.arguments_text)
        canonical(arguments)
    except MalformedJSON as error:
        raise Refused("invalid_arguments", str(error), "args") from error
    proposed = parse(approval.arguments_text)
    if not isinstance(arguments, dict):
        raise Refused("invalid_arguments", "Arguments are a JSON object.", "args")
    tool = Tool.objects.filter(name=approval.tool).first()
    if tool is None or tool.version != approval.tool_version:
        raise Refused("action_changed", "The tool has changed since this was asked; it must be proposed again.")
    arguments = with_defaults(tool.input_schema, arguments)
    for name in approval.locked_fields:
        if arguments.get(name) != proposed.get(name):
            raise Refused("locked_field", f"{name} is fixed by policy and cannot be changed.", name)
    problems: list[ArgumentProblem] = check_arguments(tool.input_schema, arguments)
    if problems:
        raise Refused("invalid_arguments", problems[0].sentence, problems[0].field)
    refused_by_types = misfit(tool.name, arguments, tool.version)
    if refused_by_types:
        raise Refused("invalid_arguments", refused_by_types, "args")
    run = Run.objects.get(pk=approval.run_id)
    ruling = ruling_for(Situation(run, read_configuration(run, 0), {}, ()), tool, arguments)
    if ruling.verdict == Verdict.DENY:
        raise Refused("policy_denied", f"A rule forbids the call as you changed it: {ruling.reason}", "args")
    snapshot = parse(approval.snapshot_text) if approval.snapshot_text else {}
    return canonical(arguments), sentences.title(tool, masked(arguments, tool.secret_fields), snapshot)
