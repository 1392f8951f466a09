"""The only writer of Judgement: whether a decision was good, said afterwards. It is never changed and never deleted.

It has no consequences: the decision stands, and no rule looks at it. The caller holds the lock on the run's row and is
inside `ledger.transaction()`.
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
"""The types of the events that record a decision."""


def add(decision: Decision, mark: str, reason: str, judge: User) -> Judgement | Refusal:
    """Judge a decision good, wrong or harmful, and say why. Earlier judgements stay on record."""
    approval = decision.approval
    if refusal := barred(decision, judge):
        return refusal
    if mark not in Judgement.Mark.values:
        return Refusal("invalid", "Say whether it was good, wrong or harmful.")
    words = without_secrets_of(approval, as_typed(reason))
    if not words:
        return Refusal("message_required", "Say why: the next person to decide reads it.")
    if len(words) > MAX_CHARS:
        return Refusal("too_long", f"A reason can have at most {MAX_CHARS} characters.")
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
    # The decision has another key here than in the event that records it: this event is only about it.
    data = {"judges": str(decision.pk), "judgement": str(made.pk), "mark": mark, "reason": sealed(words, made.salt)}
    approval_events.record(approval, "judged", data, ledger.actor_of(judge))
    return made


def barred(decision: Decision, user: User) -> Refusal | None:
    """Why this person may not judge a decision. None: they may."""
    if not (user.is_active and user.has_perm(RIGHT)):
        return Refusal("forbidden", "Judging decisions needs the right to judge them.")
    if user.pk in (decision.user_id, decision.on_behalf_of_id):
        return Refusal("own_decision", "Somebody else must judge decisions made by you or in your right.")
    if decision.mocked:
        return Refusal("invalid", "No person made this decision.")
    if decision.undone_at is not None:
        return Refusal("taken_back", "This decision was taken back, so it had no effect.")
    if decision.approval.erased_at is not None:
        return Refusal("erased", "What was decided is erased, so it can no longer be judged.")
    return None


def of(decisions: Collection[Decision]) -> Mapping[uuid.UUID, Sequence[Judgement]]:
    """The judgements of some decisions, latest first."""
    found: defaultdict[uuid.UUID, list[Judgement]] = defaultdict(list)
    for row in Judgement.objects.filter(decision__in=decisions).select_related("judge").order_by("-number"):
        found[row.decision_id].append(row)
    return found


def marked(events: QuerySet[Event]) -> QuerySet[Event]:
    """Annotated with `mark`: the judgement that counts of the decision an event records. None: no decision, or not
    judged.
    """
    latest = Judgement.objects.filter(event=OuterRef("pk")).order_by("-number").values("mark")[:1]
    return events.annotate(mark=Subquery(latest))


def erase(approval_ids: Sequence[uuid.UUID]) -> None:
    """Erase why decisions about some requests were judged as they were. The marks stay."""
    Judgement.objects.filter(approval__in=approval_ids).update(reason=ERASED, salt=GONE)


def _event_of(decision: Decision) -> uuid.UUID | None:
    chain = ledger.run_chain(decision.approval.run_id)
    events = Event.objects.filter(chain=chain, approval_id=decision.approval_id, type__in=DECIDED_BY)
    return next((event.pk for event in events if event.data.get("decision") == str(decision.pk)), None)
