"""What happened to one request, in words, from the ledger."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from approvals import ledger
from approvals.models import Approval, Event

MAX_LINES = 40
_USER = re.compile(r"^user:(\d+):")
_TYPES = (
    "approval.requested", "approval.changed", "approval.approved", "approval.rejected", "approval.responded",
    "approval.undone", "approval.used", "approval.expired", "approval.withdrawn", "approval.superseded",
    "tool_call.started", "tool_call.completed", "tool_call.outcome_unknown", "tool_call.outcome_resolved",
    "tool_call.reopened", "tool_call.late_answer",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of a request's history."""

    icon: str
    words: str
    at: datetime


def history(approval: Approval) -> list[Entry]:
    """The lines of one request, oldest first. Names come with the decisions, which are at hand."""
    about = Q(body__contains=str(approval.pk)) | Q(body__contains=str(approval.execution_id))
    events = Event.objects.filter(about, chain=ledger.run_chain(approval.run_id), type__in=_TYPES)
    names = {decision.user_id: _name(decision.user) for decision in approval.decisions.all()}
    entries = []
    for event in events.order_by("seq")[:MAX_LINES]:
        data = event.data
        if data.get("approval") not in (None, "", str(approval.pk)):
            continue
        entries.extend(_entries(event, data, _who(event.actor, names)))
    return entries


def _entries(event: Event, data: dict[str, Any], who: str) -> list[Entry]:
    icon, words = _words(event.type, data, who)
    entries = [Entry(icon, words, event.at)]
    if event.type == "approval.requested" and data.get("told"):
        entries.append(Entry("bell", f"Told over {', '.join(data['told'])}", event.at))
    return entries


def _words(type_: str, data: dict[str, Any], who: str) -> tuple[str, str]:
    changed = " with changes" if data.get("edited") else ""
    status = str(data.get("status", ""))
    rule = data.get("rule") or "policy"
    ended = (
        ("check", "The call succeeded") if status == "ok" else ("alert", f"The call ended: {status.replace('_', ' ')}")
    )
    return {
        "approval.requested": ("flag", f"Stopped by {rule}"),
        "approval.changed": ("check", f"{who} approved{changed}; one more is needed"),
        "approval.approved": ("check", f"{who} approved{changed}"),
        "approval.rejected": ("x", f"{who} rejected it"),
        "approval.responded": ("msg", f"{who} answered in the tool's place"),
        "approval.undone": ("undo", f"{who} took the decision back"),
        "approval.used": ("zap", "A worker took it"),
        "approval.expired": ("timer", f"Expired: {data.get('reason', '')}"),
        "approval.withdrawn": ("stop", f"Withdrawn: {data.get('reason', '')}"),
        "approval.superseded": ("retry", f"Replaced: {data.get('reason', '')}"),
        "tool_call.started": ("play", "The call began"),
        "tool_call.completed": ended,
        "tool_call.outcome_unknown": ("question", "Outcome unknown: a worker stopped in the middle"),
        "tool_call.outcome_resolved": ("check", f"{who} said what became of it"),
        "tool_call.reopened": ("retry", f"{who} asked for it again"),
        "tool_call.late_answer": ("clock", "The tool's answer came late"),
    }[type_]  # fmt: skip


def _who(actor: str, names: dict[int, str]) -> str:
    found = _USER.match(actor)
    if found is None:
        return {"system": "The system", "model": "The model"}.get(actor, actor)
    return names.get(int(found[1])) or actor[found.end() :]


def _name(user: User) -> str:
    return user.get_full_name() or user.get_username()
