"""A request as people will see it: everything on the card and the terms they decide under. Writes nothing."""

import uuid
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from approvals import step_up, timing
from approvals.digest import action_digest, canonical, load, sha256
from approvals.escalation import Step
from approvals.models import Approval, ApprovalKind, Channel, Risk


@dataclass(frozen=True)
class Card:
    """One request to be made: the exact call, everything people will be shown, and the terms."""

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
    kind: str = ApprovalKind.AUTHORIZATION
    second_look: dict[str, str] = field(default_factory=dict)
    assurance_needed: str = ""
    """How whoever approves shows who they are. The row has at least what the installation asks."""
    plan_text: str = ""


# Keys of rows, which mean nothing to a reader.
_NOT_SHOWN = frozenset({"run_id", "execution_id", "starter_id", "supersedes_id", "editor_id", "excluded", "about"})


def view_digest(card: Card) -> str:
    """Digest of everything a person is shown before deciding, and of the terms they decide under."""
    shown = {name: value for name, value in asdict(card).items() if name not in _NOT_SHOWN}
    return sha256(canonical(shown))


def pending(card: Card, now: datetime) -> Approval:
    """The row of a new request, not stored yet."""
    asks_people = card.kind != ApprovalKind.CONFIRMATION
    needed = step_up.needed(card.assurance_needed, card.risk, card.effect_class) if asks_people else ""
    card = replace(card, assurance_needed=needed)
    approval = Approval(
        run_id=card.run_id,
        execution_id=card.execution_id,
        kind=card.kind,
        agent=card.agent,
        route=card.route,
        run_title=card.run_title,
        tool=card.tool,
        tool_version=card.tool_version,
        effect_class=card.effect_class,
        arguments_text=card.arguments_text,
        arguments=load(card.arguments_text),
        action_digest=digest_of(
            card.tool, card.tool_version, card.arguments_text, card.run_id, card.execution_id, card.plan_text
        ),
        title=card.title,
        sentence=card.sentence,
        effects=card.effects,
        button=card.button,
        locked_fields=card.locked_fields,
        secret_fields=card.secret_fields,
        evidence=card.evidence,
        explanation=card.explanation,
        snapshot_text=card.snapshot_text,
        preview_text=card.preview_text,
        plan_text=card.plan_text,
        difference=card.difference,
        view_digest=view_digest(card),
        rule=card.rule,
        reason=card.reason[:500],
        condition=card.condition,
        rule_values=list(card.rule_values),
        risk=card.risk,
        risk_factors=card.risk_factors,
        provenance=card.provenance,
        second_look=card.second_look,
        allowed_decisions=list(card.allowed_decisions),
        approvals_needed=card.approvals_needed,
        terms=list(card.terms),
        about=card.about,
        starter_id=card.starter_id,
        starter_excluded=card.starter_excluded,
        excluded=list(card.excluded),
        assurance_needed=card.assurance_needed,
        hold_seconds=card.hold_seconds,
        on_expiry=card.on_expiry,
        supersedes_id=card.supersedes_id,
        editor_id=card.editor_id,
        **_times(card, now),
    )
    approval.escalates_at = timing.next_step_at(approval)
    return approval


def _times(card: Card, now: datetime) -> dict[str, Any]:
    target = card.target_seconds
    return {
        "created_at": now,
        "expires_at": timing.after(now, card.expires_seconds, card.business_hours),
        "expires_seconds": card.expires_seconds,
        "business_hours": card.business_hours,
        "escalation": timing.planned(card.escalation, now, card.business_hours),
        "target_seconds": target,
        "target_at": timing.after(now, target, card.business_hours) if target is not None else None,
    }


def digest_of(
    tool: str, version: str, arguments_text: str, run_id: uuid.UUID, execution_id: uuid.UUID, plan_text: str = ""
) -> str:
    """The digest an approval of this exact call is bound to. Raises ValueError when the text is no JSON."""
    return action_digest(
        tool=tool,
        tool_version=version,
        arguments=load(arguments_text),
        run=str(run_id),
        subject=str(execution_id),
        plan_text=plan_text,
    )


def concerns(channel: Channel, card: Card) -> bool:
    """Whether a channel is told of this request. Channels tell people, not customers; one for single people no team."""
    if card.kind == ApprovalKind.CONFIRMATION or channel.personal:
        return False
    groups: set[int] = {group.pk for group in channel.groups.all()}
    return not groups or bool(groups & set(card.groups))
