"""What the other files here share: a request, read and locked."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from approvals import follow_ups, notify, tasks
from approvals.clock import Now
from approvals.models import Approval


def locked(approval_id: uuid.UUID) -> Approval | None:
    return Approval.objects.select_for_update().annotate(db_now=Now()).filter(pk=approval_id).first()


def close(found: Any, state: str) -> bool:
    return bool(found.update(state=state, version=F("version") + 1))


def tell(approval_ids: Sequence[uuid.UUID], actor_id: int | None = None) -> None:
    """Have those who were told that these requests wait told what has become of them."""
    if follow_ups.queue(approval_ids, actor_id):
        transaction.on_commit(tasks.nudge, robust=True)


def tell_anew(approval_id: uuid.UUID, actor_id: int) -> None:
    """The same of a request that waits again; and whoever had not been told yet is told that it does."""
    if notify.queue_again(approval_id):
        transaction.on_commit(tasks.nudge, robust=True)
    tell([approval_id], actor_id)
