"""Asking for a call to be taken back, and how a call and the one that takes it back name each other."""

import uuid
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentapp import actions, auth, undoing
from agentapp.console.shell import signed_in
from agentapp.models import Run, ToolExecution
from approvals.masking import masked


@dataclass(frozen=True)
class Undoing:
    """Whether a call can be taken back, and the run that was begun to do so, last."""

    may: bool
    run: Run | None
    bars: str = ""
    """Why it cannot be asked for again. Empty: nobody has asked, or nothing came of it."""


def of(execution: ToolExecution | None, user: User) -> Undoing | None:
    """None: nothing is to be said of it. A query for a call whose tool names a way back and that took effect, another
    where that was asked for and has ended.
    """
    if execution is None or undoing.hindrance(execution):
        return None
    asked = undoing.asked_for(execution)
    if asked is None:
        return Undoing(undoing.may_undo(user, execution), None)
    return Undoing(not asked.bars and undoing.may_undo(user, execution), asked.run, asked.bars)


def undone_by(run: Run) -> ToolExecution | None:
    """The call that a run takes back. No query for a run that takes back none."""
    return None if run.undoes_id is None else ToolExecution.objects.select_related("run", "step").get(pk=run.undoes_id)


@require_http_methods(["GET", "HEAD", "POST"])
def undo_call(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """The call and what taking it back means; posted, the request for it."""
    user = signed_in(request)
    found = ToolExecution.objects.select_related("run", "step", "tool", "approval")
    execution = found.filter(pk=execution_id, run__in=auth.visible_runs(user)).first()
    if execution is None:
        raise Http404("There is no such call, or it is not for you to see.")
    why = request.POST.get("why", "")
    context = {
        "execution": execution,
        "hindrance": undoing.hindrance(execution),
        "undoing": of(execution, user),
        "result": masked(execution.value, execution.all_secret_fields),
        "why": why,
    }
    if request.method != "POST":
        return render(request, "console/undo_call.html", context)
    try:
        run = actions.undo_call(execution_id, why, user)
    except actions.Refused as refused:
        context |= {"refused": refused, "undoing": of(execution, user)}
        return render(request, "console/undo_call.html", context, status=refused.status)
    return redirect(reverse("run", args=[run.pk]))
