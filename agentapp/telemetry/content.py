"""What was said, added to spans if the operator wants it (OTEL_CONTENT), without secrets and personal data.

Spans leave the system, and so do files of them that people save. Marked fields are masked, their values are removed
wherever they are repeated, and so is whatever detectors find. Nobody's permissions change that.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from agentapp.marked_values import Values
from agentapp.models import Run, ToolExecution
from agentapp.telemetry.spans import Called, Span, Taken, Value
from agentapp.trace_context import span_id
from approvals.detectors import clean, within
from approvals.digest import MalformedJSON, parse
from approvals.masking import MASK, blotted_within, masked
from approvals.models import Approval

MAX_CHARS = 32 * 1024


def hidden_of_family(run: Run) -> frozenset[str]:
    """The marked values in the calls of a run, in those whose words its input may repeat, and in those of the runs it
    started and whose answers it received.
    """
    return frozenset(Values(secret=True).read([run.pk]))


def of_run(span: Span, run: Run, hidden: frozenset[str]) -> Span:
    told = {
        "gen_ai.system_instructions": _parts(run.agent_snapshot.get("instructions", "")),
        "gen_ai.input.messages": [{"role": "user", "parts": _parts(run.input)}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": _parts(run.answer)}] if run.answer else [],
        "countersign.run.title": run.title,
        "countersign.run.customer": run.customer,
        "countersign.run.starter": run.starter.get_username() if run.starter else "",
        "countersign.run.stop_message": run.stop_message if run.is_final else "",
    }
    return _with(span, told, hidden)


def of_step(made: list[Span], taken: Taken, hidden: frozenset[str]) -> list[Span]:
    told = {span_id("chat", taken.step.pk): _chat(taken)}
    for called in taken.calls:
        told[span_id("call", called.execution.pk)] = _call(called.execution)
        told |= {span_id("approval", approval.pk): _approval(approval) for approval in called.approvals}
    failed = {span_id("call", called.execution.pk): called for called in taken.calls if called.failures}
    return [
        _with(_with_failures(span, failed.get(span.span_id), hidden), told.get(span.span_id, {}), hidden)
        for span in made
    ]


def _chat(taken: Taken) -> dict[str, Any]:
    step = taken.step
    parts = _parts(step.text)
    for called in taken.calls:
        execution = called.execution
        asked = {"type": "tool_call", "id": execution.call_id, "name": execution.name}
        parts.append({**asked, "arguments": _arguments_shown(execution)})
    return {"gen_ai.output.messages": [{"role": "assistant", "parts": parts, "finish_reason": step.finish_reason}]}


def _call(execution: ToolExecution) -> dict[str, Any]:
    return {
        "gen_ai.tool.call.arguments": _arguments_shown(execution),
        "gen_ai.tool.call.result": _result_shown(execution),
        "countersign.execution.message": execution.message,
    }


def _approval(approval: Approval) -> dict[str, Any]:
    given = [decision for decision in approval.decisions.all() if decision.undone_at is None]
    return {
        "countersign.approval.title": approval.title,
        "countersign.approval.decided_by": [decision.who for decision in given],
        "countersign.approval.messages": [decision.message for decision in given if decision.message],
    }


def _arguments_shown(execution: ToolExecution) -> Any:
    """The arguments that ran, or else those that were proposed. A text that is not JSON stays a text."""
    text = execution.executed_text or execution.arguments_text
    fields = _marked_fields(execution)
    try:
        return masked(parse(text), fields)
    except MalformedJSON:
        return MASK if fields else text


def _result_shown(execution: ToolExecution) -> Any:
    return masked(json.loads(execution.result_text), _marked_fields(execution)) if execution.result_text else None


def _marked_fields(execution: ToolExecution) -> list[str]:
    return [*execution.all_secret_fields, *execution.all_pii_fields]


def _with_failures(span: Span, called: Called | None, hidden: frozenset[str]) -> Span:
    if called is None:
        return span
    told = tuple(
        dataclasses.replace(
            occurrence,
            attributes={**occurrence.attributes, "countersign.message": _told(str(failure["message"]), hidden)},
        )
        for occurrence, failure in zip(span.occurrences, called.failures, strict=True)
    )
    return dataclasses.replace(span, occurrences=told)


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}] if text else []


def _with(span: Span, told: Mapping[str, Any], hidden: frozenset[str]) -> Span:
    said: dict[str, Value] = {
        name: _text(_told(value, hidden)) for name, value in told.items() if value not in ("", None) and value != []
    }
    return dataclasses.replace(span, attributes={**span.attributes, **said}) if said else span


def _told(value: Any, hidden: frozenset[str]) -> Any:
    return within(blotted_within(value, hidden), clean)


def _text(value: Any) -> str:
    """A structured value as JSON text, which the conventions use where attributes are flat."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
