"""A request as an approver saw it, from what was frozen then; and what is shown differently now."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth, provenance
from agentapp.console import disguised, dry_run, evidence, plan_lines
from agentapp.console.differences import Line, differences, pretty
from agentapp.console.disguised import Notes
from agentapp.console.dry_run import DryRun
from agentapp.console.evidence import Evidence
from agentapp.console.facts import Fact, facts_of
from agentapp.console.plan_lines import Plan
from agentapp.console.shown import all_arguments, arguments_in
from approvals import as_asked, lens
from approvals.as_asked import Checked
from approvals.digest import load
from approvals.masking import masked
from approvals.models import Approval, Decision, DecisionType


@dataclass(frozen=True)
class Shown:
    """The words of the card, under the names its templates use."""

    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    button: str
    edited: bool
    outside: list[str] = field(default_factory=list)
    own_changes: int = 0

    @property
    def acts(self) -> list[tuple[str, str]]:
        return []


@dataclass(frozen=True)
class Seen:
    """Everything that was on the screen, and how far the record vouches for it."""

    approval: Approval
    decision: Decision | None
    decisions: Sequence[Decision]
    shown: Shown
    arguments: list[Fact]
    arguments_text: str
    disguises: Notes
    evidence: Evidence
    checked: Checked
    rule_values: list[tuple[str, str]]
    groups: list[str]
    dry_run: DryRun | None
    plan: Plan | None
    # What the decider changed, line by line; and what had been changed before that.
    changed: list[Line]
    changed_before: list[Line]
    differently: list[str]


def of(viewer: User, approval_id: uuid.UUID, decision: str) -> Seen:
    """The request at one decision: the named one, else the last. Raises Approval.DoesNotExist."""
    rows = auth.visible_approvals(viewer).select_related("starter", "editor", "editor_lender", "execution__tool")
    approval = rows.prefetch_related("groups").get(pk=approval_id)
    decisions = list(approval.decisions.select_related("user", "on_behalf_of").order_by("decided_at"))
    one = _chosen(decisions, decision)
    before = as_asked.arguments_before(approval, one)
    edited = before != approval.arguments_text
    checked = as_asked.check(approval, one)
    secret = approval.secret_fields
    questions = as_asked.questions_before(approval, one.decided_at if one else None)
    title = approval.final_title if edited and before == approval.final_arguments_text else approval.title
    masked_text = json.dumps(masked(load(before), secret), ensure_ascii=False, indent=2)
    return Seen(
        approval=approval,
        decision=one,
        decisions=decisions,
        shown=Shown(title, approval.sentence, approval.effects, approval.button, edited, _outside(approval)),
        arguments=facts_of(masked_text),
        arguments_text=pretty(before, secret),
        disguises=disguised.of(
            all_arguments(approval, arguments_in(before)), lens.hidden(secret, approval.pii_fields), labels={}
        ),
        evidence=evidence.of(approval, questions),
        checked=checked,
        rule_values=evidence.rule_values(approval),
        groups=[group.name for group in approval.groups.all()],
        dry_run=None if edited else dry_run.of(_unedited(approval), None),
        plan=plan_lines.as_asked(approval),
        changed=_differences(before, one.arguments_text, secret) if one and one.type == DecisionType.EDIT else [],
        changed_before=_differences(approval.arguments_text, before, secret) if edited else [],
        differently=list(_differently(approval, checked, edited)),
    )


def _chosen(decisions: Sequence[Decision], wanted: str) -> Decision | None:
    if not wanted:
        return decisions[-1] if decisions else None
    found = next((one for one in decisions if str(one.pk) == wanted), None)
    if found is None:
        raise Approval.DoesNotExist
    return found


def _unedited(approval: Approval) -> Approval:
    """The request as it was made: an edit's dry run is not what was shown before the edit."""
    approval.final_arguments_text = ""
    return approval


def _outside(approval: Approval) -> list[str]:
    """The arguments that contained something from outside."""
    paths = (str(row.get("path", "")) for row in approval.provenance if row.get("origin") == "outside")
    parts = (provenance.parts_of(path) for path in paths)
    return list(dict.fromkeys(str(found[0]).replace("_", " ") for found in parts if found))


def _differences(before: str, after: str, secret: Sequence[str]) -> list[Line]:
    return [line for line in differences(before, after, secret) if line.kind]


def _differently(approval: Approval, checked: Checked, edited: bool) -> Sequence[str]:
    """What is not shown as it was on the screen, each in a sentence."""
    said = []
    if checked.deleted:
        pieces = "One piece" if checked.deleted == 1 else f"{checked.deleted} pieces"
        said.append(f"{pieces} of evidence were deleted by retention; the digests are shown in their place.")
    if edited:
        said.append(
            "Somebody had already changed the call. The values are those shown then, but what will happen is worded "
            "for the call as it was proposed."
        )
    if edited and approval.preview_text:
        said.append("The dry run of the changed call is not shown: only the dry run of the last change is kept.")
    if approval.why_unseen:
        said.append("What it rests on could not be looked up. Before this release, requests did not say so.")
    if approval.secret_fields:
        said.append("Masked values are masked here too, even if somebody revealed them.")
    tool = getattr(getattr(approval, "execution", None), "tool", None)
    if tool is None or tool.version != approval.tool_version:
        said.append("The tool has changed since. Nothing here comes from its current version.")
    return said
