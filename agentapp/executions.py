"""The only writer of ToolExecution. Each function is one transition and its event.

The caller is inside `ledger.transaction()` and holds the lock on the run's row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db import IntegrityError
from django.db.models import F
from django.utils import timezone

from agentapp import call_events, call_statements, marking
from agentapp.call_events import arguments_facts, change_facts, record_failures, result_facts, ruling_facts, said_of
from agentapp.call_events import record as record
from agentapp.call_events import record_subagent as record_subagent
from agentapp.erased_calls import ERASED_FIELDS, erase_words
from agentapp.messages import FAILED, DecisionFailure, ToolCall, ToolResult
from agentapp.models import Run, Step, Tool, ToolEvaluation, ToolExecution
from agentapp.reasons import Reason
from agentapp.spending import NOTHING, cost_of
from agentapp.tools.control import checked_control
from agentapp.tools.results import MAX_ARTIFACT_CHARS, MAX_RESULT_CHARS, kept
from approvals import ledger, people
from approvals.clock import Now
from approvals.detectors import within, without_secrets
from approvals.digest import sha256, storable, storable_json
from approvals.masking import blotted, blotted_within, secret_texts
from approvals.models import Approval, EffectClass, Grant
from approvals.sealed import digest_of, sealed

MAX_REASON_CHARS = 40
TOOK_EFFECT = "took_effect"  # kept with what a tool asks of the loop: whether it acted, if its result does not say

State = ToolExecution.State
BEGUN = (State.EXECUTING, State.OUTCOME_UNKNOWN)
_ANEW = {"state": State.PROPOSED, "approval": None, "grant": None, "started_at": None, "allowed_by": "", "reason": ""}


class KeyTaken(Exception):
    """Another call took the same idempotency key a moment earlier."""


class Overtaken(Exception):
    """A call has changed since it was read, for example because a late answer came: read it again."""


@dataclass(frozen=True)
class Proposal:
    """One proposed call after every check that needs no person: refused, ready to run, or to be asked about."""

    call: ToolCall
    tool: Tool | None = None
    arguments: Any = None
    canonical_text: str = ""
    ruling: dict[str, Any] = field(default_factory=dict)
    allowed_by: str = ""
    asks: bool = False
    refusal: ToolResult | None = None
    replay_of: ToolExecution | None = None
    starts_now: bool = False
    was_blocked: bool = False
    proposed: ToolCall | None = None
    """What the model proposed, if a hook changed the call."""
    changed_by: Sequence[str] = ()
    """The hooks that changed, answered or blocked it."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call, to be stored."""

    execution: ToolExecution
    result: ToolResult
    attempts: int = 0
    cost: Decimal = Decimal(0)
    raw: ToolResult | None = None
    """What the tool returned, if a hook changed the result."""
    replay_of: ToolExecution | None = None
    failures: tuple[dict[str, Any], ...] = ()
    """The attempts that failed: {"attempt", "status", "reason", "message", "at"}."""


def propose(
    run: Run, step: Step, proposals: Sequence[Proposal], reasons: Mapping[str, ToolEvaluation] | None = None
) -> list[ToolExecution]:
    """Store a step's calls, each in the state its checks gave it. `reasons`: by call, why guidelines led to it."""
    executions = [_row(run, step, at, each, (reasons or {}).get(each.call.id)) for at, each in enumerate(proposals)]
    call_statements.ADD(executions)
    for execution, proposal in zip(executions, proposals, strict=True):
        record(execution, "proposed", {**arguments_facts(execution), "ruling": ruling_facts(execution.ruling)})
        if proposal.proposed is not None:
            record(execution, "changed_by_hook", change_facts(execution, proposal.proposed, proposal.changed_by))
        if execution.was_blocked:
            record(execution, "blocked", {"hooks": list(proposal.changed_by), "reason": execution.reason})
            continue
        if execution.state == State.EXECUTING:
            execution.started_at = timezone.now()  # about; the row has the database's
            record(execution, "started", {"allowed_by": execution.allowed_by, "attempt": execution.attempts})
        elif execution.state == State.FINISHED:
            record(execution, "completed", {"status": execution.result_status, "reason": execution.reason})
    return executions


def record_failed_decision(run: Run, step: Step, failure: DecisionFailure) -> ToolExecution:
    """Show a step that decided nothing as one failed call, in place of those it did not make.

    No model asked for it, so it is not a proposal, and `compilers` leaves it out.
    """
    call = ToolCall(id=failure.reason, name=failure.reason, arguments_text="{}")
    result = ToolResult(status="fatal_error", reason=failure.reason, message=failure.message, trust="trusted_system")
    execution = _row(run, step, 0, Proposal(call, refusal=result))
    execution.effect_class, execution.consequential = EffectClass.READ, False
    execution.save(force_insert=True)
    kind = failure.reason.removeprefix("decision_")
    data = {"step": step.number, "execution": str(execution.pk), "message": sealed(execution.message, execution.salt)}
    ledger.record(ledger.run_chain(run.pk), f"decision.{kind}_failed", {**data, "attempts": failure.attempts})
    return execution


