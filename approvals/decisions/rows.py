"""What the other files here share: a request, read and locked."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Case, F, OuterRef, Subquery, Value, When
from django.db.models.functions import Coalesce

from approvals import follow_ups, notify, nudges
from approvals.clock import Now
from approvals.models import Approval, Claim, Viewer


def locked(approval_id: uuid.UUID, decider: User | None = None) -> Approval | None:
    """A request and the database's time; for somebody who decides, since when they have seen and claimed it."""
    found = Approval.objects.select_for_update().annotate(db_now=Now()).filter(pk=approval_id)
    if decider is not None:
        theirs = {"approval": OuterRef("pk"), "user": decider}
        found = found.annotate(
            shown_to_them=Subquery(Viewer.objects.filter(**theirs).values("shown_at")[:1]),
            claimed_by_them=Subquery(Claim.objects.filter(**theirs).values("claimed_at")[:1]),
        )
    return found.first()


def close(found: Any, state: str) -> bool:
    """End requests. One that had ended before keeps how it first did, as an approval that expires unused."""
    return bool(
        found.update(
            state=state,
            version=F("version") + 1,
            ended_as=Case(When(ended_at__isnull=True, then=Value(state)), default=F("ended_as")),
            ended_at=Coalesce("ended_at", Now()),
        )
    )


def tell(approval_ids: Sequence[uuid.UUID], actor_id: int | None = None) -> None:
    """Have those who were told that these requests wait told what has become of them."""
    if follow_ups.queue(approval_ids, actor_id):
        transaction.on_commit(nudges.nudge, robust=True)


def tell_anew(approval_id: uuid.UUID, actor_id: int) -> None:
    """The same of a request that waits again; and whoever had not been told yet is told that it does."""
    if notify.queue_again(approval_id):
        transaction.on_commit(nudges.nudge, robust=True)
    tell([approval_id], actor_id)
