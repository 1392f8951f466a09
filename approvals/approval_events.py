"""Facts noted about one request in its run's chain."""

from datetime import datetime
from typing import Any

from approvals import ledger
from approvals.models import Approval

type Data = dict[str, Any]

ABOUT = ("run_id", "execution_id", "tool", "risk")
"""The columns of a request that are read to note a fact about it."""


def record(approval: Approval, what: str, data: Data | None = None, actor: str = ledger.SYSTEM) -> None:
    """Note a fact about one request. If `what` contains a dot, it is a whole event type.

    Every such fact says which request, call and tool it is about and how risky the call is, because the audit trail is
    searched by them.
    """
    subject: Data = {
        "approval": str(approval.pk),
        "execution": str(approval.execution_id),
        "tool": approval.tool,
        "risk": approval.risk,
    }
    type_ = what if "." in what else f"approval.{what}"
    ledger.record(ledger.run_chain(approval.run_id), type_, subject | (data or {}), actor)


def took(approval: Approval, until: datetime) -> Data:
    """How long people took up to a moment, not counting the time for which questions stopped the clock."""
    waited = (until - approval.created_at).total_seconds() - approval.paused_seconds
    return {"took_ms": max(0, round(waited * 1000))}
