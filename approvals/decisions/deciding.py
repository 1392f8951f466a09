"""Takes the decisions of people, or of a customer, and takes them back."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet, UUIDField

from approvals import approval_events, ledger, questions
from approvals.accepting import Incoming, decision_of, refusal, right_to, says
from approvals.clock import Now
from approvals.decisions.asking import let_clock_go_on
from approvals.decisions.escalating import note_breach
from approvals.decisions.rows import locked, tell, tell_anew, write
from approvals.inserting import RowInsert
from approvals.models import Approval, Decision, DecisionType
from approvals.prepared import Given, Prepared
from approvals.sealed import sealed
from approvals.signatures import digest_of
from approvals.standing import Refusal, is_enough, is_rejected, marks_of

_TAKEN = Prepared(lambda: Decision.objects.select_related("approval").filter(pk=Given("pk", UUIDField())).order_by())
_ADD = RowInsert(Decision)


@dataclass(frozen=True)
class Taken:
    """A decision that counts, and where the request stands now. `repeated`: it had been sent before."""

    approval: Approval
    decision: Decision
    repeated: bool = False


def decide(approval_id: uuid.UUID, incoming: Incoming, use_within: timedelta) -> Taken | Refusal:
    """Take the decision of a person or a customer, or say why not. First wins; a refusal changes nothing."""
    repeated = _TAKEN.first(pk=incoming.id)
    if repeated is not None:
        return _repeat(repeated, approval_id, incoming)
    approval = locked(approval_id, incoming.user)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    right = right_to(approval, incoming)
    if isinstance(right, Refusal):
        return right
    refused = refusal(approval, incoming, right)
    if refused:
        return refused
    was_asked = approval.state == Approval.State.ASKED
    now: datetime = approval.database_now  # type: ignore[attr-defined]
    note_breach(approval, now)
    decision, gone = _record_decision(approval, incoming, right.lender)
    if decision.type in (DecisionType.APPROVE, DecisionType.EDIT):
        _count_approval(approval, decision, now, use_within, incoming)
    elif decision.type == DecisionType.RESPOND or is_rejected(approval):
        approval.state = Approval.State.REJECTED if decision.type == DecisionType.REJECT else Approval.State.RESPONDED
        approval.decided_at = now
        approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    if was_asked and approval.state not in Approval.UNDECIDED:
        let_clock_go_on(approval, questions.open_about([approval.pk]).get())
    if approval.state not in Approval.UNDECIDED:
        approval.ended_at, approval.ended_as = approval.decided_at, Approval.Ending.DECIDED
    approval.version = approval.version + 1
    write(approval)
    if approval.state not in Approval.UNDECIDED:
        tell([approval.pk], incoming.user.pk if incoming.user else None)
    approval_events.record(
        approval,
        "changed" if approval.state in Approval.UNDECIDED else approval.state,
        {
            "decision": str(decision.pk),
            "type": decision.type,
            "action_digest": decision.action_digest,
            "view_digest": decision.view_digest,
            "message": sealed(decision.message, decision.salt),
            "edited": approval.is_edited,
            "runs_at": approval.runs_at.isoformat() if approval.runs_at else "",
            **({"assurance": decision.assurance} if decision.assurance else {}),
            **({"signature": digest_of(decision.signature)} if decision.signature else {}),
            **({"on_behalf_of": ledger.actor_of(right.lender)} if right.lender else {}),
            **_set_aside(gone),
            **incoming.way,
            **marks_of(approval),
            **approval_events.took(approval, now),
        },
        actor=incoming.actor,
    )
    return Taken(approval, decision)


def undo(approval_id: uuid.UUID, user: User) -> Approval | Refusal:
    """Take back your own decision, while it is held or while it waits for other people.

    Refused once the worker has acted on it. Without your edit, the call stands as it was proposed, and people who
    approved the edited call have not approved that one. Rejections and answers by others stay.
    """
    approval = locked(approval_id)
    if approval is None:
        return Refusal("not_found", "There is no such request.")
    mine = approval.decisions.filter(user=user, undone_at__isnull=True).first()
    if mine is None:
        return Refusal("not_yours", "Only the person who decided can undo it.")
    if approval.used_at is not None or approval.state not in (*Approval.UNDECIDED, *Approval.DECIDED):
        return Refusal("too_late", "It has already taken effect and cannot be undone.")
    undone, stands = Q(pk=mine.pk), _is_ended_by_others(approval, mine)
    if mine.type == DecisionType.EDIT and not stands:
        undone |= Q(approval=approval, undone_at__isnull=True) & ~Q(type=DecisionType.REJECT)
        approval.final_arguments_text = approval.final_digest = approval.final_title = ""
        approval.final_preview_text = ""
    gone = _take_back(Decision.objects.filter(undone))
    was_decided = approval.state in Approval.DECIDED and not stands
    if not stands:
        if approval.state != Approval.State.ASKED:
            approval.state = Approval.State.PENDING
        approval.decided_at = approval.runs_at = approval.use_by = approval.ended_at = None
        approval.ended_as = ""
    approval.version += 1
    write(approval)
    if was_decided:
        tell_anew(approval.pk, user.pk)
    facts = {"decision": str(mine.pk), **_set_aside([key for key in gone if key != mine.pk])}
    approval_events.record(approval, "undone", facts, ledger.actor_of(user))
    return approval


def _take_back(given: QuerySet[Decision]) -> list[uuid.UUID]:
    """Let some decisions count no longer. Returns their keys."""
    keys = list(given.values_list("pk", flat=True))
    Decision.objects.filter(pk__in=keys).update(undone_at=Now())
    return keys


def _set_aside(keys: Sequence[uuid.UUID]) -> dict[str, list[str]]:
    """What an event says of others' decisions that no longer count because of its own."""
    return {"set_aside": [str(key) for key in keys]} if keys else {}


