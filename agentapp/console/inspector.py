"""What is shown beside the timeline about the row a person has chosen."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentapp import trace
from agentapp.console import words
from agentapp.console.json_tree import read
from agentapp.models import Run, Step, Tool, ToolExecution
from agentapp.trace import Row, Timeline
from approvals.masking import MASK, masked
from approvals.models import Approval

PARTS = {
    "arguments": "arguments_text",
    "proposed": "proposed_text",
    "ran": "executed_text",
    "result": "result_text",
    "artifact": "artifact_text",
}


@dataclass(frozen=True)
class JSON:
    """A stored JSON text with its secrets masked. `is_json` False: what was sent is not JSON, `text` is it."""

    value: Any
    is_json: bool = True
    text: str = ""
    length: int = 0


@dataclass(frozen=True)
class Change:
    """An argument a person changed."""

    name: str
    was: str
    now: str


@dataclass(frozen=True)
class Asked:
    """A call as its step shows it: what the model asked for."""

    call: ToolExecution
    arguments: JSON

    @property
    def part(self) -> str:
        return "proposed" if self.call.proposed_name else "arguments"


@dataclass(frozen=True)
class Inspected:
    """The chosen row. Of `step` and `call` only the one that `kind` names is there."""

    kind: Literal["message", "model", "call"]
    row: Row
    step: Step | None = None
    asked: Sequence[Asked] = ()
    call: ToolExecution | None = None
    arguments: JSON | None = None
    proposed: JSON | None = None
    """The model's own arguments, where a hook made another call of them."""
    result: JSON | None = None
    artifact: JSON | None = None
    changes: Sequence[Change] = ()
    approvals: Sequence[Approval] = ()
    allowed_by: str = ""
    reason: str = ""


def choose(run: Run, line: Timeline, step: int | None, call: int | None) -> Row | None:
    """The row a person asked for; else the one to look at first. None: there is no such row."""
    rows = [row for row in line.rows if row.kind not in ("approval", "run") and row.step <= run.step_count]
    if step is not None:
        return next((row for row in rows if row.step == step and row.call == call), None)
    if run.state in (Run.State.FAILED, Run.State.STOPPED) and line.first_failure:
        return line.first_failure
    blocked = next((row for row in rows if row.state in ("waiting", "outcome_unknown")), None)
    return blocked or [row for row in rows if row.kind != "call"][-1]


def inspect(run: Run, line: Timeline, row: Row) -> Inspected | None:
    """Everything kept about one row. Two queries at most, and one more for a call whose tool a hook changed.

    None: it is gone.
    """
    if row.kind == "message":
        return Inspected("message", row)
    if row.call is None:
        step = trace.step_of(run, row.step)
        if step is None:
            return None
        # What stands for a decision that failed was never asked for.
        calls = [] if step.error else step.executions.all()
        asked = [Asked(call, proposed_of(call) or arguments_of(call)) for call in calls]
        return Inspected("model", row, step=step, asked=asked, reason=words.reason(step.error) if step.error else "")
    call = trace.call_of(run, row.step, row.call)
    if call is None:
        return None
    approval = call.approval
    return Inspected(
        "call",
        row,
        call=call,
        arguments=arguments_of(call),
        proposed=proposed_of(call),
        result=_json(call.result_text, _secrets(call.tool, approval)) if call.result_text not in ("", "null") else None,
        artifact=_json(call.artifact_text, _secrets(call.tool, approval)) if call.artifact_text else None,
        changes=_changes(approval) if approval is not None and approval.is_edited else (),
        approvals=line.approvals.get(call.pk, []),
        allowed_by=words.allowed_by(call),
        reason=words.reason(call.reason) if call.reason else "",
    )


def arguments_of(call: ToolExecution) -> JSON:
    """The arguments as proposed, or as a hook made them."""
    return _json(call.arguments_text, _secrets(call.tool, call.approval))


def proposed_of(call: ToolExecution) -> JSON | None:
    """The model's own arguments, where a hook changed the call."""
    return _json(call.proposed_text, _secrets_of(call, "proposed")) if call.proposed_name else None


def full_text(call: ToolExecution, part: str) -> str:
    """All of a call's arguments or result as indented JSON, secrets masked."""
    shown = _json(getattr(call, PARTS[part]), _secrets_of(call, part))
    return json.dumps(shown.value, ensure_ascii=False, indent=2) if shown.is_json else shown.text


def _json(text: str, secrets: set[str]) -> JSON:
    value, is_json = read(text)
    if is_json:
        return JSON(masked(value, secrets), length=len(text))
    # What cannot be read cannot be masked piece by piece.
    return JSON(None, is_json=False, text=MASK if secrets else text, length=len(text))


def _secrets(tool: Tool | None, approval: Approval | None) -> set[str]:
    """What was secret when it was asked, and what is secret now."""
    return {*(tool.secret_fields if tool else ()), *(approval.secret_fields if approval else ())}


def _secrets_of(call: ToolExecution, part: str) -> set[str]:
    """A hook may have made a call of another tool; then the tool the model had named has its secrets too."""
    named = None
    if part == "proposed" and call.proposed_name != call.name:
        named = Tool.objects.filter(name=call.proposed_name).first()
    return _secrets(call.tool, call.approval) | _secrets(named, None)


def _changes(approval: Approval) -> list[Change]:
    was, _ = read(approval.arguments_text)
    now, _ = read(approval.final_arguments_text)
    if not isinstance(was, dict) or not isinstance(now, dict):
        return []
    secrets = set(approval.secret_fields)
    return [
        Change(name, *((MASK, MASK) if name in secrets else (_text(was.get(name)), _text(now.get(name)))))
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
