"""The tables of approvals, a file per noun. Each has one writer, named in its file.

What the database can refuse, it refuses: each constraint says in a sentence what it forbids.
"""

from approvals.models.approvals import Approval, Decision, Question
from approvals.models.attention import Absence, Claim, Snooze, Viewer
from approvals.models.choices import (
    AnsweredBy,
    ApprovalKind,
    DecisionType,
    EffectClass,
    Risk,
    Verdict,
    every_decision,
)
from approvals.models.events import Event
from approvals.models.notifications import Channel, Notification
from approvals.models.rules import Rule

__all__ = [
    "Absence",
    "AnsweredBy",
    "Approval",
    "ApprovalKind",
    "Channel",
    "Claim",
    "Decision",
    "DecisionType",
    "EffectClass",
    "Event",
    "Notification",
    "Question",
    "Risk",
    "Rule",
    "Snooze",
    "Verdict",
    "Viewer",
    "every_decision",
]
