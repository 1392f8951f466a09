"""Asks people: pending requests, and the notifications about them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import prefetch_related_objects

from approvals import approval_events, nudges, people
from approvals.cards import Card, concerns, pending
from approvals.inserting import RowInsert
from approvals.models import Approval, Channel, Notification
from approvals.standing import marks_of

_ADD = RowInsert(Approval)
_ADD_GROUPS = RowInsert(Approval.groups.through)
_ADD_NOTIFICATIONS = RowInsert(Notification)


def request(
    cards: Sequence[Card],
    now: datetime,
    channels: Sequence[Channel] = (),
    audience: Sequence[Mapping[int, people.Ways]] = (),
) -> list[Approval]:
    """Ask people about calls: pending rows, their groups, and a notification for each channel and for each of the
    audience, sent after the commit.

    `audience` has the people for each card and how to tell them, as `people.audience` finds them. Nobody is told of a
    mocked run's request.
    """
    approvals = [pending(card, now) for card in cards]
    _name_groups(approvals)
    prefetch_related_objects(list(channels), "groups")
    _ADD(approvals)
    through = Approval.groups.through
    links = [
        through(approval_id=approval.pk, group_id=group)
        for approval, card in zip(approvals, cards, strict=True)
        for group in card.groups
    ]
    _ADD_GROUPS(links)
    notifications = [
        Notification(approval=approval, channel=channel, created_at=now)
        for approval, card in zip(approvals, cards, strict=True)
        for channel in channels
        if concerns(channel, card) and not card.mocked
    ]
    told = [
        (approval.pk, user_id, ways)
        for approval, them in zip(approvals, audience, strict=False)
        for user_id, ways in them.items()
        if not approval.mocked
    ]
    chat = next((channel for channel in channels if channel.personal), None)
    notifications += people.rows_for(told, chat, created_at=now)
    _ADD_NOTIFICATIONS(notifications)
    if notifications:
        transaction.on_commit(nudges.nudge, robust=True)
    for approval in approvals:
        approval_events.record(
            approval,
            "requested",
            {
                "tool_version": approval.tool_version,
                "action_digest": approval.action_digest,
                "view_digest": approval.view_digest,
                "rule": approval.rule,
                **({"rule_version": approval.rule_version} if approval.rule_version else {}),
                **({"rule_digest": approval.rule_digest} if approval.rule_digest else {}),
                "reason": approval.reason,
                "expires_at": approval.expires_at.isoformat(),
                "supersedes": str(approval.supersedes_id or ""),
                "told": _channels_told(approval, notifications),
                **_times_of(approval),
                **marks_of(approval),
            },
        )
    return approvals


def _channels_told(approval: Approval, notifications: Iterable[Notification]) -> list[str]:
    return [n.channel.name for n in notifications if n.channel and n.user_id is None and n.approval_id == approval.pk]


def _name_groups(approvals: Sequence[Approval]) -> None:
    """Bind escalation steps to their groups: a group given the same name later is a different one."""
    steps = [step for approval in approvals for step in approval.escalation if step["group"]]
    if not steps:
        return
    known = dict(Group.objects.filter(name__in={step["group"] for step in steps}).values_list("name", "pk"))
    for step in steps:
        step["group_id"] = known.get(step["group"])


def _times_of(approval: Approval) -> dict[str, Any]:
    """The facts about the target and the steps, if there are any."""
    found: dict[str, Any] = {}
    if approval.target_at is not None:
        found["target_at"] = approval.target_at.isoformat()
    if approval.escalation:
        found["escalation"] = [{name: step[name] for name in ("at", "group", "remind")} for step in approval.escalation]
    return found