def hold(executions: Sequence[ToolExecution], approvals: Sequence[Approval]) -> None:
    """Let calls wait, each for its own approval. Raises Overtaken."""
    for execution, approval in zip(executions, approvals, strict=True):
        execution.state, execution.approval = State.WAITING, approval
        execution.times_asked += 1
    if call_statements.HOLD(executions) != len(executions):
        raise Overtaken("a call that should wait has been answered meanwhile")


def begin(
    execution: ToolExecution, executed_text: str, key: str | None, allowed_by: str = "", grant: Grant | None = None
) -> bool:
    """Mark a call as running, before it runs. False: its state does not allow it to start.

    Raises KeyTaken if another call holds the key. The caller lets its transaction fail and looks again.
    """
    try:
        grant_id = grant.pk if grant else None
        given = {"text": executed_text, "key": key, "by": allowed_by, "grant": grant_id, "with_key": execution.with_key}
        changed = call_statements.BEGIN(pk=execution.pk, **given)
    except IntegrityError as error:
        if "idempotency_key" not in call_statements.hurt(error):
            raise
        raise KeyTaken(f"the key of {execution.pk} is taken") from error
    if not changed:
        return False
    execution.state, execution.executed_text, execution.idempotency_key = State.EXECUTING, executed_text, key
    execution.allowed_by, execution.grant, execution.attempts = allowed_by, grant, execution.attempts + 1
    execution.started_at = timezone.now()  # about; the row has the database's
    started = {"approval": str(execution.approval_id or ""), "allowed_by": allowed_by, "attempt": execution.attempts}
    record(execution, "started", {**started, "executed_digest": digest_of(executed_text, execution.salt)})
    return True


def await_run(execution: ToolExecution, run: Run) -> None:
    """Note the run that answers a call which has just begun."""
    execution.subrun = run
    ToolExecution.objects.filter(pk=execution.pk, subrun__isnull=True).update(subrun=run)


def repeat(execution: ToolExecution) -> None:
    """Note one more attempt at a call whose tool honours the key, after a worker died in the middle of it."""
    execution.attempts += 1
    ToolExecution.objects.filter(pk=execution.pk, state=State.EXECUTING).update(attempts=execution.attempts)
    record(execution, "repeated", {"attempt": execution.attempts})


def finish(outcomes: Sequence[Outcome]) -> None:
    """Store the results of calls. Raises Overtaken if one already has an answer, which is not overwritten."""
    rows = [outcome.execution for outcome in outcomes]
    for outcome in outcomes:
        _apply(outcome.execution, outcome.result)
        outcome.execution.attempts = max(outcome.attempts, outcome.execution.attempts)
        outcome.execution.finished_at = Now()
        outcome.execution.cost += outcome.cost
        if outcome.raw is not None:
            outcome.execution.raw_result_text = kept(within(outcome.raw.data, without_secrets), MAX_RESULT_CHARS)
            outcome.execution.control |= {TOOK_EFFECT: outcome.raw.took_effect, **outcome.raw.doubt}
        outcome.execution.replay_of = outcome.replay_of or outcome.execution.replay_of
        outcome.execution.failures += said_of(outcome.execution, outcome.failures)
    if call_statements.FINISH(rows) != len(rows):
        raise Overtaken("a call already has an answer")
    for outcome in outcomes:
        record_failures(outcome.execution, outcome.failures)
        take_notes(outcome)
        record(outcome.execution, "completed", result_facts(outcome.execution))
    # The failure of a call that a person approved is announced to people.
    if failed := [row.approval_id for row in rows if row.approval_id and row.result_status in FAILED]:
        people.tell_of_failures(failed)


def compare(execution: ToolExecution, comparison: dict[str, Any], facts: dict[str, Any]) -> None:
    """Keep what a dry run predicted for a call, compared with its outcome."""
    execution.comparison = comparison
    if ToolExecution.objects.filter(pk=execution.pk, comparison__isnull=True).update(comparison=comparison):
        record(execution, "compared", facts)


def note_failures(execution: ToolExecution, failures: Sequence[dict[str, Any]]) -> None:
    """Keep what each failed attempt at a call said, and how many there were, while the call has no answer yet."""
    if failures:
        execution.failures += said_of(execution, failures)
        execution.save(update_fields=["failures", "attempts"])
        record_failures(execution, failures)


