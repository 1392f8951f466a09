"""Telling single people of what is theirs, by mail: who is told of what, and what they get to read.

Rows are made in the transaction of what they tell of, and sent by `notify` like every other. Who is away has a
deputy, who is told instead. Nobody is told of a request that they could not open.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef

from approvals import absences, entitlement, mail
from approvals.cards import Card
from approvals.channels.base import ChannelError
from approvals.clock import Now
from approvals.manners import Manners, manners, quiet_until, wanting
from approvals.models import Approval, ApprovalKind, Claim, Comment, Decision, DecisionType, Notification
from approvals.policy import risks_from
from approvals.standing import Refusal, Right, may_decide, right_of

Kind = Notification.Kind
# What is due within this time is due soon.
DUE_SOON = timedelta(minutes=15)
# News about a request that waits is none once it no longer does.
_WHILE_WAITING = (Kind.WAITING, Kind.HANDED, Kind.DUE_SOON, Kind.ANSWERED, Kind.REMINDED, Kind.ESCALATED)


def audience(cards: Sequence[Card]) -> list[list[int]]:
    """For each card the people who are told that it waits: they want to be, at this risk, and may decide it."""
    wanted = wanting(Kind.WAITING)
    if not wanted:
        return [[] for _ in cards]
    able = User.objects.with_perm("approvals.decide_approval").filter(pk__in=wanted).exclude(email="")
    lent = Exists(entitlement.delegations().filter(deputy=OuterRef("pk")))
    teams: dict[int, set[int]] = defaultdict(set)
    is_lent = False
    for user_id, group_id, lends in able.annotate(lent=lent).values_list("pk", "groups", "lent").order_by("pk"):
        teams[user_id] |= {group_id} - {None}
        is_lent = is_lent or lends
    told = []
    for card in cards:
        deputies = _deputies(card) if is_lent else frozenset()
        asked = [user_id for user_id, groups in teams.items() if _is_asked(card, user_id, groups, deputies)]
        told.append([user_id for user_id in asked if card.risk in risks_from(wanted[user_id])])
    return told


def _is_asked(card: Card, user_id: int, groups: set[int], deputies: Collection[int]) -> bool:
    if card.kind == ApprovalKind.CONFIRMATION:
        return False
    if card.starter_excluded and card.starter_id == user_id:
        return False
    return not card.groups or bool(groups & set(card.groups)) or user_id in deputies


def _deputies(card: Card) -> frozenset[int]:
    """To whom the right to decide about this is lent."""
    barred = {*card.excluded, *([card.starter_id] if card.starter_excluded and card.starter_id is not None else [])}
    return entitlement.deputies_of_call(card.groups, card.tool, card.risk, barred)


def tell(pairs: Sequence[tuple[uuid.UUID, int]], kind: str) -> None:
    """Queue news about requests, as (request, person), to those who want this kind. Nobody is told of one thing twice.

    Belongs into the transaction of what it tells of.
    """
    known = manners({user_id for _, user_id in pairs})
    rows = [
        Notification(approval_id=approval_id, user_id=user_id, kind=kind, created_at=Now())
        for approval_id, user_id in pairs
        if kind in known[user_id].mailed
    ]
    Notification.objects.bulk_create(rows, ignore_conflicts=True)


def tell_team(approval: Approval, user_ids: Iterable[int], kind: str, step: int) -> int:
    """Queue news of an escalation step to those who want it at this risk. Returns how many.

    Belongs into the transaction of what it tells of.
    """
    rows = [
        Notification(approval=approval, user_id=user_id, kind=kind, step=step, created_at=Now())
        for user_id, one in manners(user_ids).items()
        if kind in one.mailed and approval.risk in risks_from(one.least_risk)
    ]
    return len(Notification.objects.bulk_create(rows, ignore_conflicts=True))


def tell_of_mention(comment: Comment, user_ids: Sequence[int]) -> None:
    """Queue the news that a comment mentions these people, to those who want it. Each comment is news of its own."""
    known = manners(user_ids) if user_ids else {}
    rows = [
        Notification(
            approval_id=comment.approval_id, user_id=user_id, kind=Kind.MENTIONED, comment=comment, created_at=Now()
        )
        for user_id in user_ids
        if Kind.MENTIONED in known[user_id].mailed
    ]
    Notification.objects.bulk_create(rows, ignore_conflicts=True)


def tell_of_failures(approval_ids: Sequence[uuid.UUID]) -> None:
    """Tell those who approved these calls that they failed."""
    approving = Decision.objects.filter(
        approval__in=approval_ids, undone_at__isnull=True, type__in=[DecisionType.APPROVE, DecisionType.EDIT]
    )
    pairs = approving.values_list("approval_id", "user_id")
    tell([(approval_id, user_id) for approval_id, user_id in pairs if user_id is not None], Kind.FAILED)


def tell_of_due(limit: int) -> int:
    """Tell those who have claimed a request that its time is nearly up. Returns how many were found."""
    told = Notification.objects.filter(kind=Kind.DUE_SOON).values("approval")
    due = Claim.objects.filter(
        user__isnull=False, approval__state__in=Approval.UNDECIDED, approval__expires_at__gt=Now(),
        approval__expires_at__lte=Now() + DUE_SOON,
    ).exclude(approval__in=told)  # fmt: skip
    found = [
        (approval_id, user_id)
        for approval_id, user_id in due.values_list("approval_id", "user_id")[:limit]
        if user_id is not None
    ]
    if found:
        tell(found, Kind.DUE_SOON)
    return len(found)


def in_quiet_hours(now: datetime) -> list[int]:
    """Of the people that something waits to be sent to, those who are not to be reached now."""
    queued = Notification.objects.filter(state=Notification.State.QUEUED, user__isnull=False)
    users = list(queued.values_list("user_id", flat=True).order_by().distinct())
    return [user_id for user_id, one in manners(users).items() if quiet_until(one, now)] if users else []


def mail_person(notification: Notification) -> None:
    """Mail one piece of news to its person, or to who stands in for them. Raises ChannelError."""
    approval, user = notification.approval, notification.user
    assert user is not None
    if notification.kind in _WHILE_WAITING and approval.state not in Approval.UNDECIDED:
        raise ChannelError("Not sent: the request no longer waits.", permanent=True)
    mention = notification.kind == Kind.MENTIONED
    # A mention is meant for this person, whoever looks after their queue.
    reader = user if mention else _reader(user, approval)
    right = right_of(reader, approval) if notification.kind in _WHILE_WAITING else Right()
    if isinstance(right, Refusal):
        raise ChannelError(f"Not sent to {reader.get_username()}: {right.message}", permanent=True)
    if mention and not entitlement.visible(reader).filter(pk=approval.pk).exists():
        raise ChannelError(f"Not sent: {reader.get_username()} may not see the request any more.", permanent=True)
    if not reader.is_active or not reader.email:
        raise ChannelError(f"Not sent: {reader.get_username()} is switched off or has no address.", permanent=True)
    one = manners([reader.pk]).get(reader.pk, Manners())
    context = {
        "approval": approval,
        "kind": notification.kind,
        "shows": one.shows_arguments,
        "instead_of": user if reader != user else None,
        "lender": right.lender,
        "comment": notification.comment,
        "link": mail.link_to(approval),
    }
    mail.send("person", context, [reader.email])


def send_test(user: User) -> None:
    """Mail somebody that mail reaches them. Raises ChannelError."""
    mail.send("test", {"person": user}, [user.email])


def _reader(user: User, approval: Approval) -> User:
    """The person themself, or while they are away their deputy, if that one may decide about it."""
    deputy = absences.standing_in([user.pk]).get(user.pk)
    return deputy if deputy is not None and may_decide(deputy, approval) is None else user
