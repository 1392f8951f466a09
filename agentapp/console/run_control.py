"""What people do to a run under way: put it aside, let it go on, allow it more. One button each, no page."""

import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from agentapp import actions, auth
from agentapp.console.shell import signed_in
from agentapp.models import Run


@require_POST
def run_pause(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    return _act(request, run_id, lambda user: _paused_words(actions.pause_run(run_id, user)))


@require_POST
def run_resume(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    def resume(user: User) -> str:
        actions.resume_run(run_id, user)
        return "The run goes on where it was."

    return _act(request, run_id, resume)


@require_POST
def run_budget(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Allow the amount that was typed; a comma or a dollar sign is no reason to refuse it."""

    def allow(user: User) -> str:
        try:
            amount = Decimal(request.POST.get("amount", "").strip().lstrip("$").replace(",", ""))
        except InvalidOperation:
            raise actions.Refused("invalid", "Give an amount in dollars, as in 2.50.", "amount") from None
        actions.raise_budget(run_id, amount, user)
        return f"The run may cost ${amount} more."

    return _act(request, run_id, allow)


def _act(request: HttpRequest, run_id: uuid.UUID, act: Callable[[User], str]) -> HttpResponse:
    """Do it, say how it went, and show the run."""
    user = signed_in(request)
    if not auth.visible_runs(user).filter(pk=run_id).exists():
        raise Http404
    try:
        messages.success(request, act(user))
    except actions.Refused as refused:
        messages.error(request, refused.message)
    return redirect("run", run_id=run_id)


def _paused_words(run: Run) -> str:
    if run.state == Run.State.PAUSED:
        return "The run is paused. Its requests stay open, and nothing runs until it is resumed."
    return "The run pauses before its next model or tool call."
