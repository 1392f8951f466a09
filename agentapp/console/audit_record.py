"""One event of the audit trail, opened: the decision, the change, the evidence shown, its place in the chain."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth, cards
from agentapp.console import audit_rows, audit_words, words
from agentapp.console.differences import MINUS, Line, differences
from agentapp.models import Run, ToolExecution
from approvals import changes
from approvals.as_asked import arguments_before
from approvals.models import Approval, Decision, DecisionType, Event, RuleVersion
from approvals.step_up import SHOWN

MOST_CHANGED = 40
MOST_FACTS = 24
# Shown elsewhere in the record, or an id that a link leads to.
_SHOWN = frozenset(
    {
        "approval", "execution", "decision", "tool", "risk", "message", "note", "text", "reason", "why", "before",
        "after", "table", "key", "took_ms", "rule", "assurance", "on_behalf_of", "edited", "type", "runs_at",
        "expires_at", "action_digest", "view_digest", "arguments_digest", "executed_digest", "result_digest",
        "tool_version", "signature", "judges", "judgement", "rule_version", "rule_digest",
    }
)  # fmt: skip
_USER = re.compile(r"^user:\d+")
_APPROVING = (DecisionType.APPROVE, DecisionType.EDIT)
_REASONS = ("message", "note", "text", "reason", "why")


@dataclass(frozen=True)
class Record:
    """What an opened row shows beyond the row itself."""

    line: audit_rows.Line
    teams: list[str] = field(default_factory=list)
    on_behalf: str = ""
    decision: Decision | None = None
    approval: Approval | None = None
    run: Run | None = None
    rule: str = ""
    rule_version: int | None = None
    signed_in: str = ""
    reason: str = ""
    changed: list[Line] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    evidence: list[tuple[int, str]] = field(default_factory=list)
    # For a call: what it does, and who or what let it run.
    call: str = ""
    let_by: str = ""

    @property
    def event(self) -> Event:
        return self.line.event


def of(event: Event, viewer: User) -> Record:
    """Everything about one event that this person may see."""
    about = audit_rows.look_up([event], viewer, whole=True)
    line, data = audit_rows.line(event, about), event.data
    approval = about.approvals.get(event.approval_id) if event.approval_id else None
    run = about.runs.get(event.run_id) if event.run_id else None
    decision = _decision(approval, data)
    execution = about.executions.get(event.execution_id) if event.execution_id else None
    kept = audit_words.said(event, data, approval, run)
    lender = str(data.get("on_behalf_of") or "")
    rule = str(data.get("rule") or (approval.rule if approval else ""))
    return Record(
        line,
        teams=_teams(line.who.user),
        on_behalf=lender.split(":", 2)[-1],
        decision=decision,
        approval=approval,
        run=run,
        rule=rule,
        rule_version=_version(rule, approval),
        signed_in=decision.get_assurance_display() if decision else SHOWN.get(str(data.get("assurance", "")), ""),
        reason=_reason(data, kept),
        changed=list(_changed(event, data, approval, decision)),
        facts=list(_facts(data, kept))[:MOST_FACTS],
        evidence=[(int(one.get("n", 0)), str(one.get("title", ""))) for one in approval.evidence] if approval else [],
        call=cards.title_of(execution) if execution else "",
        let_by=_let_by(execution) if execution else "",
    )


def _let_by(execution: ToolExecution) -> str:
    """Who approved a call that has begun, or what allowed it without a person."""
    if execution.started_at is None:
        return ""
    if execution.approval is None or execution.allowed_by:
        return words.allowed_by(execution)
    standing = [one for one in execution.approval.decisions.all() if one.undone_at is None and one.type in _APPROVING]
    return ", ".join(auth.name_of(one.user) if one.user else f"Customer {one.customer}" for one in standing)


def _reason(data: dict[str, Any], words: list[audit_words.Said]) -> str:
    """Why, or what was said: from the event itself, or from the row that keeps the words."""
    kept = {one.name: one.text for one in words if one.is_kept}
    said = (kept.get(name) or _plain(data.get(name)) for name in _REASONS)
    return next(filter(None, said), "")


def _facts(data: dict[str, Any], words: list[audit_words.Said]) -> Iterator[tuple[str, str]]:
    for one in words:
        if not one.is_kept:
            yield "Reason given" if one.name in _REASONS else _label(one.name), one.text
        elif one.name not in _REASONS:
            yield _label(one.name), _cut(one.text)
    for name, value in data.items():
        if name not in _SHOWN and not audit_words.is_sealed(value):
            yield _label(name), _text(value)


def _plain(value: Any) -> str:
    return "" if isinstance(value, dict | list) or value is None else str(value)


def _decision(approval: Approval | None, data: dict[str, Any]) -> Decision | None:
    if approval is None or not data.get("decision"):
        return None
    return next((given for given in approval.decisions.all() if str(given.pk) == data["decision"]), None)


def _teams(user: User | None) -> list[str]:
    return list(user.groups.order_by("name").values_list("name", flat=True)) if user else []


def _version(rule: str, approval: Approval | None) -> int | None:
    """The version of the rule that was in force when people were asked."""
    if approval is None or not rule:
        return None
    if approval.rule_version and approval.rule == rule:
        return approval.rule_version
    then = RuleVersion.objects.filter(rule__name=rule, activated_at__lte=approval.created_at)
    return then.order_by("-activated_at").values_list("number", flat=True).first()


def _changed(
    event: Event, data: dict[str, Any], approval: Approval | None, decision: Decision | None
) -> Iterator[Line]:
    """What a person changed in the arguments or in a configuration row, line by line, without unchanged lines."""
    if approval is not None and decision is not None and decision.arguments_text:
        before = arguments_before(approval, decision)
        lines = differences(before, decision.arguments_text, approval.secret_fields)
        yield from [Line(line.sign, line.text.strip()) for line in lines if line.kind][:MOST_CHANGED]
    elif event.type.startswith("configuration."):
        was, now = data.get("before") or {}, data.get("after") or {}
        for name in [*dict.fromkeys([*was, *now])][:MOST_CHANGED]:
            one = changes.Field(name, was.get(name), now.get(name))
            if name in was:
                yield Line(MINUS, f"{one.label}: {_cut(one.was)}")
            if name in now:
                yield Line("+", f"{one.label}: {_cut(one.now)}")


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if audit_words.is_sealed(value):
        return f"{value['characters']} characters, kept as a digest"
    if isinstance(value, dict):
        return ", ".join(f"{_label(str(name))} {_text(one)}" for name, one in value.items())
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return _cut(text.split(":", 2)[-1] if _USER.match(text) else text)


def _cut(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:399]}…"
