"""Whether somebody has a say in a request, as its card shows it: their own, a lent one, one already used, or none."""

from collections.abc import Sequence

from django.contrib.auth.models import User

from approvals.models import Approval, Decision, DecisionType
from approvals.standing import Refusal, Right, right_of


def right(approval: Approval, user: User) -> Right | Refusal:
    """By what right this person has a say in a request, or why they have none, whatever its state."""
    return right_of(user, approval, *_read_with(approval, user))


def of(
    approval: Approval, user: User, right: Right | Refusal, given: Sequence[Decision]
) -> tuple[Refusal | None, User | None]:
    """Why this person may not decide a waiting request, or whose right they would use. `given` are the decisions that
    count.
    """
    own = next((decision for decision in given if decision.user_id == user.pk), None)
    if own is not None:
        return Refusal("decided_by_you", f"You have {_done(own)}. This request needs another person too."), None
    if isinstance(right, Refusal):
        return right, None
    for_them = next((decision for decision in given if decision.on_behalf_of_id == user.pk), None)
    if for_them is not None:
        words = f"{for_them.name} has {_done(for_them)} for you. This request needs another person too."
        return Refusal("decided_for_you", words), None
    return None, right.lender


def _done(decision: Decision) -> str:
    return "rejected" if decision.type == DecisionType.REJECT else "approved"


def _read_with(approval: Approval, user: User) -> tuple[bool | None, bool | None]:
    """Whether this person is in one of the request's groups, and whether somebody has lent them the right to decide, if
    that was read with the request for them.
    """
    if getattr(approval, "reader", None) != user.pk:
        return None, None
    return getattr(approval, "is_member", None), getattr(approval, "is_lent", None)
