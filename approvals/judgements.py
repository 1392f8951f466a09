"""The only writer of Judgement: whether a decision was good, said afterwards. It is never changed and never deleted.

Nothing follows from it: what was decided stays decided, and no rule looks at it. The caller holds the lock on the run's
row and is inside `ledger.transaction()`.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from django.contrib.auth.models import User
from django.db.models import Max, OuterRef, QuerySet, Subquery

from approvals import approval_events, ledger
from approvals.clock import Now
from approvals.comments import without_secrets_of
from approvals.digest import as_typed
from approvals.models import Approval, Decision, Event, Judgement
from approvals.sealed import ERASED, GONE, sealed
from approvals.standing import Refusal

RIGHT = "approvals.judge_decision"
MAX_CHARS = 1000
DECIDED_BY = (*(f"approval.{state}" for state in Approval.DECIDED), "approval.changed")
"""The types of the events that tell of a decision."""


def add(decision: Decision, mark: str, reason: str, judge: User) -> Judgement | Refusal:
    """Say of a decision that it was good, wrong or harmful, and why. What was said of it before stays on record."""
    approval = decision.approval
    if refusal := barred(decision, judge):
        return refusal
    if mark not in Judgement.Mark.values:
        return Refusal("invalid", "Say whether it was good, wrong or harmful.")
    words = without_secrets_of(approval, as_typed(reason))
    if not words:
        return Refusal("message_required", "Say why: whoever decides next reads it.")
    if len(words) > MAX_CHARS:
        return Refusal("too_long", f"A reason has {MAX_CHARS} characters at most.")
    last = Judgement.objects.filter(decision=decision).aggregate(last=Max("number"))["last"] or 0
    made = Judgement.objects.create(
        approval=approval,
        decision=decision,
        number=last + 1,
        mark=mark,
        reason=words,
        judge=judge,
        event=_event_of(decision),
        at=Now(),
    )
    # The decision is not named as in the event that tells of it: this event is about it, and is not it.
    data = {"judges": str(decision.pk), "judgement": str(made.pk), "mark": mark, "reason": sealed(words, made.salt)}
    approval_events.record(approval, "judged", data, ledger.actor_of(judge))
    return made


def barred(decision: Decision, user: User) -> Refusal | None:
    """Why this person has no say in whether a decision was good. None: they have."""
    if not (user.is_active and user.has_perm(RIGHT)):
        return Refusal("forbidden", "Judging decisions needs the right to judge them.")
    if user.pk in (decision.user_id, decision.on_behalf_of_id):
        return Refusal("own_decision", "A decision of your own, or in your right, is for somebody else to judge.")
    if decision.mocked:
        return Refusal("invalid", "No person decided this.")
    if decision.undone_at is not None:
        return Refusal("taken_back", "This decision was taken back, so it did nothing.")
    if decision.approval.erased_at is not None:
        return Refusal("erased", "What was decided is erased, so nobody can say any more whether it was good.")
    return None


def of(decisions: Collection[Decision]) -> Mapping[uuid.UUID, Sequence[Judgement]]:
    """What was said of some decisions, the last first."""
    found: defaultdict[uuid.UUID, list[Judgement]] = defaultdict(list)
    for row in Judgement.objects.filter(decision__in=decisions).select_related("judge").order_by("-number"):
        found[row.decision_id].append(row)
    return found


def marked(events: QuerySet[Event]) -> QuerySet[Event]:
    """With `mark`: what counts of the decision that an event tells of. None: of none, or nobody judged it."""
    latest = Judgement.objects.filter(event=OuterRef("pk")).order_by("-number").values("mark")[:1]
    return events.annotate(mark=Subquery(latest))


def erase(approval_ids: Sequence[uuid.UUID]) -> None:
    """Take away why decisions about some requests were judged so. How they were judged stays."""
    Judgement.objects.filter(approval__in=approval_ids).update(reason=ERASED, salt=GONE)


def _event_of(decision: Decision) -> uuid.UUID | None:
    chain = ledger.run_chain(decision.approval.run_id)
    events = Event.objects.filter(chain=chain, approval_id=decision.approval_id, type__in=DECIDED_BY)
    return next((event.pk for event in events if event.data.get("decision") == str(decision.pk)), None)
