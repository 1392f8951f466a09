"""Who may decide about a request, and whether what was decided still stands. Reads only."""

import functools
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet, UUIDField

from approvals import as_recorded, counting, entitlement, step_up, thresholds
from approvals.cards import final_digest
from approvals.clock import Now
from approvals.entitlement import deciders
from approvals.models import HIGH_RISKS, Approval, ApprovalKind, Decision, DecisionType, Risk
from approvals.policy import RISK_ORDER, Ruling
from approvals.prepared import Given, Prepared
from approvals.thresholds import Count, Terms

HAD_A_HAND = (
    "You had a hand in this run, so someone else must decide about its calls: you took it over, started a run that it "
    "goes back to, took part in what was said before, or made the token that this was done with."
)


@dataclass(frozen=True)
class Refusal:
    """Why a decision was not taken. `code` is for programs, `message` for people; `field` names the input at fault."""

    code: str
    message: str
    field: str = ""


@dataclass(frozen=True)
class Right:
    """The right by which somebody decides. `lender`: whose right it is, if it was lent to them."""

    lender: User | None = None


def may_decide(
    user: User, approval: Approval, is_member: bool | None = None, is_lent: bool | None = None
) -> Refusal | None:
    """None if this person may decide about this request now, otherwise why not.

    `is_member`: whether they are in one of its groups, if that was read with the request; `is_lent`: whether anybody
    has lent them the right.
    """
    right = right_of(user, approval, is_member, is_lent)
    return right if isinstance(right, Refusal) else None


def right_of(
    user: User, approval: Approval, is_member: bool | None = None, is_lent: bool | None = None, lock: bool = False
) -> Right | Refusal:
    """By what right this person may decide about this request now, or why they may not. Their own right comes first.

    `lock`: the lender of the right cannot take it back before this transaction ends.
    """
    if approval.asks_customer:
        return Refusal(
            "customer_decides", "The customer answers this in their conversation. Nobody can do it for them."
        )
    if not user.is_active or not user.has_perm("approvals.decide_approval"):
        why = "You can view this, not decide it: ask an administrator for the right to decide approvals."
        return Refusal("forbidden", why)
    groups = [] if is_member else list(approval.groups.all())
    if groups and is_member is None:
        is_member = user.groups.filter(pk__in=[group.pk for group in groups]).exists()
    lender: User | None = None
    if groups and not is_member:
        lent = _lent(user, approval, lock) if is_lent is not False else None
        if isinstance(lent, Refusal):
            return lent
        if lent is None:
            names = " or ".join(group.name for group in groups)
            return Refusal("forbidden", f"You can view this, not decide it: it is decided by {names}.")
        lender = lent
    if _is_starter(user, approval):
        return Refusal("starter", "You started this run, so someone else must decide about its calls.")
    if user.pk in approval.excluded:
        return Refusal("took_over", HAD_A_HAND)
    return Right(lender)


def _is_starter(user: User, approval: Approval) -> bool:
    return approval.starter_excluded and approval.starter_id == user.pk


def is_party(user: User, approval: Approval) -> bool:
    """Whether a request is about something this person had a hand in, so that others must judge it."""
    return _is_starter(user, approval) or user.pk in approval.excluded


def decides_themself(user: User, approval: Approval, is_member: bool | None = None) -> bool:
    """Whether this person may decide about this request by their own right. `is_member`: as in `may_decide`."""
    return isinstance(right_of(user, approval, is_member, is_lent=False), Right)


def _lent(user: User, approval: Approval, lock: bool) -> User | Refusal | None:
    """Who has lent this person the right to decide this request, or why that right does not count. None: nobody has."""
    found = entitlement.covering(approval).filter(deputy=user).select_related("lender").order_by("created_at", "pk")
    delegations = list(found.select_for_update(of=("self",)) if lock else found)
    if not delegations:
        return None
    barred = entitlement.barred(approval) | entitlement.spent(approval)
    lender = next((each.lender for each in delegations if each.lender_id not in barred), None)
    if lender is not None:
        return lender
    name = delegations[0].lender.get_full_name() or delegations[0].lender.get_username()
    return Refusal("lender_barred", f"You would decide for {name}, who has no say in this or has already had it.")


def _stands() -> QuerySet[Decision]:
    approval = Given("approval", UUIDField())
    asked = Approval.groups.through.objects.filter(approval=approval)
    own = User.groups.through.objects.filter(user=OuterRef("user"), group__in=asked.values("group"))
    found = Decision.objects.filter(approval=approval, undone_at__isnull=True)
    return found.select_related("user", "on_behalf_of").annotate(is_member=Exists(own))


_DECIDED = Prepared(_stands)
_ON_RECORD = Prepared(lambda: _stands().annotate(**as_recorded.of_decision()))


