"""What a person is told right after deciding."""

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import switches
from agentapp.console import in_the_way
from agentapp.console.shown import execution_of
from approvals.models import Approval, Decision


def of(user: User, approval_id: uuid.UUID) -> dict[str, Any] | None:
    """What was decided, and until when it can be undone. None: there is no such decision."""
    mine = (
        Decision.objects.select_related("approval__execution__run")
        .annotate(is_anything_stopped=switches.any_engaged())
        .filter(approval_id=approval_id, user=user, undone_at__isnull=True)
        .order_by("decided_at")
        .last()
    )
    if mine is None:
        return None
    approval = mine.approval
    word = {"reject": "Rejected", "respond": "Answered"}.get(mine.type, "Approved")
    if approval.state in Approval.UNDECIDED:
        return {"approval": approval, "word": f"{word}, others are needed too:", "until": None, "mine": mine}
    until = approval.runs_at if approval.used_at is None else None
    held = until is not None and until > timezone.now()
    approval.is_anything_stopped = mine.is_anything_stopped  # type: ignore[attr-defined]
    stopped = in_the_way.of(approval, execution_of(approval), "held") if held else []
    return {"approval": approval, "word": word, "until": until if held else None, "mine": mine, "stopped": stopped}
