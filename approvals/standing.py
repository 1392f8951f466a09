"""Who may decide about a request, and whether what was decided still stands. Reads only."""

import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from approvals.cards import digest_of
from approvals.clock import Now
from approvals.models import Approval, ApprovalKind, Decision, DecisionType, Risk
from approvals.policy import RISK_ORDER, Ruling


@dataclass(frozen=True)
class Refusal:
    """Why a decision was not taken. `code` is for programs, `message` for people."""

    code: str
    message: str


def may_decide(user: User, approval: Approval, is_member: bool | None = None) -> Refusal | None:
    """None when this person may decide about this request now, else why not.

    `is_member`: whether they are in one of its groups, where that was read together with the request.
    """
    if approval.asks_customer:
        return Refusal("customer_decides", "The customer answers this, in their conversation; nobody does it for them.")
    if not user.is_active or not user.has_perm("approvals.decide_approval"):
        return Refusal("forbidden", "You can view this, not decide it: deciding needs the right to decide approvals.")
    groups = list(approval.groups.all())
    if groups and is_member is None:
        is_member = user.groups.filter(pk__in=[group.pk for group in groups]).exists()
    if groups and not is_member:
        names = " or ".join(group.name for group in groups)
        return Refusal("forbidden", f"You can view this, not decide it: it is decided by {names}.")
    if approval.starter_excluded and approval.starter_id == user.pk:
        return Refusal("starter", "You started this run, so someone else decides about its calls.")
    if user.pk in approval.excluded:
        return Refusal("took_over", "You have taken this run over, so someone else decides about its calls.")
    return None


def deciders_still_allowed(approval: Approval) -> bool:
    """Whether everybody whose approval counts still has the right to give it. Of a customer the rules say so."""
    standing = approval.decisions.select_related("user").filter(undone_at__isnull=True, user__isnull=False)
    return all(decision.user is not None and may_decide(decision.user, approval) is None for decision in standing)


def is_bound(approval: Approval) -> bool:
    """Whether the arguments on the row are, byte for byte, what enough people approved.

    The digest is made anew from the text, so that a row changed by hand does not pass.
    """
    return approval.final_digest != "" and approval.final_digest == final_digest(approval) and is_enough(approval)


def overdue(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests whose time is up, as (approval, run): undecided too long, or approved and not used in time."""
    undecided = Q(state__in=Approval.UNDECIDED, expires_at__lte=Now())
    unused = Q(state=Approval.State.APPROVED, use_by__lte=Now())
    found = Approval.objects.filter(undecided | unused).order_by("expires_at")
    return list(found.values_list("pk", "run_id")[:limit])


def people_needed(ruling: Ruling) -> int:
    """How many people must approve: at critical risk two at least, unless only one person may decide at all."""
    if ruling.risk != Risk.CRITICAL:
        return ruling.approvals_needed
    return max(ruling.approvals_needed, 2 if deciders().count() > 1 else 1)


def deciders() -> QuerySet[User]:
    """Everybody with the right to decide, whatever about."""
    return User.objects.with_perm("approvals.decide_approval", backend="django.contrib.auth.backends.ModelBackend")


def marks_of(approval: Approval) -> dict[str, Any]:
    """What marks a request in the record: the customer answers it, or one person alone decides a critical one."""
    if approval.asks_customer:
        return {"kind": str(approval.kind)}
    alone = approval.risk == Risk.CRITICAL and approval.approvals_needed < 2
    return {"one_person": True} if alone else {}


def meets(approval: Approval, ruling: Ruling) -> bool:
    """Whether the approvals given would be enough under the terms of another ruling.

    A confirmation is what it asks of the customer; whether people are to be asked as well is for the caller.
    """
    if approval.asks_customer:
        return ruling.customer
    if ruling.customer and not confirmed(approval):
        return False
    counting = _counting(approval, max(approval.risk, ruling.risk, key=RISK_ORDER.index))
    deciding = [decision for decision in counting if decision.type in ruling.allowed_decisions]
    users = {decision.user_id for decision in deciding if decision.user_id is not None}
    if ruling.starter_excluded:
        users -= {approval.starter_id}
    if ruling.groups:
        users &= set(User.objects.filter(groups__in=ruling.groups, pk__in=users).values_list("pk", flat=True))
    return len(users) >= people_needed(ruling)


def confirmed(approval: Approval) -> bool:
    """Whether the customer has confirmed the very call that people are asked about, for this time of running it."""
    return is_confirmed(approval.execution_id, approval.final_digest or approval.action_digest)


def is_confirmed(execution_id: uuid.UUID, digest: str) -> bool:
    """Whether the last request about a call that was used up is the customer's confirmation of exactly this."""
    used = Approval.objects.filter(execution_id=execution_id, state=Approval.State.USED).order_by("-used_at", "-pk")
    last = used.values_list("kind", "final_digest").first()
    return last == (ApprovalKind.CONFIRMATION, digest)


def is_enough(approval: Approval) -> bool:
    """Whether enough people approved the call as it would run now.

    At high and critical risk the person who changed the arguments does not count as one of them.
    """
    return _counting(approval, approval.risk).count() >= approval.approvals_needed


def _counting(approval: Approval, risk: str) -> QuerySet[Decision]:
    """The decisions that approve the call as it would run now."""
    counting = approval.decisions.filter(
        undone_at__isnull=True,
        type__in=[DecisionType.APPROVE, DecisionType.EDIT],
        action_digest=approval.final_digest,
    )
    if risk not in (Risk.HIGH, Risk.CRITICAL):
        return counting
    counting = counting.exclude(type=DecisionType.EDIT)
    return counting.exclude(user=approval.editor_id) if approval.editor_id is not None else counting


def final_digest(approval: Approval) -> str:
    """The digest of the call as it would run now, made from the text itself. Empty: the text is no JSON."""
    try:
        return digest_of(
            approval.tool, approval.tool_version, approval.final_arguments_text, approval.run_id, approval.execution_id
        )
    except ValueError:
        return ""
