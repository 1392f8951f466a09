"""Calls whose outcome is unknown: a person finds out what happened and says so."""

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentapp import actions, auth
from agentapp.console.shell import signed_in
from agentapp.models import ToolExecution
from approvals.models import Event


def visible_or_404(user: object, execution_id: uuid.UUID) -> ToolExecution:
    """A call whose outcome is or was unknown, of a run this person may see.

    A person may have found out what became of it, or its answer may have come late.
    """
    found = ToolExecution.objects.select_related("run", "tool", "approval").filter(
        pk=execution_id,
        run__in=auth.visible_runs(user),  # type: ignore[arg-type]
    )
    execution = found.first()
    unknown = ToolExecution.State.OUTCOME_UNKNOWN
    if execution is None or (execution.state != unknown and not execution.outcome_note and not _was_lost(execution)):
        raise Http404("There is no such call, or its outcome has always been known.")
    return execution


def _was_lost(execution: ToolExecution) -> bool:
    return Event.objects.filter(execution_id=execution.pk, type="tool_call.outcome_unknown").exists()


@require_http_methods(["GET", "HEAD", "POST"])
def resolve(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """The call and the question. A post answers it."""
    user = signed_in(request)
    execution = visible_or_404(user, execution_id)
    context = {"execution": execution, "may_resolve": auth.may_resolve(user, execution.run)}
    if request.method != "POST":
        return render(request, "console/outcome.html", context)
    answer, note = request.POST.get("outcome", ""), request.POST.get("note", "")
    try:
        actions.resolve_outcome(execution_id, answer, note, user)  # type: ignore[arg-type]
    except actions.Refused as refused:
        execution.refresh_from_db()
        context.update(refused=refused, note=note, answer=answer)
        return render(request, "console/outcome.html", context, status=refused.status)
    return redirect(reverse("inbox"))