def take_notes(outcome: Outcome) -> None:
    """Record what the tool noted about its call, whatever the outcome."""
    for note in (outcome.raw or outcome.result).notes:
        execution = outcome.execution
        marked = secret_texts(execution.args, [*execution.secret_fields, *execution.pii_fields])
        record(outcome.execution, note.type, blotted_within(storable_json(note.data), marked))


def lose(execution: ToolExecution, cost: Decimal = Decimal(0)) -> bool:
    """Mark a call as unknown: its worker died in the middle, or its tool did not answer, so nobody knows what it did.

    False: it is not running.
    """
    running = ToolExecution.objects.filter(pk=execution.pk, state=State.EXECUTING)
    changed = running.update(state=State.OUTCOME_UNKNOWN, reason=Reason.OUTCOME_UNKNOWN, cost=F("cost") + cost)
    if changed:
        execution.cost += cost
        execution.state, execution.reason = State.OUTCOME_UNKNOWN, Reason.OUTCOME_UNKNOWN
        record(execution, "outcome_unknown", {"attempt": execution.attempts})
    return bool(changed)


def finish_late(outcome: Outcome, attempt: int) -> bool:
    """Take the answer of an attempt whose worker had lost the run; its execution is as read under the lock.

    If the tool acted, this answers a call without an answer. Anything else does so only if no later attempt has begun
    and, for a write, no earlier one may have acted. False: what people or another attempt said stands, this is kept
    with it, and an act that was done keeps its key.
    """
    execution, result, given = outcome.execution, outcome.result, outcome.raw or outcome.result
    acted, is_latest = given.took_effect, execution.state in BEGUN and execution.attempts <= attempt
    speaks_for_all = is_latest and (attempt == 1 or not execution.consequential)
    counts = result.reason != Reason.OUTCOME_UNKNOWN and not execution.is_answered and (acted or speaks_for_all)
    if counts:
        finish([outcome])
    else:
        # Nothing of an erased call comes back: its arguments are gone, and with them which values were secret.
        has_words = execution.erased_at is None
        if has_words:
            take_notes(outcome)
        if acted:
            execution.control[TOOK_EFFECT] = True
            if has_words and execution.result_text in ("", "null"):
                execution.raw_result_text = kept(within(given.data, without_secrets), MAX_RESULT_CHARS)
            execution.save(update_fields=["control", "raw_result_text"])
    said = {"attempt": attempt, "status": result.status, "reason": str(result.reason), "kept": counts}
    record(execution, "late_answer", {**said, "message": sealed(storable(result.message), execution.salt)})
    return counts


def resolve(execution: ToolExecution, result: ToolResult, note: str, actor: str) -> bool:
    """Store what a person found out about a call. False: its outcome is no longer unknown."""
    unknown = ToolExecution.objects.filter(pk=execution.pk, state=State.OUTCOME_UNKNOWN)
    if not unknown.update(outcome_note=note):
        return False
    execution.outcome_note = note
    finish([Outcome(execution, result)])
    record(execution, "outcome_resolved", {"status": result.status, "note": sealed(note, execution.salt)}, actor)
    return True


def reopen(execution: ToolExecution, note: str, actor: str) -> bool:
    """Propose a call of unknown outcome again because a person wants it: it asks as before. Same row, same key."""
    unknown = ToolExecution.objects.filter(pk=execution.pk, state=State.OUTCOME_UNKNOWN)
    changed = unknown.update(**_ANEW, outcome_note=note, failures=call_events.every_failure(execution))
    if changed:
        record(execution, "reopened", {"note": sealed(note, execution.salt)}, actor)
    return bool(changed)


def set_aside(execution: ToolExecution, why: str, anew: str = "") -> bool:
    """Put a call that has not started back to proposed, so that it asks again: something it depended on has changed.

    `anew`: the arguments it is now proposed with, if those have changed.
    False: it has started, or is answered.
    """
    unstarted = ToolExecution.objects.filter(pk=execution.pk, state__in=[State.WAITING, State.READY])
    digest = sha256(anew) if anew else execution.arguments_digest
    changed = unstarted.update(state=State.PROPOSED, approval=None, allowed_by="", arguments_digest=digest)
    if changed:
        execution.state, execution.approval, execution.allowed_by = State.PROPOSED, None, ""
        execution.arguments_digest = digest
        record(execution, "set_aside", {"why": why, **(arguments_facts(execution) if anew else {})})
    else:
        execution.refresh_from_db()
    return bool(changed)


def reclassify(execution: ToolExecution, tool: Tool) -> None:
    """Apply what an admin now says about a tool's effect to a call that has not started."""
    execution.effect_class, execution.consequential = tool.effect_class, tool.consequential
    ToolExecution.objects.filter(pk=execution.pk, started_at__isnull=True).update(
        effect_class=tool.effect_class, consequential=tool.consequential
    )


