"""The inbox: what needs a person, in what order, decided without leaving."""

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agentapp import auth
from agentapp.console import card, outcome, queue
from agentapp.console.shell import signed_in
from agentapp.models import ToolExecution
from approvals.models import Approval


@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """The queue and, beside it, the request in question: the one asked for, else the first."""
    user, filters = signed_in(request), queue.Filters.read(request.GET)
    after = request.GET.get("after", "")
    unknown: list[ToolExecution] = []
    if filters.view == queue.DECIDED:
        listed = queue.decided(user, filters, after)
    else:
        listed = queue.waiting(user, filters, after)
        unknown = [] if after else queue.unknown_outcomes(user)
    context: dict[str, Any] = {
        "filters": filters,
        "queue": listed,
        "unknown": unknown,
        "first_page": not after,
        "decided_count": queue.decided_today(user),
    }
    chosen = _chosen(request, listed)
    if chosen is None and unknown:
        context["execution"] = unknown[0]
        context["may_resolve"] = auth.may_resolve(user, unknown[0].run)
    elif chosen is not None:
        context.update(card.context(chosen, user), peek=True, filters=filters)
    if decided := queue.read_ids([request.GET.get("decided", "")]):
        context["toast"] = card.held_by(user, decided[0])
    return render(request, "console/inbox.html", context)


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    """The queue again, for a page that shows it: known rows in their places, a count of the new."""
    user, filters = signed_in(request), queue.Filters.read(request.GET)
    listed = queue.as_shown(user, filters, queue.read_ids(request.GET.getlist("shown")), request.GET.get("last", ""))
    context = {
        "filters": filters,
        "queue": listed,
        "unknown": queue.unknown_outcomes(user) if request.GET.get("first") else [],
        "first_page": bool(request.GET.get("first")),
        "chosen": next(iter(queue.read_ids([request.GET.get("id", "")])), None),
    }
    return render(request, "console/inbox.html#rows", context)


@require_safe
def peek(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """One request, as it stands beside the queue."""
    user = signed_in(request)
    approval = card.visible_or_404(user, approval_id)
    filters = queue.Filters.read(request.GET)
    context = {**card.context(approval, user), "peek": True, "filters": filters}
    return render(request, "console/inbox.html#peek", context)


@require_safe
def peek_outcome(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """One call whose outcome is unknown, as it stands beside the queue."""
    user = signed_in(request)
    execution = outcome.visible_or_404(user, execution_id)
    context = {"execution": execution, "may_resolve": auth.may_resolve(user, execution.run)}
    return render(request, "console/inbox.html#peek", context)


def _chosen(request: HttpRequest, listed: queue.Queue) -> Approval | None:
    """The request shown in the preview. Somebody else's id in the address shows nothing of it."""
    user = signed_in(request)
    wanted = queue.read_ids([request.GET.get("id", "")])
    if wanted:
        return card.visible(user).filter(pk=wanted[0]).first()
    if not listed.rows:
        return None
    return card.visible(user).filter(pk=listed.rows[0].pk).first()
