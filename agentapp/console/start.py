"""Starting a run from the console: with a message, or in the agent's form if it has one."""

import json
import shlex
import uuid
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import actions, auth
from agentapp.console import schema_form
from agentapp.console.given import Given, given
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.models import Agent, Route, Run
from approvals.digest import MalformedJSON, parse, storable
from approvals.masking import STILL_MASKED, with_masks

_SCRIPT_HINT = (
    '[{"tool_calls": [{"id": "1", "name": "get_order", "arguments": {"order_id": 1001}}]}, {"text": "Done."}]'
)
_FORM_BUTTONS = {"choose", "add", "remove"}
# The fields of the form that have the same name as an input of the action.
_FIELDS = {"agent", "route", "input", "customer", "conversation", "script"}


class RunForm(forms.Form):
    """Reads what was typed. The action decides whether it makes a run."""

    agent = forms.CharField(max_length=80, error_messages={"required": "Choose an agent."})
    route = forms.CharField(max_length=80, required=False)
    input = forms.CharField(
        max_length=actions.MAX_INPUT_CHARS, strip=False, error_messages={"required": "Write what the agent should do."}
    )
    title = forms.CharField(max_length=400, required=False)
    customer = forms.CharField(max_length=200, required=False)
    conversation = forms.CharField(max_length=200, required=False)
    script = forms.CharField(required=False)
    request_key = forms.UUIDField(error_messages={"required": "The form was sent without its key; send it again."})

    def clean_script(self) -> list[Any] | None:
        text = self.cleaned_data["script"].strip()
        if not text:
            return None
        try:
            script = parse(text)
        except MalformedJSON as error:
            raise forms.ValidationError(str(error)) from error
        if not isinstance(script, list):
            raise forms.ValidationError("A script is a JSON list of replies.")
        return script

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for name in ("input", "customer", "conversation", "script"):
            if with_masks(given.get(name)):
                self.add_error(name, STILL_MASKED)
        return given

    def new_run(self) -> actions.NewRun:
        given = self.cleaned_data
        return actions.NewRun(
            agent=given["agent"],
            input=given["input"],
            title=given["title"],
            route=given["route"],
            customer=given["customer"],
            conversation=given["conversation"],
            script=given["script"],
            request_key=str(given["request_key"]),
        )


@require_http_methods(["GET", "HEAD", "POST"])
def run_new(request: HttpRequest) -> HttpResponse:
    """The form, and the run it starts, shown as its conversation or its trace. A hidden key keeps a second press from
    starting another.
    """
    user = signed_in(request)
    if not auth.may_start(user):
        return render(request, "console/run_new_forbidden.html", status=403)
    if request.method != "POST":
        form = RunForm(initial={"request_key": uuid.uuid4(), **{name: request.GET.get(name, "") for name in _FIELDS}})
        return render(request, "console/run_new.html", _context(request, form))
    # The form's own buttons only change the form. Without script, an agent's form appears on the next page.
    asked_for_form = not _FORM_BUTTONS.isdisjoint(request.POST)
    filled = _filled(request.POST, check=not asked_for_form)
    if asked_for_form:
        context = _context(request, RunForm(initial=request.POST.dict()), filled)
        return render_part(request, "console/run_new.html", "parts", context)
    form = RunForm(_data(request.POST, filled))
    if form.is_valid():
        try:
            started = actions.start_run(form.new_run(), user)
        except actions.Refused as refused:
            form = _with_refusal(form, refused, user)
        else:
            return redirect("run_chat" if started.conversation_id else "run", run_id=started.pk)
    return render(request, "console/run_new.html", _context(request, form, filled), status=422)


@require_POST
def run_new_parts(request: HttpRequest) -> HttpResponse:
    """The parts that depend on the rest of the form as it is now: routes, and the command."""
    if not auth.may_start(signed_in(request)):
        return render(request, "console/run_new_forbidden.html", status=403)
    filled = _filled(request.POST, check=False)
    return render(
        request, "console/run_new.html#parts", _context(request, RunForm(initial=request.POST.dict()), filled)
    )


def _filled(post: QueryDict, *, check: bool) -> Given | None:
    """What was given in the chosen agent's form. None: it has no form."""
    agent = Agent.objects.filter(name=storable(post.get("agent", "")), enabled=True).first()
    # A form that was not on the page is shown empty, and nothing is called wrong yet.
    shown = post if schema_form.SHOWN in post else None
    return given(agent, shown, check=check) if agent is not None else None


def _data(post: QueryDict, filled: Given | None) -> QueryDict:
    """What was posted, with the input that results from a form."""
    if filled is None:
        return post
    data = post.copy()
    data["input"], data["title"] = filled.input, filled.title
    return data


def _context(request: HttpRequest, form: RunForm, filled: Given | None = None) -> dict[str, Any]:
    values = {name: form[name].value() or "" for name in form.fields}
    routes = Prefetch("routes", queryset=Route.objects.order_by("name"))
    agents = list(Agent.objects.filter(enabled=True).order_by("name").prefetch_related(routes))
    # A single agent need not be chosen.
    chosen = next((agent for agent in agents if agent.name == values["agent"]), agents[0] if len(agents) == 1 else None)
    if chosen is not None and filled is None:
        filled = given(chosen, None, check=False)
    # Text typed for another agent is kept next to the form.
    values["input"] = request.POST.get("input", "") if filled else values["input"]
    return {
        "form": form,
        "values": {**values, "request_key": values["request_key"] or uuid.uuid4()},
        "agents": agents,
        "chosen": chosen,
        "filled": filled,
        "scripts_allowed": settings.ALLOW_SCRIPTED_RUNS,
        "script_hint": _SCRIPT_HINT,
        "curl": _curl(
            request.build_absolute_uri("/api/v1/runs"), values | ({"input": filled.input or "…"} if filled else {})
        ),
    }


def _curl(url: str, values: dict[str, Any]) -> str:
    """The same request as a command. It names the reader's token but never contains it."""
    body: dict[str, Any] = {name: str(values[name]) for name in ("agent", "input", "route", "customer", "conversation")}
    body = {name: value for name, value in body.items() if value or name in ("agent", "input")}
    if str(values["script"]).strip():
        try:
            body["script"] = parse(str(values["script"]))
        except MalformedJSON:
            body["script"] = "…"
    return " \\\n  ".join(
        [
            f"curl {shlex.quote(url)}",
            '-H "Authorization: Bearer $COUNTERSIGN_TOKEN"',
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}",
        ]
    )


def _with_refusal(form: RunForm, refused: actions.Refused, user: User) -> RunForm:
    """The form again, with errors at their fields and nothing lost."""
    if refused.code != "idempotency_key_reused":
        field = refused.field.partition("/")[0]
        form.add_error(field if field in _FIELDS else None, refused.message)
        return form
    # The page stayed open after it had started a run, and then changed: this is a new request.
    earlier = Run.objects.filter(starter=user, request_key=str(form.cleaned_data["request_key"])).first()
    data = QueryDict(mutable=True)
    data.update(form.data)
    data["request_key"] = str(uuid.uuid4())
    again = RunForm(data)
    again.is_valid()
    again.add_error(
        None,
        format_html(
            'This form has already started <a href="{}">a run</a>. Send it once more to start another.',
            reverse("run", args=[earlier.pk]) if earlier else reverse("runs"),
        ),
    )
    return again
