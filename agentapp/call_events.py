"""What is recorded about one call in its run's chain."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils import timezone

from agentapp.messages import ToolCall
from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason
from approvals import ledger
from approvals.detectors import without_secrets
from approvals.digest import storable
from approvals.masking import blotted
from approvals.sealed import digest_of, sealed


def record(execution: ToolExecution, what: str, data: dict[str, Any], actor: str = ledger.SYSTEM) -> None:
    """Record a fact about one call in its run's chain. `what` is a complete event type if it contains a dot."""
    subject = {"execution": str(execution.pk), "tool": execution.name[:200], **data}
    ledger.record(ledger.run_chain(execution.run_id), what if "." in what else f"tool_call.{what}", subject, actor)


def record_subagent(execution: ToolExecution, what: str, child: Run, data: dict[str, Any]) -> None:
    """Record in the asking run's chain what became of the run that answers one of its calls."""
    subject = {"run": str(child.pk), "agent": child.agent.name, "execution": str(execution.pk), **data}
    ledger.record(ledger.run_chain(execution.run_id), f"subagent.{what}", subject)


def record_failures(execution: ToolExecution, failures: Sequence[dict[str, Any]]) -> None:
    for failure in said_of(execution, failures):
        record(execution, "attempt_failed", {**failure, "message": sealed(failure["message"], execution.salt)})


def said_of(execution: ToolExecution, failures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What failed attempts said, in the form that is kept: without known secrets and the call's secret arguments."""
    secrets = execution.secret_values if failures else set()
    said = (without_secrets(blotted(storable(failure["message"]), secrets))[:500] for failure in failures)
    return [{**failure, "message": words} for failure, words in zip(failures, said, strict=True)]


def every_failure(execution: ToolExecution) -> list[dict[str, Any]]:
    """What the attempts at a call of unknown outcome said, plus the last attempt if its worker died in it.

    All of them have ended then, so trying the call again starts at its first attempt.
    """
    kept: list[dict[str, Any]] = execution.failures
    if execution.attempts <= max((failure["attempt"] for failure in kept), default=0):
        return kept
    died = {"attempt": execution.attempts, "status": "fatal_error", "reason": str(Reason.OUTCOME_UNKNOWN)}
    return [*kept, {**died, "message": "", "at": timezone.now().isoformat()}]


def arguments_facts(execution: ToolExecution) -> dict[str, str]:
    digest = execution.arguments_digest
    return {"arguments_digest": digest_of(digest, execution.salt) if digest else ""}


def ruling_facts(ruling: Mapping[str, Any]) -> dict[str, Any]:
    """What was ruled, without the values that the rules read: the row has those."""
    return {name: ruling[name] for name in ("verdict", "rule", "reason", "risk", "shadow") if name in ruling}


def result_facts(execution: ToolExecution) -> dict[str, Any]:
    """The outcome of a call that has just ended."""
    return {
        "status": execution.result_status,
        "reason": execution.reason,
        "attempts": execution.attempts,
        "result_digest": digest_of(execution.result_text, execution.salt),
        **_took(execution),
    }


def change_facts(execution: ToolExecution, proposed: ToolCall, hooks: Sequence[str]) -> dict[str, Any]:
    """How a hook changed a call, as digests: the arguments themselves may be secret."""
    return {
        "hooks": list(hooks),
        "proposed": storable(proposed.name)[:200],
        "before_digest": digest_of(storable(proposed.arguments_text), execution.salt),
        "after_digest": digest_of(execution.arguments_text, execution.salt),
    }


def _took(execution: ToolExecution) -> dict[str, Any]:
    """How long a call has run so far; empty for one that never began."""
    if execution.started_at is None:
        return {}
    return {"took_ms": max(0, round((timezone.now() - execution.started_at).total_seconds() * 1000))}
