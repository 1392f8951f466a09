"""Who is left to approve a call that somebody changed, at high and critical risk. Reads only."""

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals import entitlement
from approvals.models import HIGH_RISKS, Approval, DecisionType
from approvals.standing import approving

MAX_NAMED = 3
_ELSE = "Unless somebody gets that right before time runs out, it does not run."


@dataclass(frozen=True)
class Remaining:
    """The people who may still approve a request (the first few by name), and how many of them must."""

    names: list[str]
    more: int
    needed: int

    @property
    def are_enough(self) -> bool:
        return len(self.names) + self.more >= self.needed

    @property
    def words(self) -> str:
        if not self.names:
            return f"Nobody else may approve this. {_ELSE}"
        listed = [*self.names, f"{self.more} other{'s' if self.more > 1 else ''}"] if self.more else self.names
        if not self.are_enough:
            return f"Only {_joined(listed, 'and')} may approve this, and {self.needed} people must. {_ELSE}"
        enough = f", and {self.needed} of them must" if self.needed > 1 else ""
        return f"{_joined(listed, 'or')} may approve this{enough}."


def of(approval: Approval, changing: Collection[int] = ()) -> Remaining | None:
    """Who may approve a request as it waits. `changing`: as if these people (whoever changes it, and whose right they
    use) had changed it further. None: it is not open, or nobody is ruled out for changing it.
    """
    if approval.risk not in HIGH_RISKS or approval.state not in Approval.UNDECIDED:
        return None
    if approval.mocked or approval.asks_customer:
        return None
    given = [each for each in approval.decisions.all() if each.undone_at is None]
    if changing:
        # A change takes back approvals of the call as it was; rejections stand.
        given = [each for each in given if each.type == DecisionType.REJECT]
    made = entitlement.editors(approval) | entitlement.people_of(entitlement.changes_of(approval)) | {*changing}
    if not made:
        return None
    found = entitlement.deciders_of(approval, made | entitlement.people_of(given))
    return _named(found, approval.approvals_needed - len(approving(approval, given)))


def _named(found: QuerySet[User], needed: int) -> Remaining:
    count = found.count()
    first = found.order_by("first_name", "username")[:MAX_NAMED] if count else []
    names = [person.get_full_name() or person.get_username() for person in first]
    return Remaining(names, max(count - len(names), 0), max(needed, 1))


def _joined(names: list[str], word: str) -> str:
    """As in "Ana, Bo or Cy"."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last
