"""The only writer of PlannedCall: what approved plans allow, what was done with it, and what was ended.

The caller is inside `ledger.transaction()` and holds the lock on the run's row.
"""

import uuid
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import QuerySet

from approvals import approval_events, ledger, planned, standing
from approvals.clock import Now
from approvals.digest import storable
from approvals.models import Approval, ApprovalKind, PlannedCall
from approvals.planned import ShownCall
from approvals.sealed import ERASED, sealed

MAX_REASON = 500
REPLACED = "A newer plan of this run was approved."


def of_run(run_id: uuid.UUID) -> list[PlannedCall]:
    """The calls of a run's most recently approved plan, in order, each with the plan's request."""
    # Sorted by when each was used. Requests themselves are sorted by when people were asked, latest first.
    order = ("approval__used_at", "approval_id", "position")
    found = list(PlannedCall.objects.filter(run_id=run_id).select_related("approval").order_by(*order))
    return [call for call in found if call.approval_id == found[-1].approval_id]


def left_of(run_ids: Sequence[uuid.UUID]) -> QuerySet[PlannedCall]:
    """The calls left of some runs' plans, unless somebody has ended them."""
    return PlannedCall.objects.filter(run_id__in=run_ids, used_at__isnull=True, ended_at__isnull=True)


def take_up(approval: Approval, within: timedelta) -> list[PlannedCall]:
    """Store what an approved plan allows, once its proposal has run. It replaces an earlier plan.

    Empty: the request is not a plan, was not used, or is not what people approved.
    """
    if approval.kind != ApprovalKind.PLAN or approval.state != Approval.State.USED or not standing.is_bound(approval):
        return []
    end([approval.run_id], REPLACED)
    made = [
        PlannedCall(
            approval=approval,
            run_id=approval.run_id,
            position=position,
            tool=call.tool,
            tool_version=call.tool_version,
            effect_class=call.effect_class,
            arguments_text=call.arguments_text,
            action_digest=planned.call_digest(approval, position, call.tool, call.tool_version, call.arguments),
            snapshot_text=call.snapshot_text,
            use_by=Now() + within,
        )
        for position, call in enumerate(planned.calls_in(approval.plan_text), start=1)
    ]
    PlannedCall.objects.bulk_create(made)
    approval_events.record(approval, "plan.taken_up", {"calls": [[call.tool, call.action_digest] for call in made]})
    return made


def shown(call: PlannedCall) -> ShownCall | None:
    """A planned call as people were shown it. None: the request on record is not what they approved, or does not
    contain it.
    """
    calls = planned.calls_in(call.approval.plan_text)
    if not standing.is_bound(call.approval) or not 1 <= call.position <= len(calls):
        return None
    found = calls[call.position - 1]
    digest = planned.call_digest(call.approval, call.position, found.tool, found.tool_version, found.arguments)
    return found if digest == call.action_digest else None


def use(call: PlannedCall, execution_id: uuid.UUID) -> bool:
    """Use a planned call for the one it allows, in the transaction in which that begins.

    False: it was used or ended, or its time is over.
    """
    changed = left_of([call.run_id]).filter(pk=call.pk, use_by__gt=Now()).update(used_by=execution_id, used_at=Now())
    if changed:
        data = {"approval": str(call.approval_id), "execution": str(execution_id), "tool": call.tool}
        facts = {**data, "position": call.position, "action_digest": call.action_digest}
        ledger.record(ledger.run_chain(call.run_id), "plan.used", facts)
    return bool(changed)


def end(run_ids: Sequence[uuid.UUID], why: str, actor: str = ledger.SYSTEM) -> int:
    """End what is left of some runs' plans. Returns how many calls that was."""
    return _end(left_of(run_ids), why, actor)


def end_one(approval: Approval, why: str, actor: str) -> int:
    """End what is left of one plan. Returns how many calls that was. 0: it was used up or ended before, or is erased:
    the reason for ending an erased plan would be kept.
    """
    if approval.erased_at is not None:
        return 0
    return _end(left_of([approval.run_id]).filter(approval=approval), why, actor)


def _end(calls: QuerySet[PlannedCall], why: str, actor: str) -> int:
    left = list(calls.values_list("pk", "run_id", "approval_id", "position", "approval__salt"))
    if not left:
        return 0
    reason = storable(why)[:MAX_REASON]
    salts = {approval_id: salt for _, _, approval_id, _, salt in left}
    PlannedCall.objects.filter(pk__in=[pk for pk, *_ in left]).update(ended_at=Now(), ended_why=reason)
    for approval_id, run_id in dict.fromkeys((approval_id, run_id) for _, run_id, approval_id, *_ in left):
        positions = [position for _, _, of, position, _ in left if of == approval_id]
        data = {
            "approval": str(approval_id),
            "positions": sorted(positions),
            "why": sealed(reason, str(salts[approval_id])),
        }
        ledger.record(ledger.run_chain(run_id), "plan.ended", data, actor)
    return len(left)


def erase(approval_ids: Sequence[uuid.UUID]) -> None:
    """Erase what the calls of some plans were to do. Their digests stay."""
    of = PlannedCall.objects.filter(approval__in=approval_ids)
    of.exclude(ended_why="").update(ended_why=ERASED)
    of.update(arguments_text="{}", snapshot_text="")
