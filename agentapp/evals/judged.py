"""A case made from a judged decision: it expects the same decision again, or a different one.

What follows a decision in its run rests on it. So a case that expects a different one ends with the step that asked
for it.
"""

from collections.abc import Sequence
from typing import Any

from agentapp.evals import recording
from agentapp.evals.observing import has_begun
from agentapp.evals.recording import document_of
from agentapp.models import Run, ToolExecution
from approvals.models import Approval, Decision, DecisionType, Judgement

_GOOD = Judgement.Mark.GOOD
_LET_RUN = (DecisionType.APPROVE, DecisionType.EDIT)
_LAST_WORDS = {"text": "…"}


def name_of(decision: Decision) -> str:
    """One case per decision: making it again replaces the earlier one."""
    return f"decision-{decision.pk.hex[-6:]}"


def document_for(run: Run, judgement: Judgement) -> dict[str, Any]:
    """The case as JSON. `run` is the one whose call was decided about."""
    decision = judgement.decision
    rows = ToolExecution.objects.select_related("tool", "step", "run").filter(run=run)
    calls = list(rows.order_by("step__number", "index"))
    call = next(each for each in calls if each.pk == decision.approval.execution_id)
    document = document_of(run, name_of(decision))
    said = f"Judged {judgement.mark}: {decision.get_type_display().lower()} in {run.reference}."
    document |= {"description": said}
    if judgement.mark == _GOOD:
        return _as_it_was(document, decision, call, calls)
    return _otherwise(document, decision, call, calls)


def _as_it_was(
    document: dict[str, Any], decision: Decision, call: ToolExecution, calls: Sequence[ToolExecution]
) -> dict[str, Any]:
    """Expects that people are asked about the call. They decide it as before, whatever becomes of the rest."""
    expect: dict[str, Any] = document.get("expect", {})
    if all(each["tool"] != call.name for each in expect.get("routing", [])):
        expect["routing"] = [*expect.get("routing", []), _asked(decision, call)]
    if decision.type not in _LET_RUN and not _was_called(call.name, calls):
        expect["tools_not_called"] = [call.name]
    return document | {"kind": "ask", "expect": expect}


def _otherwise(
    document: dict[str, Any], decision: Decision, call: ToolExecution, calls: Sequence[ToolExecution]
) -> dict[str, Any]:
    """Expects the opposite: people reject what should not have run, if no rule refuses it, or approve what should."""
    until = [each for each in calls if each.step.number <= call.step.number]
    before = [each for each in until if each.pk != call.pk]
    tools = recording.mocks_of([each for each in until if has_begun(each)])
    expect: dict[str, Any]
    if decision.type in _LET_RUN:
        kind, decide = "refuse", "reject"
        # If the tool was also called before, only this very call can be expected not to get through.
        besides = _was_called(call.name, before)
        expect = {"routing": [_asked(decision, call)]} if besides else {"tools_not_called": [call.name]}
    else:
        kind, decide = "ask", "approve"
        expect = {"tools_called": [call.name], "routing": [_asked(decision, call)]}
        tools.setdefault(call.name, [{"result": "done"}])
    document = {**document, "kind": kind, "tools": tools, "people": _people(decision, until, decide), "expect": expect}
    if "script" in document:
        document["script"] = [*document["script"][: call.step.number], _LAST_WORDS]
    cleaned: dict[str, Any] = recording.cleaned(document, calls)
    return cleaned


def _people(decision: Decision, calls: Sequence[ToolExecution], decide: str) -> list[dict[str, Any]]:
    """What people decided about the calls before this one, and the opposite about this one."""
    found: list[dict[str, Any]] = []
    keys = [call.pk for call in calls]
    requests = Approval.objects.filter(execution_id__in=keys).order_by("created_at", "pk").prefetch_related("groups")
    for request in requests:
        if request.pk == decision.approval_id:
            found.append({"tool": request.tool, "decide": decide})
        elif request.execution_id != decision.approval.execution_id:
            found += recording.decided(request, calls)
    return found


def _asked(decision: Decision, call: ToolExecution) -> dict[str, Any]:
    """Expects people to be asked about this call, identified by those arguments that a case may contain."""
    request = decision.approval
    arguments = recording.arguments_of(call, call.proposed_text or call.arguments_text)
    said: dict[str, Any] = {"tool": call.name, "verdict": "ask", "customer": request.asks_customer}
    said["groups"] = sorted(group.name for group in request.groups.all())
    return said | ({"arguments": arguments} if isinstance(arguments, dict) else {})


def _was_called(tool: str, calls: Sequence[ToolExecution]) -> bool:
    return any(call.name == tool and has_begun(call) for call in calls)
