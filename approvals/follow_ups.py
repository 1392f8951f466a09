"""Tells people who heard that a request waits what became of it: queues the messages that follow.

Only sent messages are followed up. A channel that can change its messages changes each of them. Elsewhere one more
message follows, for people who want that. `notify` sends these, like every other notification.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet, UUIDField

from approvals import channels, outcomes
from approvals.clock import Now
from approvals.manners import manners
from approvals.models import Approval, Notification
from approvals.prepared import Given, Prepared

Kind = Notification.Kind
# Kinds that say a request waits. Other news stays true, whatever becomes of it.
WHILE_WAITING = (Kind.WAITING, Kind.HANDED, Kind.DUE_SOON, Kind.ANSWERED, Kind.REMINDED, Kind.ESCALATED)

_READ = (
    "pk", "approval_id", "approval__state", "approval__version", "channel_id", "channel__kind", "channel__follows_up",
    "user_id", "receipt",
)  # fmt: skip


def _sent(about: Q) -> QuerySet[Notification, dict[str, Any]]:
    sent = Notification.objects.filter(about, state=Notification.State.SENT, kind__in=WHILE_WAITING)
    read: QuerySet[Notification, dict[str, Any]] = sent.order_by("created_at", "pk").values(*_READ)
    return read


_SENT = Prepared(lambda: _sent(Q(approval=Given("approval", UUIDField()))))


def queue(approval_ids: Sequence[uuid.UUID], actor_id: int | None = None) -> int:
    """Queue what follows the messages about these requests, which have just changed. Returns how many rows.

    Call it in the transaction of the change. If nothing was sent it is one query. People are not told of what they did
    themselves (`actor_id`).
    """
    told = _SENT.rows(approval=approval_ids[0]) if len(approval_ids) == 1 else list(_sent(Q(approval__in=approval_ids)))
    rows = [_following(each) for each in _followed(told, actor_id)] if told else []
    if rows:
        # Nobody is told of one outcome twice, whoever noticed it.
        Notification.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def catch_up(approval_id: uuid.UUID) -> int:
    """After sending a message, queue its follow-up if the request was decided meanwhile.

    A decider holds the row's lock until they have looked at what was sent, so one of the two sees the other.
    """
    with transaction.atomic():
        approval = Approval.objects.select_for_update().only("state").get(pk=approval_id)
        return queue([approval_id]) if approval.state not in Approval.UNDECIDED else 0


def _followed(told: list[dict[str, Any]], actor_id: int | None) -> list[dict[str, Any]]:
    """The sent messages that another message follows."""
    wanting = {each["user_id"] for each in told if each["user_id"] is not None and not is_edited(each)} - {actor_id}
    known = manners(wanting) if wanting else {}
    found, threads = [], set()
    for each in told:
        user_id, thread = each["user_id"], (each["approval_id"], each["channel_id"], each["user_id"])
        if is_edited(each):
            found.append(each)
        elif thread not in threads:
            threads.add(thread)
            wanted = known[user_id].follow_ups if user_id in known else user_id is None and each["channel__follows_up"]
            found += [each] if wanted else []
    return found


def is_edited(told: dict[str, Any]) -> bool:
    """Whether a sent message is itself changed."""
    return bool(told["receipt"]) and channels.edits(told["channel__kind"])


def _following(told: dict[str, Any]) -> Notification:
    return Notification(
        approval_id=told["approval_id"],
        channel_id=told["channel_id"],
        user_id=told["user_id"],
        kind=Kind.FOLLOWED,
        follows_id=told["pk"],
        outcome=outcomes.outcome_of(told["approval__state"]),
        version=told["approval__version"],
        created_at=Now(),
    )
