"""Tells individual people, by mail and chat, of what concerns them: who is told of what.

Rows are made in the transaction of the change they report; `notify` sends them like all others. If somebody is away,
their deputy is told instead. Nobody is told of a request they could not open.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, Max, OuterRef, QuerySet

from approvals import entitlement, nudges
from approvals.cards import Card
from approvals.clock import Now
from approvals.manners import CHAT, MAIL, Manners, manners, quiet_until, wanting
from approvals.models import Approval, ApprovalKind, Channel, Claim, Comment, Decision, DecisionType, Notification
from approvals.policy import risks_from

Kind = Notification.Kind
# What is due within this time is due soon.
DUE_SOON = timedelta(minutes=15)
type Ways = Collection[str]


def audience(cards: Sequence[Card]) -> list[dict[int, Ways]]:
    """For each card, the people who are told that it waits, and how: they want it, at this risk, and may decide."""
    wanted = wanting(Kind.WAITING)
    if not wanted:
        return [{} for _ in cards]
    able = entitlement.deciders().filter(pk__in=wanted)
    lent = Exists(entitlement.delegations().filter(deputy=OuterRef("pk")))
    teams: dict[int, set[int]] = defaultdict(set)
    ways: dict[int, Ways] = {}
    is_lent = False
    found = able.annotate(lent=lent).values_list("pk", "email", "groups", "lent").order_by("pk")
    for user_id, email, group_id, lends in found:
        teams[user_id] |= {group_id} - {None}
        ways[user_id] = _that_reach(wanted[user_id].ways, email)
        is_lent = is_lent or lends
    told = []
    for card in cards:
        deputies = _deputies(card) if is_lent else frozenset()
        asked = [user_id for user_id, groups in teams.items() if _is_asked(card, user_id, groups, deputies)]
        told.append(
            {user_id: ways[user_id] for user_id in asked if card.risk in risks_from(wanted[user_id].least_risk)}
        )
    return told


def _that_reach(ways: Ways, email: str) -> Ways:
    """Of the ways that somebody wants, those that reach them."""
    return [way for way in ways if way != MAIL or email]


def _is_asked(card: Card, user_id: int, groups: set[int], deputies: Collection[int]) -> bool:
    if card.kind == ApprovalKind.CONFIRMATION:
        return False
    if card.starter_excluded and card.starter_id == user_id:
        return False
    return not card.groups or bool(groups & set(card.groups)) or user_id in deputies


def _deputies(card: Card) -> frozenset[int]:
    """The people to whom the right to decide this is lent."""
    barred = {*card.excluded, *([card.starter_id] if card.starter_excluded and card.starter_id is not None else [])}
    return entitlement.deputies_of_call(card.groups, card.tool, card.risk, barred)


def tell_again(approval_id: uuid.UUID, user_id: int, kind: str) -> None:
    """Queue news that may have been sent before about the same request, such as that it was handed to somebody: each
    time it is separate news. The caller holds the request.
    """
    told = Notification.objects.filter(approval=approval_id, user=user_id, kind=kind)
    earlier: int | None = told.aggregate(last=Max("step"))["last"]
    ways = manners([user_id])[user_id].ways(kind)
    _queue([(approval_id, user_id, ways)], kind=kind, step=0 if earlier is None else earlier + 1)


def tell(pairs: Sequence[tuple[uuid.UUID, int]], kind: str) -> None:
    """Queue news about requests, as (request, person), for people who want this kind. Nobody is told the same thing
    twice.

    Call it in the transaction of what it tells of.
    """
    known = manners({user_id for _, user_id in pairs})
    _queue([(approval_id, user_id, known[user_id].ways(kind)) for approval_id, user_id in pairs], kind=kind)


def tell_team(approval: Approval, users: QuerySet[User], kind: str, step: int) -> int:
    """Queue news of an escalation step for people who want it at this risk. Returns how many.

    Call it in the transaction of what it tells of.
    """
    emails = dict(users.values_list("pk", "email"))
    told = [
        (approval.pk, user_id, _that_reach(one.ways(kind), emails[user_id]))
        for user_id, one in manners(emails).items()
        if approval.risk in risks_from(one.least_risk)
    ]
    return _queue(told, kind=kind, step=step)


def tell_of_mention(comment: Comment, user_ids: Sequence[int]) -> None:
    """Queue the news that a comment mentions these people, if they want it. Each comment is separate news."""
    known = manners(user_ids) if user_ids else {}
    told = [(comment.approval_id, user_id, known[user_id].ways(Kind.MENTIONED)) for user_id in user_ids]
    _queue(told, kind=Kind.MENTIONED, comment=comment)


def tell_of_failures(approval_ids: Sequence[uuid.UUID]) -> None:
    """Tell the people who approved these calls that they failed."""
    approving = Decision.objects.filter(
        approval__in=approval_ids, undone_at__isnull=True, type__in=[DecisionType.APPROVE, DecisionType.EDIT]
    )
    pairs = approving.values_list("approval_id", "user_id")
    tell([(approval_id, user_id) for approval_id, user_id in pairs if user_id is not None], Kind.FAILED)


def tell_of_due(limit: int) -> int:
    """Tell people who claimed a request, and want to know, that its time is nearly up. Returns how many were found."""
    ways = {MAIL, CHAT} if personal_channel() else {MAIL}
    wanted = [user_id for user_id, wish in wanting(Kind.DUE_SOON).items() if ways & set(wish.ways)]
    told = Notification.objects.filter(kind=Kind.DUE_SOON, approval=OuterRef("approval"), user=OuterRef("user"))
    due = Claim.objects.filter(
        user__in=wanted, approval__state__in=Approval.UNDECIDED, approval__expires_at__gt=Now(),
        approval__expires_at__lte=Now() + DUE_SOON,
    ).exclude(Exists(told))  # fmt: skip
    found = [
        (approval_id, user_id)
        for approval_id, user_id in due.values_list("approval_id", "user_id")[:limit]
        if user_id is not None
    ]
    if found:
        tell(found, Kind.DUE_SOON)
    return len(found)


def manners_of_queued() -> dict[int, Manners]:
    """How people who have something waiting to be sent want to be told."""
    queued = Notification.objects.filter(state=Notification.State.QUEUED, user__isnull=False)
    users = list(queued.values_list("user_id", flat=True).order_by().distinct())
    return manners([user_id for user_id in users if user_id is not None]) if users else {}


def in_quiet_hours(known: Mapping[int, Manners], now: datetime) -> set[int]:
    """Which of these people are not to be disturbed now."""
    return {user_id for user_id, one in known.items() if quiet_until(one, now)}


def personal_channel() -> Channel | None:
    """The channel for individual people that is in use."""
    return Channel.objects.filter(personal=True, active=True).first()


def rows_for(told: Iterable[tuple[uuid.UUID, int, Ways]], chat: Channel | None, **about: Any) -> list[Notification]:
    """A row for each way that somebody is told of a request, not stored yet. `about`: what it is about."""
    over = {MAIL: None, CHAT: chat}
    return [
        Notification(approval_id=approval_id, user_id=user_id, channel=over[way], **about)
        for approval_id, user_id, ways in told
        for way in sorted(ways)
        if way == MAIL or chat is not None
    ]


def _queue(told: Sequence[tuple[uuid.UUID, int, Ways]], **about: Any) -> int:
    """Queue one piece of news. Returns how many people it is for."""
    chat = personal_channel() if any(CHAT in ways for _, _, ways in told) else None
    rows = rows_for(told, chat, created_at=Now(), **about)
    Notification.objects.bulk_create(rows, ignore_conflicts=True)
    if rows:
        transaction.on_commit(nudges.nudge, robust=True)
    return len({row.user_id for row in rows})
