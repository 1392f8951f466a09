"""What people and programs can do. Pages, the API and commands parse, call one of these, and render.

Each returns what it did, or raises Refused with a code for programs and a sentence for people.
"""

import uuid
from dataclasses import dataclass
from functools import partial
from typing import Literal

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import UUIDField

from agentapp import auth, deciding, executions, locked, nudges, previews, provenance, runs, subagents
from agentapp.asking import answer_question, ask_agent, may_answer
from agentapp.asking_again import ask_again, can_be_asked_again
from agentapp.attention import claim_request, hand_over, release_claim, renew_claim, snooze_request, wake_request
from agentapp.cards import state_shown
from agentapp.commenting import post_comment
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
from agentapp.disclosing import reveal_secret, show_personal_data
from agentapp.due import with_configuration
from agentapp.ending_plans import end_plan
from agentapp.forking import Fork, fork_run
from agentapp.granting import NewGrant, make_grant, revoke_grant
from agentapp.judging import judge_decision
from agentapp.messages import StopSignal, ToolResult
from agentapp.models import Run, Tool, ToolExecution
from agentapp.proposals import Situation, ruling_for
from agentapp.reasons import Reason, StopReason
from agentapp.refused import Refused
from agentapp.replaying import replay_run
from agentapp.starting import MAX_INPUT_CHARS, NewRun, Started, retry_run, start_run, start_run_once
from agentapp.takeover import hand_back_run, take_over_run, write_message
from agentapp.tools import sentences
from agentapp.tools.arguments import misfit, with_defaults
from agentapp.tools.schema import check_arguments
from agentapp.toolset import read_configuration
from agentapp.trying import try_tool
from agentapp.undoing import undo_call
from approvals import accepting, decisions, ledger, signatures, standing
from approvals.digest import MalformedJSON, canonical, parse, storable
from approvals.masking import STILL_MASKED, masked, with_masks
from approvals.models import Approval, Decision, DecisionType, Verdict
from approvals.prepared import Given, Prepared
from approvals.signatures import Assertion, Statement

__all__ = [
    "MAX_INPUT_CHARS", "Fork", "NewDecision", "NewGrant", "NewRun", "Refused", "Started", "answer_question",
    "ask_again", "ask_agent", "can_be_asked_again", "cancel_run", "claim_request", "decide", "end_plan",
    "engage_switch", "fork_conversation", "fork_run",
    "hand_back_run", "hand_over", "judge_decision", "make_grant", "may_answer", "pause_run", "post_comment",
    "raise_budget",
    "release_claim", "release_switch", "renew_claim", "replay_run", "reset_breaker", "resolve_outcome", "resume_run",
    "retry_run", "reveal_secret", "revoke_grant", "set_breaker_limits", "show_personal_data", "snooze_request",
    "start_run", "start_run_once",
    "statement_of", "summarise_conversation", "take_over_run", "try_tool", "undo_call", "undo_decision", "wake_request",
    "write_message",
]  # fmt: skip

_PK = Given("pk", UUIDField())
_APPROVAL = Prepared(lambda: Approval.objects.filter(pk=_PK).order_by())
_DECISION = Prepared(lambda: Decision.objects.filter(pk=_PK).order_by())


@dataclass(frozen=True)
class NewDecision:
    """A decision about one request, as it came in. `arguments_text` is JSON, for an edit.

    `typed` is the word that a critical approval requires. `assurance` is how the person has just proved who they are.
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
    assertion: Assertion | None = None
    """The answer of their passkey, if it signs this decision."""


def cancel_run(run_id: uuid.UUID, user: User) -> Run:
    """Stop a run: at once if it is waiting, before its next model or tool call if it is running."""
    with ledger.transaction():
        runs.lock_parent(run_id)
        run = runs.lock(run_id)
        if run is None:
            raise Refused("not_found", "There is no such run.")
        if not auth.may_cancel(user, run):
            raise Refused("forbidden", "Cancelling this run needs the right to cancel runs.")
        signal = StopSignal(StopReason.USER_REQUESTED, "Cancelled by a person.", source="person")
        subagents.cancel(run, signal, ledger.actor_of(user))
    run.refresh_from_db()
    return run


def decide(approval_id: uuid.UUID, new: NewDecision, user: User) -> decisions.Taken:
    """Take one person's decision about one request and let the run go on when it takes effect."""
    approval = _APPROVAL.first(pk=approval_id)
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    if new.type not in DecisionType.values:
        raise Refused("invalid", f"A decision is one of {', '.join(DecisionType.values)}.", "type")
    return deciding.take(approval, _incoming(approval, new, user, _DECISION.first(pk=new.id)))


