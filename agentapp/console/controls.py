"""What is stopped, by people or automatically: kill switches and breakers."""

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import actions, auth, switches
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import Agent, Breaker, KillSwitch, Run, Tool


@require_http_methods(["GET", "HEAD", "POST"])
def controls(request: HttpRequest) -> HttpResponse:
    """Every switch and every breaker; a post engages a switch."""
    user = signed_in(request)
    if not auth.may_stop(user):
        raise Forbidden("Controls stop agents, tools or everything at once.", "agentapp.engage_killswitch")
    if request.method != "POST":
        return render(request, "console/switches.html", _context())
    scope, _, key = request.POST.get("target", "").partition(":")
    try:
        engaged = actions.engage_switch(scope, key, request.POST.get("reason", ""), user)
    except actions.Refused as refused:
        return _refused(request, refused)
    messages.success(request, f"{switches.describe(engaged)} No new model or tool call that it covers will start.")
    return redirect("switches")


@require_POST
def release(request: HttpRequest, switch_id: uuid.UUID) -> HttpResponse:
    """Let what a switch stopped go on."""
    try:
        woken = actions.release_switch(switch_id, signed_in(request), request.POST.get("note", ""))
    except actions.Refused as refused:
        return _refused(request, refused)
    messages.success(request, f"Released. Runs that check again now: {woken}.")
    return redirect("switches")


@require_POST
def reset(request: HttpRequest, breaker_id: uuid.UUID) -> HttpResponse:
    """Close a breaker by hand, with a reason."""
    user, reason = signed_in(request), request.POST.get("reason", "").strip()
    if not reason and auth.may_stop(user):
        why = "Say why: the reason stays on record."
        return _refused(request, actions.Refused("message_required", why, "reason"), refused_breaker=breaker_id)
    try:
        breaker = actions.reset_breaker(breaker_id, user, reason)
    except actions.Refused as refused:
        return _refused(request, refused)
    messages.success(request, f"The breaker of {breaker.key} is closed; calls go through again.")
    return redirect("insights_reliability" if request.POST.get("next") == "insights" else "switches")


def held_by(run: Run) -> list[str]:
    """What keeps a run from going on while it waits for a kill switch, in sentences."""
    if run.waiting_for != Run.WaitingFor.SWITCH or run.is_final:
        return []
    return [switches.describe(switch) for switch in switches.holding(run)]


def _refused(request: HttpRequest, refused: actions.Refused, **about: Any) -> HttpResponse:
    if refused.code == "forbidden":
        raise Forbidden(refused.message, "agentapp.engage_killswitch")
    chosen = {"refused": refused, "target": request.POST.get("target", ""), "reason": request.POST.get("reason", "")}
    return render(request, "console/switches.html", _context() | chosen | about, status=refused.status)


def _context() -> dict[str, Any]:
    engaged = list(KillSwitch.objects.select_related("engaged_by"))
    return {
        "engaged": engaged,
        "all_stopped": any(switch.scope == KillSwitch.Scope.ALL for switch in engaged),
        "held": len(switches.waiting()),
        "breakers": Breaker.objects.order_by("scope", "key"),
        "agents": Agent.objects.order_by("name").values_list("name", flat=True),
        "tools": Tool.objects.filter(missing_since__isnull=True).order_by("name").values_list("name", flat=True),
    }
