"""What people saw when they decided, restored from what was frozen, and whether its digest still holds.

Reads only. A request freezes its card. Later changes to the row, such as an edit or an added group, are left
out here, so that it is as it was at the moment of a decision.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from approvals.cards import card_of, digest_of, view_digest
from approvals.digest import MalformedJSON
from approvals.models import Approval, Decision, DecisionType, Event, Question

MATCHES, DIFFERS, GONE, ERASED = "matches", "differs", "gone", "erased"


@dataclass(frozen=True)
class Checked:
    """Whether what is shown is what the record says was shown.

    GONE: a part was deleted, so nobody can tell. ERASED: the words were erased, and their salt with them.
    """

    view: str
    action: str
    # The digest in the ledger, and that of what is shown.
    recorded: str = ""
    computed: str = ""
    # Pieces of evidence of which only the digest is left.
    deleted: int = 0

    @property
    def holds(self) -> bool:
        return self.view == MATCHES and self.action == MATCHES


def arguments_before(approval: Approval, decision: Decision | None) -> str:
    """The arguments on the card when somebody began this decision: the agent's, or those of an earlier edit."""
    edits = [given for given in approval.decisions.all() if given.type == DecisionType.EDIT]
    if decision is not None:
        edits = [edit for edit in edits if edit.decided_at < decision.decided_at and edit.pk != decision.pk]
        standing = [edit for edit in edits if edit.undone_at is None or edit.undone_at >= decision.decided_at]
    else:
        standing = [edit for edit in edits if edit.undone_at is None]
    return max(standing, key=lambda edit: edit.decided_at).arguments_text if standing else approval.arguments_text


def questions_before(approval: Approval, moment: datetime | None) -> list[Question]:
    """What had been asked about this call by then. Later answers are left out."""
    asked = Question.objects.filter(approval__execution_id=approval.execution_id)
    asked = asked.select_related("approval", "asker", "answerer").order_by("asked_at")
    found = list(asked.filter(asked_at__lt=moment) if moment else asked)
    for question in found:
        if moment and question.closed_at and question.closed_at > moment:
            question.answer, question.answerer, question.closed_at = "", None, None
    return found


def check(approval: Approval, decision: Decision | None) -> Checked:
    """Compare what is frozen on the row with the digests in the ledger and in the decision."""
    recorded = _recorded(approval)
    if approval.erased_at is not None:
        return Checked(ERASED, ERASED, recorded)
    deleted = sum("body" not in piece for piece in approval.evidence)
    computed = _computed(approval, recorded)
    said = {recorded, approval.view_digest, *({decision.view_digest} if decision else ())}
    view = MATCHES if said == {computed} else GONE if deleted and said == {recorded} else DIFFERS
    return Checked(view, _action(approval, decision), recorded, computed, deleted)


def _recorded(approval: Approval) -> str:
    """The digest of what was shown, from the ledger."""
    event = Event.objects.filter(approval_id=approval.pk, type="approval.requested").order_by("seq").first()
    return str(event.data.get("view_digest", "")) if event is not None else ""


def _computed(approval: Approval, wanted: str) -> str:
    """The digest of what the row holds. Groups added later come after those the request began with."""
    computed = ""
    for groups in _beginnings(approval):
        try:
            computed = view_digest(card_of(approval, groups))
        except MalformedJSON:
            return ""
        if computed == wanted:
            break
    return computed


def _beginnings(approval: Approval) -> Iterator[tuple[int, ...]]:
    links = Approval.groups.through.objects.filter(approval=approval).order_by("pk")
    groups = tuple(links.values_list("group_id", flat=True))
    for length in range(len(groups), -1, -1):
        yield groups[:length]


def _action(approval: Approval, decision: Decision | None) -> str:
    """Whether the digest that was decided about is that of the recorded arguments."""
    text = (
        approval.arguments_text if decision is None else decision.arguments_text or arguments_before(approval, decision)
    )
    digest = digest_of(
        approval.tool,
        approval.tool_version,
        text,
        approval.run_id,
        approval.execution_id,
        approval.plan_text,
        approval.salt,
    )
    return MATCHES if digest == (decision.action_digest if decision else approval.action_digest) else DIFFERS
