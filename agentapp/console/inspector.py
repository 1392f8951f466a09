"""What is shown next to the timeline about the chosen row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.contrib.auth.models import User

from agentapp import secrecy, trace
from agentapp.answers import answer
from agentapp.considered import GUIDED
from agentapp.console import dry_run, undoing, words
from agentapp.console.dry_run import DryRun
from agentapp.console.json_tree import read
from agentapp.console.undoing import Undoing
from agentapp.models import Breaker, GuidelineMatch, Run, Step, Tool, ToolEvaluation, ToolExecution
from agentapp.timeline import Timeline
from agentapp.trace_rows import Row
from approvals import lens
from approvals.masking import MASK
from approvals.models import Approval

# In a long run, at most this many steps before the chosen one are shown as messages.
MAX_STEPS_READ = 30
PARTS = {
    "arguments": "arguments_text",
    "proposed": "proposed_text",
    "ran": "executed_text",
    "result": "result_text",
    "artifact": "artifact_text",
}


@dataclass(frozen=True)
class JSON:
    """A stored JSON text with its secrets masked. If `is_json` is false, the text is not JSON and is in `text`."""

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
class Read:
    """One message as the model could read it: the input, what it said itself, or the answer to a call."""

    kind: Literal["input", "model", "tool"]
    text: str
    step: int
    call: int | None = None
    name: str = ""


@dataclass(frozen=True)
class Inspected:
    """The chosen row. Of `step` and `call`, only the one named by `kind` is set."""

    kind: Literal["message", "model", "call"]
    row: Row
    step: Step | None = None
    asked: Sequence[Asked] = ()
    call: ToolExecution | None = None
    arguments: JSON | None = None
    proposed: JSON | None = None
    """The model's own arguments, if a hook changed the call."""
    result: JSON | None = None
    artifact: JSON | None = None
    changes: Sequence[Change] = ()
    approvals: Sequence[Approval] = ()
    dry_run: DryRun | None = None
    undoing: Undoing | None = None
    allowed_by: str = ""
    plan: str = ""
    """The reference of the plan it ran under."""
    reason: str = ""
    tab: str = "summary"
    raw: Sequence[tuple[str, JSON]] = ()
    messages: Sequence[Read] = ()
    breakers: Sequence[Breaker] = ()
    matches: Sequence[GuidelineMatch] = ()
    """If guidelines decide: those the step looked at."""
    evaluations: Sequence[ToolEvaluation] = ()

    @property
    def holding(self) -> list[GuidelineMatch]:
        return [match for match in self.matches if match.matched]

    @property
    def others(self) -> list[GuidelineMatch]:
        return [match for match in self.matches if not match.matched]


def choose(run: Run, line: Timeline, step: int | None, call: int | None) -> Row | None:
    """The row a person asked for; else the one to look at first. None: no such row."""
    if step is not None:
        return line.row(step, call)
    if run.state in (Run.State.FAILED, Run.State.STOPPED) and line.first_failure:
        return line.first_failure
    blocked = line.calls_in(ToolExecution.State.WAITING, ToolExecution.State.OUTCOME_UNKNOWN)
    return blocked[0] if blocked else line.last_decision


def inspect(run: Run, line: Timeline, row: Row, viewer: User, tab: str = "") -> Inspected | None:
    """Everything kept about one row, as one of its tabs shows it. Few queries, however long the run is.

    None: the row is gone.
    """
    if row.kind == "message":
        return Inspected("message", row)
    if row.call is None:
        return _model_call(run, row, tab)
    call = trace.call_of(run, row.step, row.call)
    if call is None:
        return None
    approval = call.approval
    return Inspected(
        "call",
        row,
        tab="raw" if tab == "raw" else "summary",
        call=call,
        arguments=arguments_of(call),
        proposed=proposed_of(call),
        result=_json(call, call.result_text, _secrets(call)) if call.result_text not in ("", "null") else None,
        artifact=_json(call, call.artifact_text, _secrets(call)) if call.artifact_text else None,
        raw=_raw_call(call) if tab == "raw" else (),
        breakers=breakers_of(call) if tab != "raw" else (),
        changes=_changes(approval) if approval is not None and approval.is_edited else (),
        approvals=line.approvals.get(call.pk, []),
        dry_run=dry_run.of(approval, call),
        undoing=undoing.of(call, viewer),
        allowed_by=words.allowed_by(call),
        plan=call.allowed_by.removeprefix("plan:") if call.allowed_by.startswith("plan:") else "",
        reason=words.reason(call.reason) if call.reason else "",
    )


