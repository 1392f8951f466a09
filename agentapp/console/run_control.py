"""What people do to a run: pause and resume it, allow it more, cancel it, start it again."""

import uuid
from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import actions, auth
from agentapp.console import typed_text
from agentapp.console.problems import Problem
from agentapp.console.shell import signed_in
from agentapp.models import Run
from approvals.digest import storable


@require_POST
def run_pause(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    return act_on(request, run_id, lambda user: _paused_words(actions.pause_run(run_id, user)))


@require_POST
def run_resume(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    def resume(user: User) -> str:
        actions.resume_run(run_id, user)
        return "The run goes on where it was."

    return act_on(request, run_id, resume)


@require_POST
def run_budget(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Allow the typed amount, with or without a dollar sign. 2,50 is 2.50; 1,234 is refused as ambiguous."""

    typed = storable(request.POST.get("amount", "")[:40])

    def allow(user: User) -> str:
        try:
            amount = typed_text.decimal(typed.strip(" $"))
        except typed_text.Unreadable as problem:
            raise actions.Refused("invalid", f"The run was allowed no more. {problem}", "amount") from problem
        actions.raise_budget(run_id, amount, user)
        return f"The run may cost ${amount:f} more."

    return act_on(request, run_id, allow, typed={"amount": typed})


@require_POST
def run_again(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Try a run again as a new run by the person asking: from its beginning, or from the step `first`."""
    user = signed_in(request)
    first = request.POST.get("first", "1")
    # All buttons of the page share one key.
    given = storable(request.POST.get("request_key", "")[:100])
    try:
        if not first.isdecimal() or len(first) > 9:
            raise actions.Refused("invalid", "Give the number of the step to start from.", "first")
        started = actions.retry_run(run_id, user, int(first), f"{given}-{run_id}-{first}" if given else "")
    except actions.Refused as refused:
        if refused.code == "not_found":
            raise Http404 from refused
        messages.error(request, f"No new run was started. {refused.message}")
        return redirect("run", run_id=run_id)
    of = started.retry_of.reference if started.retry_of else ""
    kept = f" What that one did before step {started.steps_kept + 1} counts as done." if started.steps_kept else ""
    messages.success(request, f"This is a new run with the input of {of}.{kept}")
    return redirect("run", run_id=started.pk)


@require_http_methods(["GET", "HEAD", "POST"])
def run_cancel(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Ask first, saying what has already happened and stays so; then cancel."""
    user = signed_in(request)
    found = get_object_or_404(auth.visible_runs(user).select_related("agent"), pk=run_id)
    refusal, status = "", 200
    if request.method == "POST":
        try:
            cancelled = actions.cancel_run(found.pk, user)
        except actions.Refused as refused:
            refusal, status = refused.message, 403
        else:
            messages.success(request, _cancelled_words(cancelled))
            return redirect("run", run_id=found.pk)
    calls = found.executions.filter(started_at__isnull=False).select_related("step").order_by("step__number", "index")
    context = {
        "run": found,
        "ran": [call for call in calls.defer("result_text", "arguments_text") if call.consequential],
        "may_cancel": auth.may_cancel(user, found),
        "refusal": refusal,
    }
    return render(request, "console/run_cancel.html", context, status=status)


def act_on(
    request: HttpRequest,
    run_id: uuid.UUID,
    act: Callable[[User], str],
    then: str = "run",
    typed: dict[str, str] | None = None,
) -> HttpResponse:
    """Act on a run this person may see, say how it went, and show its page or the one named by `then`.

    A list stays where it is and refreshes itself, so it is told only why something was not done. `typed`: what the
    page's fields contain again if it was not done.
    """
    user = signed_in(request)
    if not auth.visible_runs(user).filter(pk=run_id).exists():
        raise Http404
    try:
        said = act(user)
    except actions.Refused as refused:
        if request.htmx:  # type: ignore[attr-defined]
            problem = Problem("This was not done.", refused.message, is_final=True)
            return render(request, "console/_failed.html", {"problem": problem}, status=403)
        messages.error(request, refused.message)
        return redirect(reverse(then, args=[run_id], query=typed))
    else:
        # A kept message would appear on the next page that shows messages, which is about another run.
        if request.htmx:  # type: ignore[attr-defined]
            return HttpResponse(status=204)
        messages.success(request, said)
    return redirect(then, run_id=run_id)


def _paused_words(run: Run) -> str:
    if run.state == Run.State.PAUSED:
        return "The run is paused. Its requests stay open, and nothing runs until it is resumed."
    return "The run pauses before its next model or tool call."


def _cancelled_words(run: Run) -> str:
    if run.state == Run.State.CANCELLED:
        return "The run is cancelled. Its calls that had not started will not run."
    if run.is_final:
        return "The run had already ended; nothing was changed."
    return "The run stops before its next model or tool call."
