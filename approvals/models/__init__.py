"""The tables of approvals, one file per noun. Each table has one writer, named in its file.

The database refuses what it can: each constraint says in one sentence what it forbids.
"""

from approvals.models.approvals import Approval
from approvals.models.attention import Absence, Claim, Snooze, Viewer
from approvals.models.choices import (
    HIGH_RISKS,
    AnsweredBy,
    ApprovalKind,
    Assurance,
    DecisionType,
    EffectClass,
    Risk,
    Verdict,
    every_decision,
)
from approvals.models.decisions import Decision, Question
from approvals.models.events import Event
from approvals.models.grants import Grant, GrantLimit
from approvals.models.judgements import Judgement
from approvals.models.notifications import Channel, Notification, Roundup
from approvals.models.people import Comment, Delegation
from approvals.models.plans import PlannedCall
from approvals.models.proof import Anchor, ChainHead, Checkpoint, CheckpointLeaf, LedgerKey, Verification
from approvals.models.rules import Rule, RuleVersion

__all__ = [
    "HIGH_RISKS",
    "Absence",
    "Anchor",
    "AnsweredBy",
    "Approval",
    "ApprovalKind",
    "Assurance",
    "ChainHead",
    "Channel",
    "Checkpoint",
    "CheckpointLeaf",
    "Claim",
    "Comment",
    "Decision",
    "DecisionType",
    "Delegation",
    "EffectClass",
    "Event",
    "Grant",
    "GrantLimit",
    "Judgement",
    "LedgerKey",
    "Notification",
    "PlannedCall",
    "Question",
    "Risk",
    "Roundup",
    "Rule",
    "RuleVersion",
    "Snooze",
    "Verdict",
    "Verification",
    "Viewer",
    "every_decision",
]
