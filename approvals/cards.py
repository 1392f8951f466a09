"""A request as people will see it: everything on the card, and the terms they decide under. Writes nothing."""

import uuid
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, get_origin

from approvals import step_up, timing
from approvals.digest import action_digest, canonical, load, sha256
from approvals.escalation import Step
from approvals.models import Approval, ApprovalKind, Channel, Risk


@dataclass(frozen=True)
class Card:
    """A request to be made: the exact call, everything people will be shown, and the terms."""

    run_id: uuid.UUID
    execution_id: uuid.UUID
    agent: str
    tool: str
    tool_version: str
    effect_class: str
    arguments_text: str
    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    reason: str
    expires_seconds: int
    hold_seconds: int
    route: str = ""
    run_title: str = ""
    button: str = ""
    locked_fields: list[str] = field(default_factory=list)
    secret_fields: list[str] = field(default_factory=list)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    explanation: str = ""
    snapshot_text: str = ""
    preview_text: str = ""
    difference: list[dict[str, Any]] = field(default_factory=list)
    rule: str = ""
    condition: str = ""
    rule_values: tuple[dict[str, Any], ...] = ()
    risk: str = Risk.MEDIUM
    risk_factors: list[dict[str, Any]] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)
    allowed_decisions: tuple[str, ...] = ()
    approvals_needed: int = 1
    terms: tuple[list[dict[str, Any]], ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    starter_id: int | None = None
    starter_excluded: bool = True
    excluded: tuple[int, ...] = ()
    on_expiry: str = "reject"
    groups: tuple[int, ...] = ()
    escalation: tuple[Step, ...] = ()
    target_seconds: int | None = None
    business_hours: bool = False
    supersedes_id: uuid.UUID | None = None
    editor_id: int | None = None
    editor_lender_id: int | None = None
    kind: str = ApprovalKind.AUTHORIZATION
    second_look: dict[str, str] = field(default_factory=dict)
    assurance_needed: str = ""
    """How the approver must show who they are. The row holds at least what the installation requires."""
    plan_text: str = ""
    salt: str = ""
    """The salt of its call. Part of both digests, so that neither can be found by trying."""
    pii_fields: list[str] = field(default_factory=list)
    rule_version: int = 0
    """The version of the rule that asks; 0 if none does."""
    rule_digest: str = ""
    """The digest of that version's terms."""
    mocked: bool = False
    """Nobody is asked or told: an eval decides."""


# The columns that a row shares with the card. Groups are rows of their own, and steps get their moments.
_COLUMNS = tuple(each.name for each in fields(Card) if each.name not in ("groups", "escalation"))
CARD_COLUMNS = frozenset({*_COLUMNS, "arguments", "action_digest", "view_digest", "created_at"})
"""The columns a row is made with and keeps."""
# Keys of rows, which mean nothing to a reader.
_NOT_SHOWN = frozenset(
    {"run_id", "execution_id", "starter_id", "supersedes_id", "editor_id", "editor_lender_id", "excluded", "about"}
)
# Columns that older requests did not have count only if they are not empty.
_LATER = frozenset({"salt", "pii_fields", "rule_version", "rule_digest", "mocked"})


def view_digest(card: Card) -> str:
    """The digest of everything a person is shown before deciding, and of the terms they decide under."""
    shown = {name: value for name, value in asdict(card).items() if name not in _NOT_SHOWN}
    shown = {name: value for name, value in shown.items() if value or name not in _LATER}
    return sha256(canonical(shown))


def pending(card: Card, now: datetime) -> Approval:
    """The row of a new request, not stored yet."""
    asks_people = card.kind != ApprovalKind.CONFIRMATION
    needed = step_up.needed(card.assurance_needed, card.risk, card.effect_class) if asks_people else ""
    # As the row holds it: people see, and the digest covers, these values.
    card = replace(card, assurance_needed=needed, reason=card.reason[:500])
    if card.mocked:  # an eval decides, so there is nobody to wait for
        card = replace(card, hold_seconds=0, target_seconds=None, escalation=())
    columns = {name: _stored(getattr(card, name)) for name in _COLUMNS}
    approval = Approval(
        **columns,
        arguments=load(card.arguments_text),
        action_digest=digest_of(
            card.tool, card.tool_version, card.arguments_text, card.run_id, card.execution_id, card.plan_text, card.salt
        ),
        view_digest=view_digest(card),
        **_times(card, now),
    )
    approval.escalates_at = timing.next_step_at(approval)
    return approval


def card_of(approval: Approval, groups: tuple[int, ...]) -> Card:
    """The card that a row was made from: what `pending` stored, read back. `groups` are those it was made with."""
    said = {each.name: _read(each.type, getattr(approval, each.name)) for each in fields(Card) if each.name in _COLUMNS}
    said["expires_seconds"] = approval.expires_seconds or 0
    escalation = tuple(Step(step["after"], step["group"], step["remind"]) for step in approval.escalation)
    return Card(**said, groups=groups, escalation=escalation)


def _stored(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read(type_: Any, value: Any) -> Any:
    return tuple(value) if get_origin(type_) is tuple else value


def _times(card: Card, now: datetime) -> dict[str, Any]:
    target = card.target_seconds
    return {
        "created_at": now,
        "expires_at": timing.after(now, card.expires_seconds, card.business_hours),
        "escalation": timing.planned(card.escalation, now, card.business_hours),
        "target_at": timing.after(now, target, card.business_hours) if target is not None else None,
    }


def digest_of(
    tool: str,
    version: str,
    arguments_text: str,
    run_id: uuid.UUID,
    execution_id: uuid.UUID,
    plan_text: str = "",
    salt: str = "",
) -> str:
    """The digest that an approval of this exact call is bound to. Raises ValueError if the text is not JSON."""
    return action_digest(
        tool=tool,
        tool_version=version,
        arguments=load(arguments_text),
        run=str(run_id),
        subject=str(execution_id),
        plan_text=plan_text,
        salt=salt,
    )


def final_digest(approval: Approval) -> str:
    """The digest of the call as it would run now, made from the text itself. Empty: nobody can read the text."""
    try:
        return digest_of(
            approval.tool, approval.tool_version, approval.final_arguments_text, approval.run_id, approval.execution_id,
            approval.plan_text, approval.salt,
        )  # fmt: skip
    except (ValueError, RecursionError):
        return ""


def concerns(channel: Channel, card: Card) -> bool:
    """Whether a channel is told of this request. Channels tell people, not customers, and personal channels are not for
    teams.
    """
    if card.kind == ApprovalKind.CONFIRMATION or channel.personal:
        return False
    groups: set[int] = {group.pk for group in channel.groups.all()}
    return not groups or bool(groups & set(card.groups))
