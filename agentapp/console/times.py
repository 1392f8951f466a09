"""What a card says about time: by when to decide, and what happens while nobody does."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from agentapp.console import formats
from approvals.models import Approval


@dataclass(frozen=True)
class Step:
    """One escalation step of a request: what it does, when, and whether that has happened."""

    words: str
    at: datetime
    is_taken: bool


def of(approval: Approval) -> dict[str, Any]:
    """The times of a request. No query: its groups are already loaded."""
    now = timezone.now()
    is_late = approval.target_at is not None and approval.target_at <= now
    return {
        "over_target": formats.over(approval.target_at, now) if is_late and approval.target_at else "",
        "steps": [_step(step, approval.groups.all()) for step in approval.escalation],
    }


def _step(step: dict[str, Any], groups: Any) -> Step:
    taken = step["taken_at"]
    at = datetime.fromisoformat(taken or step["at"])
    said = [("Those who may decide were reminded" if taken else "Those who may decide are reminded")] * step["remind"]
    if step["group"]:
        said.append(_added(step["group"], bool(taken), bool(groups)))
    return Step(", and ".join(said), at, bool(taken))


def _added(group: str, is_taken: bool, has_groups: bool) -> str:
    if has_groups:
        return f"{group} may decide too"
    return f"{group} was told" if is_taken else f"{group} is told"
