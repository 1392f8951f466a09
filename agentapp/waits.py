"""How long a request kept its call waiting, and what became of it, in words. No queries."""

from datetime import datetime

from approvals.models import Approval


def ended(approval: Approval, after: Approval | None, answered_at: datetime | None, end: datetime) -> datetime:
    """When a request stopped keeping its call waiting. A decision that is held still does."""
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
        Approval.State.EXPIRED: "expired, no one decided",
        Approval.State.WITHDRAWN: "withdrawn",
        Approval.State.SUPERSEDED: "replaced by a newer one",
        Approval.State.REJECTED: "rejected",
        Approval.State.RESPONDED: "answered",
    }
    said = words.get(Approval.State(approval.state), "approved")
    names = [decision.who for decision in approval.decisions.all() if decision.undone_at is None]
    if not names or approval.state in (Approval.State.EXPIRED, Approval.State.WITHDRAWN, Approval.State.SUPERSEDED):
        return said
    if approval.state in Approval.UNDECIDED:
        return f"{len(names)} of {approval.approvals_needed} approved"
    return f"{said} by {' and '.join(names)}".replace(" The customer", " the customer")
