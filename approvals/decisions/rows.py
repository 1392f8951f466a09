"""Shared by the other files here: a request, read and locked."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Case, Exists, F, IntegerField, OuterRef, QuerySet, Subquery, UUIDField, Value, When
from django.db.models.functions import Coalesce

from approvals import follow_ups, notify, nudges
from approvals.cards import CARD_COLUMNS
from approvals.clock import Now
from approvals.models import Approval, Claim, Viewer
from approvals.prepared import Given, Prepared
from approvals.updating import RowUpdate

_APPROVAL, _DECIDER = Given("approval", UUIDField()), Given("decider", IntegerField())


def _locked() -> QuerySet[Approval]:
    return Approval.objects.select_for_update().annotate(database_now=Now()).filter(pk=_APPROVAL).order_by()


def _locked_for_decider() -> QuerySet[Approval]:
    theirs = {"approval": OuterRef("pk"), "user": _DECIDER}
    asked = Approval.groups.through.objects.filter(approval=_APPROVAL)
    own = User.groups.through.objects.filter(user=_DECIDER, group__in=asked.values("group"))
    return _locked().annotate(
        shown_to_them=Subquery(Viewer.objects.filter(**theirs).values("shown_at")[:1]),
        claimed_by_them=Subquery(Claim.objects.filter(**theirs).values("claimed_at")[:1]),
        is_member=Exists(own),
    )


_LOCKED, _LOCKED_FOR_DECIDER = Prepared(_locked), Prepared(_locked_for_decider)
# The lock's holder has read the whole row, and nobody else has changed it since. What people were shown, and the terms
# they decide under, never change.
_WRITE = RowUpdate(
    Approval.objects.all,
    [
        field.name
        for field in Approval._meta.concrete_fields
        if not field.primary_key and field.attname not in CARD_COLUMNS
    ],
)


def locked(approval_id: uuid.UUID, decider: User | None = None) -> Approval | None:
    """A request and the database's time. For a decider, also since when they have seen and claimed it, and as
    `is_member` whether they are in one of its groups.
    """
    if decider is None:
        return _LOCKED.first(approval=approval_id)
    return _LOCKED_FOR_DECIDER.first(approval=approval_id, decider=decider.pk)


def write(approval: Approval) -> None:
    """Store a request that was read by `locked` and then changed."""
    _WRITE([approval])


def close(found: Any, state: str) -> bool:
    """End requests. One that ended earlier keeps its first ending, as an approval that expires unused does."""
    return bool(
        found.update(
            state=state,
            version=F("version") + 1,
            ended_as=Case(When(ended_at__isnull=True, then=Value(state)), default=F("ended_as")),
            ended_at=Coalesce("ended_at", Now()),
        )
    )


def tell(approval_ids: Sequence[uuid.UUID], actor_id: int | None = None) -> None:
    """Tell the people who were told of these requests what became of them."""
    if follow_ups.queue(approval_ids, actor_id):
        transaction.on_commit(nudges.nudge, robust=True)


def tell_anew(approval_id: uuid.UUID, actor_id: int) -> None:
    """The same for a request that waits again. People who had not been told of it yet are told now."""
    if notify.queue_again(approval_id):
        transaction.on_commit(nudges.nudge, robust=True)
    tell([approval_id], actor_id)
