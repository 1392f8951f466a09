"""What an endpoint is told about an event: names, states and where to look. Never arguments, nor anything that a
person, a model or a customer said.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from agentapp.models import Run
from agentapp.models.webhooks import TEST_EVENT
from approvals import mail
from approvals.digest import canonical
from approvals.models import Approval, Event

# The fields of an event that are passed on, by the start of its type. All are our own names or codes.
_TOLD = {
    "approval": (),
    "run": ("reason", "for"),
    "tool_call": ("execution", "tool", "attempt"),
    "breaker": ("scope", "name", "threshold", "observed"),
    "switch": ("scope", "name"),
}


def of(events: Sequence[Event]) -> list[str]:
    """The text for each event, in at most two queries."""
    data = [event.data for event in events]
    wanted = [said["approval"] for said in data if "approval" in said]
    approvals = {str(row.pk): row for row in Approval.objects.filter(pk__in=wanted)}
    runs = Run.objects.filter(pk__in={event.run_id for event in events if event.run_id}).only("id", "agent_snapshot")
    agents = {run.pk: str(run.agent_snapshot.get("name", "")) for run in runs}
    return [
        _text(event.type, event.at, _data(event, said, approvals, agents))
        for event, said in zip(events, data, strict=True)
    ]


def for_test(endpoint: str, at: datetime) -> str:
    return _text(TEST_EVENT, at, {"endpoint": endpoint, "link": settings.BASE_URL})


def _text(type: str, at: datetime, data: dict[str, Any]) -> str:
    moment = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return canonical({"type": type, "timestamp": moment, "data": data})


def _data(
    event: Event, said: dict[str, Any], approvals: dict[str, Approval], agents: dict[uuid.UUID, str]
) -> dict[str, Any]:
    kind, _, what = event.type.partition(".")
    told = {name: said[name] for name in _TOLD.get(kind, ()) if name in said}
    # A receiver that keeps these can check later that the ledger still says the same.
    told["event"] = {"chain": event.chain, "seq": event.seq, "hash": event.hash}
    told["state"] = "pending" if event.type in _PENDING else what
    if event.run_id is not None:
        told |= {"run": str(event.run_id), "agent": agents.get(event.run_id, "")}
        told["link"] = f"{settings.BASE_URL}/runs/{event.run_id}/"
    approval = approvals.get(str(said.get("approval", "")))
    if approval is not None:
        told |= {
            "approval": str(approval.pk),
            "reference": approval.reference,
            "execution": str(approval.execution_id),
            "tool": approval.tool,
            "risk": approval.risk,
            "expires_at": approval.expires_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "link": mail.link_to(approval),
        }
    return told


# After these events the request waits for a person.
_PENDING = (
    "approval.requested", "approval.answered", "approval.undone", "approval.breached", "approval.reminded",
    "approval.escalated",
)  # fmt: skip
