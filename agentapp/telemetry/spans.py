"""What a span is, and what it says of a run, a step, a call or a request to people. Rows in, spans out; no queries.

Names follow the GenAI semantic conventions of OpenTelemetry where they exist; all others begin with `countersign.`.
Spans name nobody and contain nothing that was said: `content` adds that.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from agentapp.messages import FAILED
from agentapp.models import Run, Step, ToolExecution
from agentapp.trace_context import linked, span_id
from approvals.models import Approval, DecisionType

type Value = str | int | float | bool | Sequence[str]

MAX_NAME_CHARS = 120
_SCRIPTED = "scripted"
# Providers by the names that the conventions use.
_PROVIDERS = {"google": "gcp.gemini", _SCRIPTED: "countersign"}
_DECIDED = {Approval.State.REJECTED: DecisionType.REJECT, Approval.State.RESPONDED: DecisionType.RESPOND}


@dataclass(frozen=True)
class Occurrence:
    """Something that happened at one moment of a span."""

    name: str
    at: datetime
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """One piece of a trace. Ids are hexadecimal; `error` is a code, empty if nothing went wrong."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, Value]
    kind: Literal["internal", "client"] = "internal"
    occurrences: tuple[Occurrence, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    error: str = ""


@dataclass
class Called:
    """One call with the requests about it, oldest first, and the errors of its failed attempts."""

    execution: ToolExecution
    approvals: Sequence[Approval] = ()
    failures: Sequence[Mapping[str, Any]] = ()


@dataclass
class Taken:
    """One step with its calls."""

    step: Step
    calls: Sequence[Called]

    @property
    def is_open(self) -> bool:
        return any(not called.execution.is_answered for called in self.calls)


def root_id(run_id: uuid.UUID) -> str:
    return span_id("run", run_id)


def call_id(execution_id: uuid.UUID) -> str:
    return span_id("call", execution_id)


def of_run(run: Run, asked_by: uuid.UUID | None, happened: Iterable[Occurrence], now: datetime) -> Span:
    """The span of a whole run, from when it was queued to its end. `asked_by`: the call by which another run started
    it.
    """
    model = run.agent_snapshot.get("model", "")
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        **_model(_SCRIPTED if run.script is not None else model),
        "gen_ai.agent.name": run.agent_snapshot.get("name", ""),
        "gen_ai.agent.id": str(run.agent_id),
        **({"gen_ai.conversation.id": str(run.conversation_id)} if run.conversation_id else {}),
        **_usage(run),
        "countersign.run.id": str(run.pk),
        "countersign.run.state": run.state,
        "countersign.run.route": run.route,
        "countersign.run.depth": run.depth,
        "countersign.run.steps": run.step_count,
        "countersign.run.worked_seconds": round(run.worked_seconds, 3),
        "countersign.cost.usd": float(run.cost),
        "countersign.cost.is_partial": run.cost_is_partial,
        **({"countersign.run.stop_reason": run.stop_reason} if run.is_final else {}),
    }
    links = [linked(run.traceparent)]
    if run.retry_of is not None:
        links.append((run.retry_of.trace_id, root_id(run.retry_of.pk)))
    if run.undoes is not None:
        links.append((run.undoes.run.trace_id, call_id(run.undoes.pk)))
    return Span(
        run.trace_id,
        root_id(run.pk),
        call_id(asked_by) if asked_by else "",
        _named("invoke_agent", run.agent_snapshot.get("name", "")),
        run.created_at,
        run.finished_at or now,
        _known(attributes) | _error(run.stop_reason if run.state == Run.State.FAILED else ""),
        occurrences=tuple(happened),
        links=tuple(link for link in links if link and link[0]),
        error=run.stop_reason if run.state == Run.State.FAILED else "",
    )


def of_step(run: Run, taken: Taken, now: datetime) -> list[Span]:
    """A step: what the model was asked, the requests to people, the calls that ran."""
    step = taken.step
    own = span_id("step", step.pk)
    asked = [_approval(run, own, called, at, now) for called in taken.calls for at in range(len(called.approvals))]
    ran = [_call(run, own, called, now) for called in taken.calls if called.execution.started_at]
    idle = [_not_run(called.execution, now) for called in taken.calls if not called.execution.started_at]
    inner = [_chat(run, step, own), *asked, *ran]
    ends = [*(span.end for span in inner), *(each.at for each in idle)]
    attributes: dict[str, Value] = {
        "countersign.run.id": str(run.pk),
        "countersign.step.number": step.number,
        "countersign.step.calls": len(taken.calls),
    }
    whole = Span(
        run.trace_id,
        own,
        root_id(run.pk),
        f"step {step.number}",
        step.started_at,
        now if taken.is_open and not run.is_final else max(ends),
        attributes | _error(step.error),
        occurrences=tuple(idle),
        error=step.error,
    )
    return [whole, *inner]


def _chat(run: Run, step: Step, parent: str) -> Span:
    model = _SCRIPTED if step.model == _SCRIPTED else run.agent_snapshot.get("model", "")
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        **_model(model),
        "gen_ai.response.model": step.model,
        "gen_ai.response.finish_reasons": [step.finish_reason] if step.finish_reason else [],
        **({"gen_ai.conversation.id": str(run.conversation_id)} if run.conversation_id else {}),
        **_usage(step),
        "countersign.model.replies": max(1, len(step.asked)),
    }
    if step.first_token_seconds is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = step.first_token_seconds
    if step.cost is not None:
        attributes["countersign.cost.usd"] = float(step.cost)
    return Span(
        run.trace_id,
        span_id("chat", step.pk),
        parent,
        _named("chat", str(_model(model).get("gen_ai.request.model", ""))),
        step.started_at,
        step.finished_at,
        _known(attributes) | _error(step.error),
        kind="client",
        error=step.error,
    )