def _is_ended_by_others(approval: Approval, mine: Decision) -> bool:
    """Whether others' rejection or answer has ended the request, and would without this decision."""
    others = approval.decisions.filter(undone_at__isnull=True).exclude(pk=mine.pk)
    if approval.state == Approval.State.RESPONDED:
        return others.filter(type=DecisionType.RESPOND).exists()
    # The last rejection needed has ended it, and then it needs each of them; or a change of the call has, by letting
    # rejections count that did not before.
    ended_it = mine.type == DecisionType.REJECT or mine.decided_at == approval.decided_at
    rejected = approval.state == Approval.State.REJECTED and not ended_it
    return rejected and others.filter(type=DecisionType.REJECT).exists()


def _repeat(decision: Decision, approval_id: uuid.UUID, incoming: Incoming) -> Taken | Refusal:
    if not says(decision, approval_id, incoming):
        return Refusal("decision_id_reused", "This decision id belongs to another decision; make a new one.")
    return Taken(decision.approval, decision, repeated=True)


def _record_decision(approval: Approval, incoming: Incoming, lender: User | None) -> tuple[Decision, list[uuid.UUID]]:
    """Add a decision. Returns it, and those that no longer count because of it."""
    decision = decision_of(approval, incoming, lender)
    decision.decided_at = approval.database_now  # type: ignore[attr-defined]
    decision.shown_at = getattr(approval, "shown_to_them", None)
    decision.claimed_at = getattr(approval, "claimed_by_them", None)
    gone: list[uuid.UUID] = []
    if decision.type == DecisionType.EDIT:
        # People who approved the call as it was have not approved this one.
        gone = _take_back(approval.decisions.filter(undone_at__isnull=True).exclude(type=DecisionType.REJECT))
    _ADD([decision])
    return decision, gone


def _count_approval(
    approval: Approval, decision: Decision, now: datetime, use_within: timedelta, incoming: Incoming
) -> None:
    """Bind the request to what this person approved, and approve it once enough people have."""
    approval.final_arguments_text = decision.arguments_text
    approval.final_digest = decision.action_digest
    if decision.type == DecisionType.EDIT:
        approval.final_title, approval.final_preview_text = incoming.edited_title, incoming.edited_preview
    if approval.terms and is_rejected(approval):
        # A change of the call can make earlier rejections count. They then end the request.
        approval.state = Approval.State.REJECTED
        approval.decided_at = now
        approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
        return
    if not is_enough(approval):
        return
    approval.state = Approval.State.APPROVED
    approval.decided_at = now
    approval.runs_at = now + timedelta(seconds=approval.hold_seconds)
    approval.use_by = approval.runs_at + use_within
