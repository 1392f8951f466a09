"""Who may decide about a request, and whether what was decided still stands. Reads only."""

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals.cards import digest_of
from approvals.models import Approval, Decision, DecisionType, Risk
from approvals.policy import RISK_ORDER, Ruling


@dataclass(frozen=True)
class Refusal:
    """Why a decision was not taken. `code` is for programs, `message` for people."""

    code: str
    message: str


def may_decide(user: User, approval: Approval) -> Refusal | None:
    """None when this person may decide about this request now, else why not."""
    if not user.is_active or not user.has_perm("approvals.decide_approval"):
        return Refusal("forbidden", "You can view this, not decide it: deciding needs the right to decide approvals.")
    groups = list(approval.groups.all())
    if groups and not {group.pk for group in groups} & set(user.groups.values_list("pk", flat=True)):
        names = " or ".join(group.name for group in groups)
        return Refusal("forbidden", f"You can view this, not decide it: it is decided by {names}.")
    if approval.starter_excluded and approval.starter_id == user.pk:
        return Refusal("starter", "You started this run, so someone else decides about its calls.")
    return None


def deciders_still_allowed(approval: Approval) -> bool:
    """Whether everybody whose approval counts still has the right to give it."""
    standing = approval.decisions.select_related("user").filter(undone_at__isnull=True)
    return all(may_decide(decision.user, approval) is None for decision in standing)


def is_bound(approval: Approval) -> bool:
    """Whether the arguments on the row are, byte for byte, what enough people approved.

    The digest is made anew from the text, so that a row changed by hand does not pass.
    """
    return approval.final_digest != "" and approval.final_digest == final_digest(approval) and is_enough(approval)


def meets(approval: Approval, ruling: Ruling) -> bool:
    """Whether the approvals given would be enough under the terms of another ruling."""
    counting = _counting(approval, max(approval.risk, ruling.risk, key=RISK_ORDER.index))
    users = {decision.user_id for decision in counting if decision.type in ruling.allowed_decisions}
    if ruling.starter_excluded:
        users -= {approval.starter_id}
    if ruling.groups:
        users &= set(User.objects.filter(groups__in=ruling.groups, pk__in=users).values_list("pk", flat=True))
    return len(users) >= ruling.approvals_needed


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
