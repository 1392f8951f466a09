"""Which past calls today's rules would have stopped: one slice of the past at a time, newest first."""

import uuid
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import hindsight
from agentapp.console import problems
from agentapp.console.changes import VIEW_RIGHT
from agentapp.console.shell import Forbidden, signed_in
from approvals.digest import storable

SINCE = {"24h": ("24 hours", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)),
         "30d": ("30 days", timedelta(days=30)), "90d": ("90 days", timedelta(days=90))}  # fmt: skip
USUAL = "7d"
MAX_CHARS = 120
MANY = 2


@require_safe
def what_if(request: HttpRequest) -> HttpResponse:
    """The page, at first for the last days. `before` names the call after which a slice begins."""
    user = signed_in(request)
    if not user.has_perm(VIEW_RIGHT):
        raise Forbidden("This page applies today's rules to past calls.", VIEW_RIGHT)
    since = request.GET.get("since", "") if request.GET.get("since") in SINCE else USUAL
    tool = storable(request.GET.get("tool", "")).strip()[:MAX_CHARS]
    place = request.GET.get("before", "")
    many = MANY if request.GET.get("people") == str(MANY) else 0
    context: dict[str, Any] = {
        "since": since,
        "tool_name": tool,
        "people": many,
        "spans": [(key, word) for key, (word, _) in SINCE.items()],
        "slice_size": hindsight.SLICE,
        "most_shown": hindsight.MAX_SHOWN,
        "before": place,
    }
    try:
        before = uuid.UUID(place) if place else None
    except ValueError:
        return problems.no_such_place(request, "before")
    calls = hindsight.executed(user).filter(proposed_at__gte=timezone.now() - SINCE[since][1])
    found = hindsight.stopped_today(calls.filter(name=tool) if tool else calls, before, many)
    context |= {"found": found, "groups": found.groups.most_common()}
    return render(request, "console/what_if.html", context)