def decided(approval: Approval) -> list[Decision]:
    """The decisions on a request that were not taken back, with who made them and, as `is_member`, whether they are in
    one of its groups. For callers that need several answers from them.
    """
    return _of(approval, _DECIDED)


def on_record(approval: Approval) -> list[Decision]:
    """The same, with what the ledger says of each, for `is_bound`. The transaction that decides has not written it."""
    return _of(approval, _ON_RECORD)


def _of(approval: Approval, query: Prepared[Decision]) -> list[Decision]:
    given = query.rows(approval=approval.pk)
    for each in given:
        each.approval = approval
    return given


def deciders_still_allowed(approval: Approval, given: Sequence[Decision] | None = None) -> bool:
    """Whether everybody whose approval counts still has the right to give it. For a customer, the rules say so."""
    given = decided(approval) if given is None else given
    standing = [each for each in given if each.user_id is not None and each.type != DecisionType.REJECT]
    return all(_still_allowed(each, approval) for each in standing)


def _still_allowed(decision: Decision, approval: Approval) -> bool:
    """Whether somebody still has the very right they decided by. Another right they now have does not count."""
    assert decision.user is not None
    if decision.on_behalf_of is None:
        return decides_themself(decision.user, approval, getattr(decision, "is_member", None))
    barred = entitlement.barred(approval)
    if not decision.user.is_active or not decision.user.has_perm("approvals.decide_approval"):
        return False
    lent = entitlement.covering(approval).filter(deputy=decision.user, lender=decision.on_behalf_of)
    return not {decision.user.pk, decision.on_behalf_of.pk} & barred and lent.exists()


def is_bound(approval: Approval, given: Sequence[Decision] | None = None) -> bool:
    """Whether the arguments on the row are, byte for byte, what enough people approved. `given`: as `on_record` has it.

    The digest is recomputed from the text, and the ledger must have what people decided, so that rows changed by hand
    do not pass.
    """
    given = on_record(approval) if given is None else given
    is_this = approval.final_digest != "" and approval.final_digest == final_digest(approval)
    return is_this and is_enough(approval, given) and _is_recorded(approval, given)


def _is_recorded(approval: Approval, given: Sequence[Decision]) -> bool:
    approving: list[Any] = [each for each in given if each.type in (DecisionType.APPROVE, DecisionType.EDIT)]
    is_used = approval.state == Approval.State.USED
    return bool(approving) and all(
        each.is_recorded and each.was_used == is_used and not each.was_ended for each in approving
    )


