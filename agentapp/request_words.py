"""How long a request kept its call waiting, and what became of it, in words. No queries."""

from collections.abc import Sequence
from datetime import datetime

from approvals.models import Approval, Decision, DecisionType
from approvals.standing import approving


def ended(approval: Approval, after: Approval | None, answered_at: datetime | None, end: datetime) -> datetime:
    """When a request stopped keeping its call waiting. While a decision is held, the call still waits."""
    if approval.used_at:
        return approval.used_at
    if approval.state == Approval.State.SUPERSEDED:
        return after.created_at if after else end
    if approval.state == Approval.State.EXPIRED:
        return min(end, approval.expires_at)
    if approval.state == Approval.State.WITHDRAWN:
        return answered_at or end
    return end


def became(approval: Approval) -> str:
    """What became of a request, in words that follow its name."""
    words = {
        Approval.State.PENDING: "waiting for the customer" if approval.asks_customer else "waiting",
        Approval.State.ASKED: "waiting, a question was asked",
        Approval.State.EXPIRED: "approved, and expired" if approval.decided_at else "expired, no one decided",
        Approval.State.WITHDRAWN: "withdrawn",
        Approval.State.SUPERSEDED: "replaced by a newer one",
        Approval.State.REJECTED: "rejected",
        Approval.State.RESPONDED: "answered",
    }
    said = words.get(Approval.State(approval.state), "approved")
    given = [decision for decision in approval.decisions.all() if decision.undone_at is None]
    if not given or approval.state in (Approval.State.EXPIRED, Approval.State.WITHDRAWN, Approval.State.SUPERSEDED):
        return said
    if approval.state in Approval.UNDECIDED:
        return _so_far(approval, given)
    # Name only the people whose decision prevailed.
    types = _DECIDED.get(Approval.State(approval.state), (DecisionType.APPROVE, DecisionType.EDIT))
    names = [decision.who for decision in given if decision.type in types]
    return f"{said} by {' and '.join(names)}".replace(" The customer", " the customer") if names else said


_DECIDED = {Approval.State.REJECTED: (DecisionType.REJECT,), Approval.State.RESPONDED: (DecisionType.RESPOND,)}


def _so_far(approval: Approval, given: Sequence[Decision]) -> str:
    """The progress of a request that needs more people."""
    against = sum(decision.type == DecisionType.REJECT for decision in given)
    approved = len(approving(approval, given))
    if not approval.terms:
        return f"{approved} of {approval.approvals_needed} approved"
    said = [f"{approved} approved"] if approved else []
    said += [f"{against} rejected"] if against else []
    return "; ".join([*([", ".join(said)] if said else []), "more people are needed"])