def _call(run: Run, parent: str, called: Called, now: datetime) -> Span:
    """A call that ran. A call to an agent lasts as long as the run that answers it, whose span is its child."""
    execution = called.execution
    assert execution.started_at is not None
    unknown = execution.state == ToolExecution.State.OUTCOME_UNKNOWN
    failed = unknown or execution.result_status in FAILED
    error = (execution.reason or execution.result_status) if failed else ""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool",
        **_tool(execution),
        "countersign.execution.state": execution.state,
        "countersign.execution.status": execution.result_status,
        "countersign.execution.reason": execution.reason,
        "countersign.execution.attempts": execution.attempts,
        "countersign.execution.allowed_by": execution.allowed_by,
        "countersign.approval.id": str(execution.approval_id or ""),
        "countersign.subrun.id": str(execution.subrun_id or ""),
        "countersign.cost.usd": float(execution.cost),
    }
    end = execution.finished_at or (run.finished_at if unknown else None) or now
    return Span(
        run.trace_id,
        call_id(execution.pk),
        parent,
        _named("execute_tool", execution.name),
        execution.started_at,
        max(end, execution.started_at),
        _known(attributes) | _error(error),
        occurrences=tuple(_failure(failure) for failure in called.failures),
        error=error,
    )


def _failure(failure: Mapping[str, Any]) -> Occurrence:
    said: dict[str, Value] = {
        "countersign.attempt": failure["attempt"],
        "countersign.execution.status": failure["status"],
        "error.type": failure["reason"] or failure["status"],
    }
    return Occurrence("attempt_failed", datetime.fromisoformat(failure["at"]), said)


def _not_run(execution: ToolExecution, now: datetime) -> Occurrence:
    """A call that was proposed but not made: refused, declined, already done, or still waiting."""
    said: dict[str, Value] = {
        **_tool(execution),
        "countersign.execution.state": execution.state,
        "countersign.execution.status": execution.result_status,
        "countersign.execution.reason": execution.reason,
        "countersign.execution.replay_of": str(execution.replay_of_id or ""),
    }
    return Occurrence("call_not_run", execution.finished_at or min(now, execution.proposed_at), _known(said))


def _approval(run: Run, parent: str, called: Called, at: int, now: datetime) -> Span:
    """How long the run waited for people, and what they said."""
    approval = called.approvals[at]
    after = called.approvals[at + 1] if at + 1 < len(called.approvals) else None
    decisions = [decision for decision in approval.decisions.all() if decision.undone_at is None]
    attributes: dict[str, Value] = {
        "gen_ai.tool.name": approval.tool,
        "countersign.approval.id": str(approval.pk),
        "countersign.approval.kind": approval.kind,
        "countersign.approval.state": approval.state,
        "countersign.approval.decision": _decision(approval, [decision.type for decision in decisions]),
        "countersign.approval.risk": approval.risk,
        "countersign.approval.rule": approval.rule,
        "countersign.approval.deciders": len(decisions),
        "countersign.approval.needed": approval.approvals_needed,
        "countersign.execution.id": str(called.execution.pk),
    }
    end = decided_at(approval, after, called.execution.finished_at or run.finished_at or now)
    return Span(
        run.trace_id,
        span_id("approval", approval.pk),
        parent,
        _named("approval", approval.tool),
        approval.created_at,
        max(end, approval.created_at),
        _known(attributes),
        occurrences=tuple(
            Occurrence("decided", decision.decided_at, {"countersign.approval.decision": decision.type})
            for decision in decisions
        ),
    )


def decided_at(approval: Approval, after: Approval | None, otherwise: datetime) -> datetime:
    """When people had decided, or no longer could."""
    if approval.state == Approval.State.SUPERSEDED:
        return after.created_at if after else otherwise
    if approval.state == Approval.State.EXPIRED:
        return min(approval.expires_at, otherwise)
    if approval.state == Approval.State.WITHDRAWN or approval.decided_at is None:
        return otherwise
    return approval.decided_at


def _decision(approval: Approval, types: Sequence[str]) -> str:
    if approval.state in (Approval.State.APPROVED, Approval.State.USED):
        return DecisionType.EDIT if DecisionType.EDIT in types else DecisionType.APPROVE
    return _DECIDED.get(Approval.State(approval.state), "")


def _model(named: str) -> dict[str, Value]:
    provider, _, model = named.partition(":")
    return {"gen_ai.provider.name": _PROVIDERS.get(provider, provider), "gen_ai.request.model": model or provider}


def _usage(row: Run | Step) -> dict[str, Value]:
    return {
        "gen_ai.usage.input_tokens": row.input_tokens,
        "gen_ai.usage.output_tokens": row.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": row.cached_tokens,
    }


def _tool(execution: ToolExecution) -> dict[str, Value]:
    return {
        "gen_ai.tool.name": execution.name,
        "gen_ai.tool.call.id": execution.call_id,
        "gen_ai.tool.type": "function",
        "countersign.execution.id": str(execution.pk),
        "countersign.effect_class": execution.effect_class,
    }


def _error(code: str) -> dict[str, Value]:
    return {"error.type": code} if code else {}


def _known(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value not in ("", [])}


def _named(operation: str, what: str) -> str:
    return f"{operation} {what}"[:MAX_NAME_CHARS].strip()
