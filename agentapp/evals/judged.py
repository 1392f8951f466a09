"""A case made for a decision that somebody has judged: that it is made again, or that it is not.

What follows a decision in its run rests on it. So a case that wants another one ends with the step that asked for it.
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
    """One case for each decision: made anew, it takes the place of the one before."""
    return f"decision-{decision.pk.hex[-6:]}"


def document_for(run: Run, judgement: Judgement) -> dict[str, Any]:
    """The case as JSON. `run` is the one whose call was decided about."""
    decision = judgement.decision
    rows = ToolExecution.objects.select_related("tool", "step", "run").filter(run=run)
    calls = list(rows.order_by("step__number", "index"))
    call = next(each for each in calls if each.pk == decision.approval.execution_id)
    document = document_of(run, name_of(decision))
    said = f"{judgement.get_mark_display()}, it was judged: {decision.get_type_display().lower()} in {run.reference}."
    document |= {"description": said}
    if judgement.mark == _GOOD:
        return _as_it_was(document, decision, call, calls)
    return _otherwise(document, decision, call, calls)


def _as_it_was(
    document: dict[str, Any], decision: Decision, call: ToolExecution, calls: Sequence[ToolExecution]
) -> dict[str, Any]:
    """The call is asked about and decided as it was, whatever becomes of the rest."""
    expect: dict[str, Any] = document.get("expect", {})
    if all(each["tool"] != call.name for each in expect.get("routing", [])):
        expect["routing"] = [*expect.get("routing", []), _asked(decision, call)]
    if decision.type not in _LET_RUN and not _was_called(call.name, calls):
        expect["tools_not_called"] = [call.name]
    return document | {"kind": "ask", "expect": expect}


def _otherwise(
    document: dict[str, Any], decision: Decision, call: ToolExecution, calls: Sequence[ToolExecution]
) -> dict[str, Any]:
    """What should not have run does not: people reject it, if no rule has refused it. What should have run does."""
    until = [each for each in calls if each.step.number <= call.step.number]
    before = [each for each in until if each.pk != call.pk]
    tools = recording.mocks_of([each for each in until if has_begun(each)])
    expect: dict[str, Any]
    if decision.type in _LET_RUN:
        kind, decide = "refuse", "reject"
        # Of a tool that was called besides it can only be said that this very call is not let through.
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
    """What people said about calls up to this one, and about this one the other thing."""
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
    """That people are asked about this call, by its arguments as far as they may stand in a case."""
    request = decision.approval
    arguments = recording.arguments_of(call, call.proposed_text or call.arguments_text)
    said: dict[str, Any] = {"tool": call.name, "verdict": "ask", "customer": request.asks_customer}
    said["groups"] = sorted(group.name for group in request.groups.all())
    return said | ({"arguments": arguments} if isinstance(arguments, dict) else {})


def _was_called(tool: str, calls: Sequence[ToolExecution]) -> bool:
    return any(call.name == tool and has_begun(call) for call in calls)