def overdue(limit: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Requests whose time is up, as (approval, run): undecided too long, or approved and not used in time."""
    return _overdue(limit).rows()


@functools.cache
def _overdue(limit: int) -> Prepared[tuple[uuid.UUID, uuid.UUID]]:
    undecided = Q(state__in=Approval.UNDECIDED, expires_at__lte=Now())
    unused = Q(state=Approval.State.APPROVED, use_by__lte=Now())
    found = Approval.objects.filter(undecided | unused).order_by("expires_at")
    return Prepared(lambda: found.values_list("pk", "run_id")[:limit])


def people_needed(ruling: Ruling) -> int:
    """How many people must approve: at least two at critical risk, unless only one person may decide at all."""
    if ruling.risk != Risk.CRITICAL:
        return ruling.approvals_needed
    return max(ruling.approvals_needed, 2 if deciders().count() > 1 else 1)


def terms_of(ruling: Ruling) -> Terms:
    """The thresholds a request is made with. At critical risk, none that one person alone can reach."""
    terms = Terms.from_json(ruling.terms)
    return thresholds.floor(terms, ruling.risk, ruling.risk == Risk.CRITICAL and bool(terms) and deciders().count() > 1)


def progress(
    approval: Approval, besides: Sequence[tuple[int, int | None]] = (), given: Sequence[Decision] | None = None
) -> Count:
    """How far a request with thresholds has come. `besides`: its reader, and whose right they would use."""
    terms = Terms.from_json(approval.terms).with_added(added_to(approval))
    deciding = _counting(approval, approval.risk, decided(approval) if given is None else given)
    return counting.count(approval, terms, approval.about, deciding, besides)


def marks_of(approval: Approval) -> dict[str, Any]:
    """What marks a request in the record: the customer answers it, or one person alone decides a critical one."""
    if approval.asks_customer:
        return {"kind": str(approval.kind)}
    alone = approval.risk == Risk.CRITICAL and approval.approvals_needed < 2
    return {"one_person": True} if alone else {}


def meets(approval: Approval, ruling: Ruling, given: Sequence[Decision] | None = None) -> bool:
    """Whether the approvals given would be enough under the terms of another ruling.

    A confirmation meets what is asked of the customer; the caller knows whether people must be asked too.
    """
    if approval.mocked:
        return True  # an eval stands for as many people as are asked
    if approval.asks_customer:
        return ruling.customer
    if ruling.customer and not confirmed(approval):
        return False
    risk = max(approval.risk, ruling.risk, key=RISK_ORDER.index)
    counted = _counting(approval, risk, decided(approval) if given is None else given)
    needed = step_up.needed(ruling.assurance, risk, approval.effect_class)
    deciding = [each for each in counted if each.type in ruling.allowed_decisions and each.user_id is not None]
    deciding = [each for each in deciding if step_up.is_enough(each.assurance, needed)]
    excluded = {approval.starter_id} - {None} if ruling.starter_excluded else set()
    deciding = [each for each in deciding if not excluded & {each.user_id, each.on_behalf_of_id}]
    if ruling.terms:
        terms = terms_of(ruling).with_added(added_by(approval, ruling))
        count = counting.count(approval, terms, ruling.about, deciding, excluded=excluded, risk=risk)
        return count.is_enough and not count.is_denied
    if approval.terms and counting.rejections(approval):
        return False
    if ruling.groups:
        groups = [*ruling.groups, *added_by(approval, ruling)]
        deciding = entitlement.within(deciding, groups, approval.tool, ruling.risk)
    return len(deciding) >= people_needed(ruling)


def added_to(approval: Approval) -> list[int]:
    """The groups that may decide about a request because of escalation steps already taken."""
    taken = approval.escalation[: approval.escalated]
    return [step["group_id"] for step in taken if step.get("group_id") is not None]


def added_by(approval: Approval, ruling: Ruling) -> list[int]:
    """The groups that escalation has added to a request, if another ruling lets them decide as early."""
    earliest = {step.group: step.after for step in ruling.escalation if step.group}
    taken = [step for step in approval.escalation[: approval.escalated] if step.get("group_id") is not None]
    return [
        step["group_id"] for step in taken if step["group"] in earliest and earliest[step["group"]] <= step["after"]
    ]


def confirmed(approval: Approval) -> bool:
    """Whether the customer has confirmed the very call that people are asked about, for this execution."""
    return is_confirmed(approval.execution_id, approval.final_digest or approval.action_digest)


def is_confirmed(execution_id: uuid.UUID, digest: str) -> bool:
    """Whether the last used request about a call is the customer's confirmation of exactly this."""
    used = Approval.objects.filter(as_recorded.was_used(), execution_id=execution_id, state=Approval.State.USED)
    used = used.order_by("-used_at", "-pk")
    last = used.values_list("kind", "final_digest").first()
    return last == (ApprovalKind.CONFIRMATION, digest)


def is_enough(approval: Approval, given: Sequence[Decision] | None = None) -> bool:
    """Whether enough people approved the call as it would run now.

    At high and critical risk, people who changed the arguments, or had the agent propose them, do not count.
    """
    given = decided(approval) if given is None else given
    if approval.terms and not approval.mocked:
        count = progress(approval, given=given)
        return count.is_enough and not count.is_denied
    needed = 1 if approval.mocked else approval.approvals_needed
    return len(_counting(approval, approval.risk, given)) >= needed


def is_rejected(approval: Approval) -> bool:
    """Whether enough people have rejected a request: one, unless its thresholds want more."""
    if approval.mocked:
        return approval.decisions.filter(type=DecisionType.REJECT, undone_at__isnull=True).exists()
    return not approval.terms or progress(approval).is_denied


def approving(approval: Approval, given: Sequence[Decision]) -> list[Decision]:
    """The standing decisions that count as approvals of the call as it waits."""
    return _counting(approval, approval.risk, given)


def _counting(approval: Approval, risk: str, given: Sequence[Decision]) -> list[Decision]:
    """The standing decisions that approve the call as it would run now."""
    counts = [
        each
        for each in given
        if each.type in (DecisionType.APPROVE, DecisionType.EDIT)
        and each.action_digest == approval.final_digest
        and each.mocked == approval.mocked
    ]
    if approval.mocked:
        return counts
    if approval.assurance_needed:
        enough = step_up.enough_for(approval.assurance_needed)
        counts = [each for each in counts if each.assurance in enough]
    if risk not in HIGH_RISKS:
        return counts
    editors = entitlement.editors(approval)
    return [
        each for each in counts if each.type != DecisionType.EDIT and not editors & {each.user_id, each.on_behalf_of_id}
    ]


def who_said(approvals: Collection[uuid.UUID]) -> dict[uuid.UUID, set[int]]:
    """Who rejected or answered each of these requests, and whose right they used: the agent was told their words."""
    said = Decision.objects.filter(
        approval__in=approvals, type__in=(DecisionType.REJECT, DecisionType.RESPOND), undone_at__isnull=True
    )
    found: dict[uuid.UUID, set[int]] = {}
    for approval, *pair in said.values_list("approval", "user", "on_behalf_of"):
        found.setdefault(approval, set()).update(pk for pk in pair if pk is not None)
    return found
