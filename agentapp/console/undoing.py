"""Asking for a call to be taken back, and how a call and the one that takes it back refer to each other."""

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
    """Whether a call can be taken back, and the last run that was started to do so."""

    may: bool
    run: Run | None
    bars: str = ""
    """Why it cannot be asked for again. Empty: nobody has asked, or nothing came of it."""
    earlier: tuple[Run, ...] = ()
    """Earlier runs that asked for it and ended without doing anything, oldest first."""


@dataclass(frozen=True)
class TakenBack:
    """The call that a run takes back."""

    call: ToolExecution
    earlier: tuple[Run, ...]
    """Earlier runs that asked for it and ended without doing anything, oldest first."""


def of(execution: ToolExecution | None, user: User) -> Undoing | None:
    """None: there is nothing to say. One query for a call that took effect and whose tool can undo it, and another if
    that was asked for and has ended.
    """
    if execution is None or undoing.hindrance(execution):
        return None
    asked = undoing.asked_for(execution)
    if asked is None:
        return Undoing(undoing.may_undo(user, execution), None)
    may = not asked.bars and undoing.may_undo(user, execution)
    return Undoing(may, asked.run, asked.bars, asked.earlier)


def undone_by(run: Run) -> TakenBack | None:
    """None: the run takes back no call; then without a query."""
    if run.undoes_id is None:
        return None
    begun = Run.objects.filter(undoes=run.undoes_id, created_at__lte=run.created_at).order_by("created_at")
    *earlier, own = begun.select_related("undoes__run", "undoes__step")
    assert own.undoes is not None
    return TakenBack(own.undoes, tuple(earlier))


@require_http_methods(["GET", "HEAD", "POST"])
def undo_call(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """The call and what taking it back means. A post asks for it."""
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
