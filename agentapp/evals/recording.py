"""A case made from a past run: its input, the results of its tools as mocks, and what people decided.

It is a draft to be reviewed by the person who made it. Secrets are masked wherever they occur, and so is personal data
that is marked or recognised as such.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentapp.considered import GUIDED
from agentapp.evals.observing import final_status, has_begun, was_executed
from agentapp.models import Run, Step, ToolExecution
from agentapp.reasons import Reason
from agentapp.secrecy import result_shown
from approvals.detectors import clean, within
from approvals.lens import values_in
from approvals.masking import blotted, masked
from approvals.models import Approval, DecisionType

# Rules may ask whether there is a customer. Who that was is nobody's business here.
CUSTOMER = "A customer"
MAX_INPUT_CHARS = 20_000


def document_of(run: Run, name: str) -> dict[str, Any]:
    """A case as JSON that expects what this run did, under today's configuration."""
    steps = list(run.steps.order_by("number"))
    rows = ToolExecution.objects.select_related("tool", "step", "run").filter(run=run)
    calls = list(rows.order_by("step__number", "index"))
    requests = list(Approval.objects.filter(run_id=run.pk).order_by("created_at", "pk").prefetch_related("groups"))
    begun = [call for call in calls if has_begun(call)]
    is_guided = run.agent_snapshot["driver"] == GUIDED
    document: dict[str, Any] = {
        "name": name,
        "kind": "positive",
        "description": f"As {run.reference} went.",
        "agent": run.agent_snapshot["name"],
        "route": run.route,
        "customer": CUSTOMER if run.customer else "",
        "input": run.input[:MAX_INPUT_CHARS],
        "tools": mocks_of(begun),
        "people": [said for request in requests for said in decided(request, calls)],
        "expect": _said(
            tools_called=list(dict.fromkeys(call.name for call in begun if was_executed(call))),
            # A call that its tool refused is mocked as that error, and counts as called when the case runs.
            no_tools=not begun,
            routing=_routing(requests),
            final_status=str(final_status(run)),
            stop_reason=run.stop_reason,
        ),
    }
    # A guided agent's case has no script: what its model said about guidelines is not on record word for word.
    if not is_guided:
        document["script"] = [_reply(step, calls) for step in steps] or [{"text": "…"}]
    return cleaned(document, calls)


def cleaned(document: dict[str, Any], calls: Sequence[ToolExecution]) -> dict[str, Any]:
    """A case made from these calls, without empty fields and without what may not be kept."""
    told = _telling(calls)
    return {key: within(value, told) for key, value in _said(**document).items()}


def _said(**fields: Any) -> dict[str, Any]:
    """The fields of a case that are not empty."""
    return {name: value for name, value in fields.items() if value not in ("", [], {}, False)}


def _telling(calls: Sequence[ToolExecution]) -> Callable[[str], str]:
    """A function that makes a text fit to keep: without the secret and personal values of these calls."""
    known: set[str] = set()
    for call in calls:
        texts = (call.arguments_text, call.proposed_text, call.executed_text, call.result_text)
        known |= call.secret_values | values_in(texts, _fields(call))
    return lambda text: clean(blotted(text, known))


