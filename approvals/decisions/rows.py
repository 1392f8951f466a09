"""What the other files here share: a request, read and locked."""

import uuid
from typing import Any

from django.db.models import F

from approvals.clock import Now
from approvals.models import Approval


def locked(approval_id: uuid.UUID) -> Approval | None:
    return Approval.objects.select_for_update().annotate(db_now=Now()).filter(pk=approval_id).first()


def close(found: Any, state: str) -> bool:
    return bool(found.update(state=state, version=F("version") + 1))
