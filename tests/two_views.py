"""What was asked, decided and recorded about a call, and what of it can run or has run: two views that must agree.

The audit view keeps every request with its outcome. The dispatch view holds only bytes that may run.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentapp.models import ToolExecution
from approvals import sealed, standing
from approvals.cards import digest_of
from approvals.models import Approval, DecisionType, Event, PlannedCall

State = ToolExecution.State
# The state each event leaves a request in. One that was asked and answered waits, as does one of two approvals.
_LEAVES = {
    "requested": {"pending"}, "asked": {"asked"}, "answered": {"pending"}, "unanswered": {"pending"},
    "changed": {"pending", "asked"}, "undone": {"pending", "asked"}, "approved": {"approved"},
    "rejected": {"rejected"}, "responded": {"responded"}, "expired": {"expired"}, "withdrawn": {"withdrawn"},
    "superseded": {"superseded"}, "used": {"used"},
}  # fmt: skip
_BY_PEOPLE = (DecisionType.APPROVE, DecisionType.EDIT)


@dataclass(frozen=True)
class Asked:
    """One request as the audit view keeps it."""

    id: uuid.UUID
    state: str
    proposed: str
    decided: tuple[str, ...]
    """The decisions that count."""


@dataclass(frozen=True)
class Dispatch:
    """What the executor would run of a call, or has run. Empty bytes: nothing."""

    state: str
    would_run: str = ""
    has_run: tuple[str, ...] = ()
    """The digest of the bytes, for each time the call was allowed to run."""


def audit_view(execution: ToolExecution) -> list[Asked]:
    """Every request about a call, oldest first."""
    rows = Approval.objects.filter(execution_id=execution.pk).order_by("created_at", "pk")
    return [
        Asked(
            row.pk,
            row.state,
            row.arguments_text,
            tuple(row.decisions.filter(undone_at=None).order_by("decided_at").values_list("type", flat=True)),
        )
        for row in rows
    ]


def dispatch_view(execution: ToolExecution, events: Sequence[Event]) -> Dispatch:
    """What of a call would run now, and what has run."""
    started = tuple(e.data["executed_digest"] for e in events if e.type == "tool_call.started")
    approval = execution.approval
    runs = approval is not None and approval.state == Approval.State.APPROVED and standing.is_bound(approval)
    text = approval.final_arguments_text if approval is not None and execution.state == State.WAITING and runs else ""
    return Dispatch(execution.state, text, started)


def disagreements(execution: ToolExecution) -> list[str]:
    """Where the two views of a consequential call disagree. The list must always be empty."""
    execution = ToolExecution.objects.select_related("approval").get(pk=execution.pk)
    chain = list(Event.objects.filter(run_id=execution.run_id).order_by("seq"))
    asked = audit_view(execution)
    ids = {str(one.id) for one in asked}
    about = [e for e in chain if e.data.get("execution") == str(execution.pk) or e.data.get("approval") in ids]
    dispatch = dispatch_view(execution, about)
    found = [problem for one in asked for problem in _of_request(one, execution, about)]
    if dispatch.would_run and execution.approval is not None:
        current = next(one for one in asked if one.id == execution.approval_id)
        if not current.decided or not set(current.decided) <= set(_BY_PEOPLE):
            found.append("what would run was approved by nobody")
    if sum(one.state in Approval.OPEN for one in asked) > (execution.state == State.WAITING):
        found.append("people are asked about a call that does not wait for them")
    used = [one for one in asked if one.state == Approval.State.USED]
    if execution.consequential and not execution.allowed_by and len(dispatch.has_run) > len(used):
        found.append("it ran more often than it was approved")
    if execution.allowed_by.startswith("plan:") and dispatch.has_run:
        allowed = PlannedCall.objects.filter(used_by=execution.pk, tool=execution.name).values_list("arguments_text")
        if list(allowed) != [(execution.executed_text,)]:
            found.append("it ran under a plan that does not have it")
    return found


def _of_request(one: Asked, execution: ToolExecution, events: Sequence[Event]) -> list[str]:
    found = []
    mine = [e for e in events if e.data.get("approval") == str(one.id)]
    moves = [e for e in mine if e.type.startswith("approval.") and e.type.partition(".")[2] in _LEAVES]
    if not moves or one.state not in _LEAVES[moves[-1].type.partition(".")[2]]:
        found.append(f"the row says {one.state}, the ledger {moves[-1].type if moves else 'nothing'}")
    row = Approval.objects.get(pk=one.id)
    original = digest_of(
        row.tool, row.tool_version, one.proposed, row.run_id, row.execution_id, row.plan_text, row.salt
    )
    asked: Any = next((e.data["action_digest"] for e in mine if e.type == "approval.requested"), None)
    if asked != original:
        found.append("what was asked is not what is kept")
    started = [e.data["executed_digest"] for e in mine if e.type == "tool_call.started"]
    if started and (
        one.state != Approval.State.USED or started != [sealed.digest_of(row.final_arguments_text, execution.salt)]
    ):
        found.append(f"it ran under a request that is {one.state}, or other bytes did")
    if one.state in (Approval.State.REJECTED, Approval.State.RESPONDED) and execution.approval_id == one.id and started:
        found.append("what people refused ran")
    return found