def _model_call(run: Run, row: Row, tab: str) -> Inspected | None:
    tab = tab if tab in ("messages", "tools", "raw") else "summary"
    steps = trace.steps_upto(run, row.step, MAX_STEPS_READ if tab == "messages" else 0)
    if not steps:
        return None
    step = steps[-1]
    # The placeholder for a failed decision was never asked for.
    calls = [] if step.error else step.executions.all()
    asked = [Asked(call, proposed_of(call) or arguments_of(call)) for call in calls] if tab == "summary" else []
    reason = words.reason(step.error) if step.error else ""
    raw = [("Reply as the provider gave it", _reply(step, list(calls)))] if tab == "raw" else ()
    read = messages_of(run, steps[:-1]) if tab == "messages" else ()
    guided = tab == "summary" and run.agent_snapshot.get("driver") == GUIDED
    matches, evaluations = trace.guidance_of(step) if guided else ([], [])
    return Inspected(
        "model", row, tab=tab, step=step, asked=asked, reason=reason, raw=raw, messages=read, matches=matches,
        evaluations=evaluations,
    )  # fmt: skip


def messages_of(run: Run, steps: Sequence[Step]) -> list[Read]:
    """What the model could read of this run when it decided the step after these. They come with their calls."""
    found = [Read("input", run.input, 0)] if not steps or steps[0].number == 1 else []
    for step in steps:
        found.append(Read("model", step.text, step.number))
        for call in step.executions.all():
            hidden = bool(_secrets(call))
            told = MASK if hidden else answer(call).text if call.is_answered else "No answer yet"
            found.append(Read("tool", told, step.number, call.index, call.name))
    return found


def breakers_of(call: ToolExecution) -> list[Breaker]:
    """The breakers that could stop this tool now. One query."""
    return list(Breaker.objects.filter(scope=Breaker.Scope.TOOL, key=call.tool.name)) if call.tool else []


def _raw_call(call: ToolExecution) -> list[tuple[str, JSON]]:
    named = {"arguments": "Arguments", "proposed": "Proposed", "ran": "Ran with", "result": "Result"}
    raw = [
        (word, _json(call, getattr(call, PARTS[part]), _secrets_of(call, part)))
        for part, word in named.items()
        if getattr(call, PARTS[part])
    ]
    extra = {"call_id": call.call_id, "control": call.control, "metadata": call.metadata, "ruling": call.ruling}
    return [*raw, ("On record", JSON(secrecy.shown(call, extra, _secrets(call))))]


def _reply(step: Step, calls: Sequence[ToolExecution]) -> JSON:
    """What the provider wants back unchanged. It may contain arguments in forms that cannot be masked in part."""
    guarded = any(_secrets_of(call, "proposed") for call in calls)
    parts = MASK if guarded and step.provider_parts else step.provider_parts
    return JSON({"model": step.model, "finish_reason": step.finish_reason, "provider_parts": parts})


def arguments_of(call: ToolExecution) -> JSON:
    """The arguments as proposed, or as a hook changed them."""
    return _json(call, call.arguments_text, _secrets(call))


def proposed_of(call: ToolExecution) -> JSON | None:
    """The model's own arguments, if a hook changed the call."""
    return _json(call, call.proposed_text, _secrets_of(call, "proposed")) if call.proposed_name else None


def full_text(call: ToolExecution, part: str) -> str:
    """All of a call's arguments or its result as indented JSON, with secrets masked."""
    shown = _json(call, getattr(call, PARTS[part]), _secrets_of(call, part))
    return json.dumps(shown.value, ensure_ascii=False, indent=2) if shown.is_json else shown.text


def _json(call: ToolExecution, text: str, secrets: set[str]) -> JSON:
    value, is_json = read(text)
    if is_json:
        return JSON(secrecy.shown(call, value, secrets), length=len(text))
    # What cannot be read cannot be masked in part.
    return JSON(None, is_json=False, text=MASK if secrets else text, length=len(text))


def _secrets(call: ToolExecution) -> set[str]:
    """What was secret when the call was made, and what is secret now."""
    return {*lens.hidden(call.all_secret_fields, call.all_pii_fields)}


def _secrets_of(call: ToolExecution, part: str) -> set[str]:
    """Includes the secrets of the tool that the model named, if a hook changed the call to another tool."""
    named = None
    if part == "proposed" and call.proposed_name not in ("", call.name):
        named = Tool.objects.filter(name=call.proposed_name).first()
    return _secrets(call) | {*(lens.hidden(named.secret_fields, named.pii_fields) if named is not None else ())}


def _changes(approval: Approval) -> list[Change]:
    was, _ = read(approval.arguments_text)
    now, _ = read(approval.final_arguments_text)
    if not isinstance(was, dict) or not isinstance(now, dict):
        return []
    secrets = {*lens.hidden(approval.secret_fields, approval.pii_fields)}
    return [
        Change(name, *((MASK, MASK) if name in secrets else (_text(was.get(name)), _text(now.get(name)))))
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
