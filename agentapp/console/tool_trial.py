"""Trying a tool: its arguments as a form, what would happen to the call, and proposing it for real."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentapp import actions, auth, trying
from agentapp.console import call_form, dry_run, schemas
from agentapp.console.call_form import Filled
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.console.tool import find, head
from agentapp.console.tools import may_view
from agentapp.models import Agent, Tool, ToolExecution
from agentapp.trying import Trial
from approvals import lens
from approvals.step_up import NEEDS

TRY_RIGHT = "agentapp.try_tool"
DRY, REAL = "dry", "real"
_WRITTEN = ("why", "customer", "as")


@dataclass(frozen=True)
class Name:
    """For whom a call can be tried: an agent, on one of its routes or none."""

    value: str
    label: str
    agent: Agent
    route: str = ""


@require_http_methods(["GET", "HEAD", "POST"])
def trial(request: HttpRequest, name: str) -> HttpResponse:
    """The form. A post shows what would happen to the call, or starts a run that proposes it."""
    may_view(request)
    tool, user, post = find(name), signed_in(request), request.POST
    is_posted = request.method == "POST"
    wanted = post.get("act", "") if is_posted else ""
    if wanted == REAL and not trying.may_try(user):
        raise Forbidden("Trying a tool for real starts a run of an agent.", TRY_RIGHT)
    begin, left_out = _begin(tool, request, user)
    filled = call_form.filled(tool, begin, post if is_posted else None, check=wanted in (DRY, REAL))
    names = _names(tool)
    chosen = next((each for each in names if each.value == post.get("as")), names[0] if names else None)
    context = {**_context(request, tool, filled, names, chosen), "left_out": left_out}
    if chosen is None or wanted not in (DRY, REAL) or filled.is_wrong or trying.hindrance(tool):
        status = 422 if wanted == REAL else 200
        return render_part_with(request, context, status)
    call = Trial(tool, chosen.agent, filled.arguments, chosen.route, post.get("customer", ""), post.get("why", ""))
    if wanted == REAL:
        return _propose(request, call, user, context)
    found = trying.rehearse(call, user, looks=context["looks"])
    context |= {
        "found": found,
        "preview": dry_run.read(found.preview_text, lens.hidden(tool.secret_fields, tool.pii_fields)),
        "shows": NEEDS.get(found.step_up, "nothing beyond being signed in"),
        "has_hooks": bool(chosen.agent.hooks),
        "fresh": uuid.uuid4(),
    }
    return render_part_with(request, context)


def render_part_with(request: HttpRequest, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
    """The page, or its part. Only the page gets the status, since parts are swapped in whatever they say."""
    response = render_part(request, "console/tool_try.html", "request", dict(context))
    if "HX-Request-Type" not in request.headers:
        response.status_code = status
    return response


def _propose(request: HttpRequest, call: Trial, user: User, context: dict[str, Any]) -> HttpResponse:
    try:
        key = uuid.UUID(request.POST.get("request_key", ""))
    except ValueError:
        context["refused"] = "The form was sent without its key. Send it again."
        return render(request, "console/tool_try.html", context, status=422)
    try:
        run = actions.try_tool(call, user, key)
    except actions.Refused as refused:
        # The key stays with what it started. The next press is about what the form says now.
        context |= {"refused": refused.message, "refused_field": refused.field, "request_key": uuid.uuid4()}
        return render(request, "console/tool_try.html", context, status=refused.status)
    return redirect("run", run_id=run.pk)


def _context(
    request: HttpRequest, tool: Tool, filled: Filled, names: Sequence[Name], chosen: Name | None
) -> dict[str, Any]:
    user = signed_in(request)
    return {
        **head(tool),
        "filled": filled,
        "names": names,
        "chosen": chosen,
        "values": {name: request.POST.get(name, "") for name in _WRITTEN},
        "request_key": request.POST.get("request_key") or uuid.uuid4(),
        "draft_url": reverse("tool_try", args=[tool.name]),
        "hindrance": trying.hindrance(tool),
        "may_try": trying.may_try(user) and tool.is_in_use,
        "looks": auth.may_start(user),
    }


def _names(tool: Tool) -> list[Name]:
    found = []
    for agent in trying.agents_of(tool):
        found.append(Name(agent.name, agent.name, agent))
        for route in agent.routes.all():
            if any(each.pk == tool.pk for each in route.tools.all()):
                label = f"{agent.name}, on the route {route.name}"
                found.append(Name(f"{agent.name}:{route.name}", label, agent, route.name))
    return found


def _begin(tool: Tool, request: HttpRequest, user: User) -> tuple[dict[str, Any], list[str]]:
    """The form's initial values: from the schema, or the arguments of a call that this person may see.

    Also the names of the arguments left empty because they are masked for this person.
    """
    properties = schemas.properties(tool.input_schema)
    begin = {
        name: described[key]
        for name, described in properties.items()
        if isinstance(described, dict)
        for key in ("const", "default")
        if key in described
    }
    try:
        wanted = uuid.UUID(request.GET.get("from", ""))
    except ValueError:
        return begin, []
    if not user.has_perm("agentapp.view_toolexecution"):
        return begin, []
    seen = ToolExecution.objects.filter(run__in=auth.visible_runs(user))
    call = seen.filter(pk=wanted, tool=tool).first()
    given = call_form.seen(tool, call) if call is not None else None
    if not isinstance(given, dict):
        return begin, []
    left_out = [name for name, value in given.items() if call_form.is_masked(value)]
    return begin | {name: value for name, value in given.items() if name not in left_out}, left_out