def mocks_of(begun: Sequence[ToolExecution]) -> dict[str, Any]:
    """For each tool, the results of its calls in turn, separately for each set of arguments."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for call in begun:
        when = arguments_of(call, call.executed_text or call.arguments_text)
        entry = found.setdefault(call.name, {}).setdefault(json.dumps(when, sort_keys=True), {"sequence": []})
        entry["sequence"] += [_failed(failure) for failure in call.failures[: call.attempts - 1]] + [_answer(call)]
        if isinstance(when, dict):
            entry["when"] = when
    return {tool: [_shortly(entry, len(by) == 1) for entry in by.values()] for tool, by in found.items()}


def _shortly(entry: dict[str, Any], alone: bool) -> dict[str, Any]:
    """One entry of a mock. If a tool was only ever called with the same arguments, it is for any arguments."""
    when = {} if alone or "when" not in entry else {"when": entry["when"]}
    sequence = entry["sequence"]
    return {**when, **sequence[0]} if len(sequence) == 1 else {**when, "sequence": sequence}


def _answer(call: ToolExecution) -> dict[str, Any]:
    """The result of a call, as a mock gives it."""
    said = (call.message or call.reason or "It failed.")[:4000]
    if call.reason == Reason.OUTCOME_UNKNOWN or call.state == ToolExecution.State.OUTCOME_UNKNOWN:
        return {"unknown": said}
    if call.reason == Reason.TOOL_TIMEOUT:
        return {"timeout": True}
    result = masked(result_shown(call), _fields(call))
    if call.reason == Reason.TOOL_RESULT_INVALID:
        return {"malformed": result}
    if call.result_status == ToolExecution.ResultStatus.OK:
        return {"result": result, "trust": call.trust}
    return {"error": said, "retryable": call.result_status == ToolExecution.ResultStatus.RETRYABLE_ERROR}


def _failed(failure: dict[str, Any]) -> dict[str, Any]:
    if failure.get("reason") == Reason.TOOL_TIMEOUT:
        return {"timeout": True}
    said = str(failure.get("message") or "It failed.")[:4000]
    return {"error": said, "retryable": failure.get("status") == ToolExecution.ResultStatus.RETRYABLE_ERROR}


def _reply(step: Step, calls: Sequence[ToolExecution]) -> dict[str, Any]:
    """One reply of the model, with its calls as it proposed them, not as a hook changed them."""
    made = [
        {
            "id": call.call_id,
            "name": call.proposed_name or call.name,
            "arguments": arguments_of(call, call.proposed_text or call.arguments_text),
        }
        for call in calls
        if call.step_id == step.pk and not call.variable and call.name not in _NO_CALLS
    ]
    usage = {"input_tokens": step.input_tokens, "output_tokens": step.output_tokens}
    reply: dict[str, Any] = {"text": step.text, "usage": usage}
    return reply | ({"tool_calls": made} if made else {})


# Calls with these reasons stand in for calls that a model did not make.
_NO_CALLS = frozenset({Reason.DECISION_EXTRACTION, Reason.DECISION_VALIDATION})


def arguments_of(call: ToolExecution, text: str) -> Any:
    """Arguments with secret and personal values masked. Text that is not a JSON object stays as it was."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return masked(arguments, _fields(call)) if isinstance(arguments, dict) else text


def _fields(call: ToolExecution) -> set[str]:
    return {*call.all_secret_fields, *call.all_pii_fields}


def decided(request: Approval, calls: Sequence[ToolExecution]) -> list[dict[str, Any]]:
    """The decision about one request, as a case gives it: once, however many people made it."""
    if request.state == Approval.State.EXPIRED and request.decided_at is None:
        return [{"tool": request.tool, "decide": "expire"}]
    last = request.decisions.filter(undone_at__isnull=True).order_by("decided_at").last()
    if last is None:
        return []
    said: dict[str, Any] = {"tool": request.tool, "decide": str(last.type)}
    if request.is_edited and last.type in (DecisionType.APPROVE, DecisionType.EDIT):
        call = next((each for each in calls if each.pk == request.execution_id), None)
        was, now = (json.loads(text) for text in (request.arguments_text, request.final_arguments_text))
        changed = {name: value for name, value in now.items() if was.get(name) != value}
        said |= {"decide": "edit", "arguments": masked(changed, _fields(call) if call is not None else set())}
    if last.message:
        said["message"] = last.message[:2000]
    return [said | ({"stop_run": True} if last.stop_run else {})]


def _routing(requests: Sequence[Approval]) -> list[dict[str, Any]]:
    """Whom the gate asked, by tool. If it asked different people about calls of a tool, that tool is left out."""
    found: dict[str, dict[str, Any]] = {}
    differ: set[str] = set()
    for request in requests:
        groups = sorted(group.name for group in request.groups.all())
        said = {"tool": request.tool, "verdict": "ask", "groups": groups, "customer": request.asks_customer}
        if found.setdefault(request.tool, said) != said:
            differ.add(request.tool)
    return [said for tool, said in found.items() if tool not in differ]
