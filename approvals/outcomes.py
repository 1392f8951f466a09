"""What became of a request, in words for people who were told that it waits: the outcome, who, and when. Reads only."""

from dataclasses import dataclass
from datetime import datetime

from approvals.models import Approval, Decision, DecisionType

State = Approval.State

# The kinds of decision that lead to each state.
_BY = {
    State.APPROVED: (DecisionType.APPROVE, DecisionType.EDIT),
    State.REJECTED: (DecisionType.REJECT,),
    State.RESPONDED: (DecisionType.RESPOND,),
}
_DONE = {
    State.APPROVED: "Approved",
    State.REJECTED: "Rejected",
    State.RESPONDED: "Answered in the tool's place",
    State.WITHDRAWN: "Withdrawn: its run has ended",
    State.SUPERSEDED: "Set aside: what it asked about has changed",
}


@dataclass(frozen=True)
class Became:
    """Where a request stands. `over`: it no longer waits."""

    outcome: str
    words: str
    at: datetime | None
    over: bool


def outcome_of(state: str) -> str:
    """A state as people are told of it. Whether an approval was used, or a question is open, is not separate news."""
    if state in Approval.UNDECIDED:
        return State.PENDING
    return State.APPROVED if state == State.USED else state


def of(approval: Approval, noted_at: datetime) -> Became:
    """What has become of a request by now. `noted_at`: when that was noted, if the request does not say."""
    outcome = outcome_of(approval.state)
    if outcome == State.PENDING:
        return Became(outcome, _waits_again(approval), noted_at, over=False)
    at = approval.decided_at if outcome in _BY else noted_at
    return Became(outcome, _words(approval, outcome), at, over=True)


def deciders(approval: Approval) -> list[int]:
    """The people whose decisions led to a request's state."""
    return [each.user_id for each in _standing(approval, outcome_of(approval.state)) if each.user_id is not None]


def _words(approval: Approval, outcome: str) -> str:
    if outcome == State.EXPIRED:
        return "Expired: approved, but not used in time" if approval.decided_at else "Expired: nobody decided in time"
    names = _joined([each.who for each in _standing(approval, outcome)])
    changed = " with changes" if outcome == State.APPROVED and approval.is_edited else ""
    return f"{_DONE[State(outcome)]}{changed}{f' by {names}' if names else ''}"


def _waits_again(approval: Approval) -> str:
    undone = approval.decisions.filter(undone_at__isnull=False, user__isnull=False)
    last = undone.select_related("user", "on_behalf_of").order_by("-undone_at", "-decided_at").first()
    return f"Waits again: {last.who} took the decision back" if last else "Waits again"


def _standing(approval: Approval, outcome: str) -> list[Decision]:
    if outcome not in _BY:
        return []
    found = approval.decisions.filter(undone_at__isnull=True, type__in=_BY[State(outcome)])
    return list(found.select_related("user", "on_behalf_of").order_by("decided_at"))


def _joined(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