def statement_of(approval_id: uuid.UUID, new: NewDecision, user: User, nonce: str) -> Statement:
    """What a person's passkey would sign to make this decision. Decides and stores nothing."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    if approval.version != new.version or approval.state not in Approval.UNDECIDED:
        raise Refused("changed", "This request changed while you were reading. Look again, then sign.", "", approval)
    return signatures.statement_of(accepting.decision_of(approval, _incoming(approval, new, user), None), nonce)


def _incoming(approval: Approval, new: NewDecision, user: User, recorded: Decision | None = None) -> decisions.Incoming:
    """A decision as it came in, with what an edit results in. Raises Refused.

    `recorded`: the decision already taken under this id. The new one is then compared with it, and no longer checked
    against the tool and the rules, which may have changed since.
    """
    edited_text = edited_title = edited_preview = ""
    if recorded is not None:
        edited_text = _sent_again(approval, new, recorded) if new.type == DecisionType.EDIT else ""
    else:
        if new.type == DecisionType.EDIT and _may_count(approval, new, user):
            edited_text, edited_title, edited_preview = _edited(approval, new)
        if new.type == DecisionType.RESPOND and with_masks(new.message):
            raise Refused("invalid", STILL_MASKED, "message", approval)
        confirmed(approval, new.type, new.via, new.typed, edited_text)
    return decisions.Incoming(
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
        edited_preview=edited_preview,
        assurance=new.assurance,
        assertion=new.assertion,
    )


def _may_count(approval: Approval, new: NewDecision, user: User) -> bool:
    """Whether an edit may count, as far as can be seen before the request is locked. If not, no rule is consulted and
    no tool looks anything up for it. False: the request has changed since; the refusal comes once it is locked.
    Raises Refused if the person may not decide.
    """
    refusal = standing.may_decide(user, approval)
    if refusal is not None:
        raise Refused.by(refusal, approval)
    return approval.version <= new.version and approval.state in Approval.UNDECIDED


def undo_decision(approval_id: uuid.UUID, user: User) -> Approval:
    """Take back your own decision while it is held."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        undone = decisions.undo(approval_id, user)
        if isinstance(undone, Approval) and run is not None:
            held = Approval.objects.filter(run_id=run.pk, state__in=Approval.DECIDED, used_at__isnull=True)
            # A wake-up that is already due has its own cause, such as a request that expired.
            if run.wake_at is None or run.wake_at > runs.clock(run):
                runs.wake(run, held.order_by("runs_at").values_list("runs_at", flat=True).first())
    if isinstance(undone, standing.Refusal):
        approval.refresh_from_db()
        raise Refused.by(undone, approval)
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
            "forbidden",
            "Resolving this needs the right to resolve outcomes, and not to have started the run or taken it over.",
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
            transaction.on_commit(partial(nudges.answered, run.pk), robust=True)
    if not done:
        raise Refused("already_resolved", "The outcome of this call is already known.")
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


def _sent_again(approval: Approval, new: NewDecision, recorded: Decision) -> str:
    """The arguments of an edit that is sent again, in the form in which the first was stored."""
    try:
        arguments = parse(new.arguments_text)
        text = canonical(arguments)
    except MalformedJSON:
        return new.arguments_text
    if text == recorded.arguments_text or not isinstance(arguments, dict):
        return text
    tool = Tool.objects.filter(name=approval.tool, version=approval.tool_version).first()
    if tool is not None:
        return canonical(with_defaults(tool.input_schema, arguments))
    # A contract that no longer exists filled in what was left out.
    return canonical({**parse(recorded.arguments_text or "{}"), **arguments})


def _edited(approval: Approval, new: NewDecision) -> tuple[str, str, str]:
    """The arguments a person changed, checked as strictly as the model's, with their title and dry run."""
    try:
        arguments = parse(new.arguments_text)
        canonical(arguments)
    except MalformedJSON as error:
        raise Refused("invalid_arguments", str(error), "args") from error
    proposed = parse(approval.arguments_text)
    if not isinstance(arguments, dict):
        raise Refused("invalid_arguments", "Arguments are a JSON object.", "args")
    before = with_masks(proposed) | with_masks(parse(approval.final_arguments_text or "{}"))
    if with_masks(arguments) - before:
        raise Refused("invalid_arguments", STILL_MASKED, "args")
    tool = Tool.objects.filter(name=approval.tool).first()
    if tool is None or tool.version != approval.tool_version:
        raise Refused("action_changed", "The tool has changed since this was asked. The call must be proposed again.")
    arguments = with_defaults(tool.input_schema, arguments)
    if changed := locked.changed_anew(approval, tool, canonical(arguments)):
        wrong = [(name, f"{name} is fixed by policy and cannot be changed.") for name in changed]
        raise Refused("locked_field", wrong[0][1], changed[0], wrong=wrong)
    if problems := check_arguments(tool.input_schema, arguments):
        raise Refused.of_arguments([(problem.field, problem.sentence) for problem in problems])
    refused_by_types = misfit(tool.name, arguments, tool.version)
    if refused_by_types:
        raise Refused("invalid_arguments", refused_by_types, "args")
    run = with_configuration().get(pk=approval.run_id)
    asked = ToolExecution.objects.filter(pk=approval.execution_id).first()
    origins = partial(provenance.after_edit, approval.provenance, proposed, arguments)
    situation = Situation(run, read_configuration(run, 0), {}, ())
    ruling = ruling_for(situation, tool, arguments, again=asked, origins=origins)
    if ruling.verdict == Verdict.DENY:
        raise Refused("policy_denied", f"A rule forbids the call as you changed it: {ruling.reason}", "args")
    state = state_shown(approval.snapshot_text, tool.secret_fields)
    title = sentences.title(tool, masked(arguments, tool.secret_fields), state)
    return canonical(arguments), title, previews.take(tool, arguments)