def cancel_open(run: Run, why: str) -> Decimal:
    """Answer every open call of an ending run. A write that has started becomes unknown instead, for a person to see.

    Returns the cost of those that had started, as far as rows say, for the caller to pay: nobody else will.
    """
    costs: dict[tuple[str, str], Decimal] = {}
    started = ToolExecution.objects.filter(run=run, state=State.EXECUTING, subrun__isnull=True)
    for execution in started.select_related("tool"):
        same = execution.name, execution.arguments_digest
        cost = NOTHING if same in costs else cost_of(execution)  # the same read, asked for twice, runs once
        costs.setdefault(same, cost)
        if execution.consequential:
            lose(execution, cost)
        elif cost:
            ToolExecution.objects.filter(pk=execution.pk).update(cost=F("cost") + cost)
    executions = list(ToolExecution.objects.filter(run=run, state__in=[*call_statements.UNBEGUN, State.EXECUTING]))
    ToolExecution.objects.filter(pk__in=[e.pk for e in executions]).update(
        state=State.CANCELLED, reason=Reason.CANCELLED, message=without_secrets(why), finished_at=Now()
    )
    for execution in executions:
        record(execution, "cancelled", {"why": sealed(why, execution.salt)})
    return sum(costs.values(), NOTHING)


def erase(run: Run) -> int:
    """Erase the arguments and results of the calls of an ended run. Returns how many there were."""
    found = list(ToolExecution.objects.filter(run=run, erased_at__isnull=True))
    erase_words(found)
    ToolExecution.objects.bulk_update(found, ERASED_FIELDS, batch_size=200)
    return len(found)


def result_value(execution: ToolExecution) -> Any:
    """The stored result, as the tool returned it."""
    return json.loads(execution.result_text) if execution.result_text else None


def _row(
    run: Run, step: Step, index: int, proposal: Proposal, evaluation: ToolEvaluation | None = None
) -> ToolExecution:
    tool, refusal = proposal.tool, proposal.refusal
    marks = marking.of_call(tool, proposal.call, proposal.proposed)
    execution = ToolExecution(
        run=run,
        step=step,
        index=index,
        call_id=storable(proposal.call.id)[:200],
        name=storable(proposal.call.name)[:200],
        tool=tool,
        tool_version=tool.version if tool else "",
        effect_class=tool.effect_class if tool else "irreversible",
        consequential=tool.consequential if tool else True,
        arguments_text=storable(proposal.call.arguments_text)[:MAX_RESULT_CHARS],
        arguments_digest=sha256(proposal.canonical_text) if proposal.canonical_text else "",
        ruling=proposal.ruling,
        trust=tool.trust if tool else Tool.Trust.TRUSTED,
        replay_of=proposal.replay_of,
        evaluation=evaluation,
        secret_fields=marks.secret,
        pii_fields=marks.personal,
        variable=proposal.call.variable,
        mocked=run.is_mocked,
        was_blocked=proposal.was_blocked,
        proposed_at=Now(),
    )
    if proposal.proposed:
        execution.proposed_name = storable(proposal.proposed.name)[:200]
        execution.proposed_text = storable(proposal.proposed.arguments_text)[:MAX_RESULT_CHARS]
    if refusal:
        _apply(execution, refusal)
        execution.finished_at = Now()
    elif proposal.starts_now:
        execution.state, execution.started_at, execution.attempts = State.EXECUTING, Now(), 1
        execution.executed_text, execution.allowed_by = proposal.canonical_text, proposal.allowed_by
    elif not proposal.asks:
        execution.state, execution.allowed_by = State.READY, proposal.allowed_by
    return execution


def _apply(execution: ToolExecution, result: ToolResult) -> None:
    execution.state = State.FINISHED
    execution.result_status = result.status
    execution.reason = storable(result.reason)[:MAX_REASON_CHARS]
    # Neither a model nor a person needs the keys and passwords in an answer.
    execution.message = without_secrets(blotted(storable(result.message), execution.secret_values))[:MAX_RESULT_CHARS]
    execution.result_text = kept(within(result.data, without_secrets), MAX_RESULT_CHARS)
    artifact = within(result.artifact, without_secrets)
    execution.artifact_text = "" if artifact is None else kept(artifact, MAX_ARTIFACT_CHARS)
    control = within(checked_control(storable_json(result.control)), without_secrets)
    execution.control = {n: v for n, v in control.items() if n != TOOK_EFFECT}
    execution.retry_after = result.retry_after
    execution.metadata = within(storable_json(result.metadata), without_secrets)
    execution.trust = result.trust or execution.trust
    called = f"{execution.name}:{execution.idempotency_key or execution.call_id}"
    execution.evidence_ref = storable(result.evidence_ref or execution.evidence_ref or called)[:200]
