"""One run: what it did, why and for how much, and the brake."""

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from agentapp import actions, auth, lineage, trace, turns
from agentapp.compilers import said_before
from agentapp.console import controls, inspector, words
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.models import Message, Run, ToolExecution
from agentapp.trace import Row, Timeline
from approvals import ledger
from approvals.models import Approval, Event

STEPS_PER_PAGE = 200
EVENTS_PER_PAGE = 200
# Of the messages before this run's, as many are shown.
EARLIER_MESSAGES = 20
# Of its conversation's other runs, as many are linked.
SIBLINGS = 5
VIEWS = ("timeline", "conversation", "events")
_OPEN_APPROVALS = (Approval.State.PENDING, *Approval.DECIDED)


@require_safe
def run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The run's page, or its live part. `step` and `call` choose what the inspector shows."""
    user = signed_in(request)
    found = _find(user, run_id)
    line = trace.timeline(found, timezone.now(), user)
    view = request.GET.get("view", "")
    ahead = turns.ahead([found]).get(found.pk)
    context: dict[str, Any] = {
        "run": found,
        "line": line,
        "totals": line.totals,
        "view": view if view in VIEWS else VIEWS[0],
        "stopped": words.stopped(found) if found.is_final else "",
        "blocked": _blocked(line),
        "held_by": controls.held_by(found),
        "unknown": [row for row in line.rows if row.state == ToolExecution.State.OUTCOME_UNKNOWN],
        "may_resolve": auth.may_resolve(user, found),
        "may_cancel": not found.is_final and auth.may_cancel(user, found),
        "may_pause": not found.is_final and auth.may_pause(user, found),
        "may_raise_budget": auth.may_raise_budget(user, found),
        "family": lineage.cost_of_family(found) if any(row.subrun for row in line.rows) else None,
        "max_cost": found.agent_snapshot.get("max_cost"),
        "ahead": ahead,
        "may_see_ahead": ahead is not None and auth.visible_runs(user).filter(pk=ahead.pk).exists(),
        "siblings": _siblings(found, user),
        "here": request.get_full_path(),
    }
    more = {"timeline": _timeline, "conversation": _conversation, "events": _events}[context["view"]]
    context |= more(request, found, line)
    return render_part(request, "console/run.html", "run", context)


@require_safe
def run_json(request: HttpRequest, run_id: uuid.UUID, step: int, call: int, part: str) -> HttpResponse:
    """All of a call's arguments or result, as text: for what is too long for the page."""
    found = _find(signed_in(request), run_id)
    execution = trace.call_of(found, step, call)
    if execution is None or part not in inspector.PARTS:
        raise Http404
    return HttpResponse(inspector.full_text(execution, part), content_type="text/plain; charset=utf-8")


@require_http_methods(["GET", "HEAD", "POST"])
def run_cancel(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Ask first, saying what has already happened and stays; then cancel."""
    user = signed_in(request)
    found = _find(user, run_id)
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


def _find(user: User, run_id: uuid.UUID) -> Run:
    """The run, if this person may see it. Whether it exists is not told to others."""
    height = Event.objects.filter(chain=ledger.run_chain(run_id)).order_by("-seq").values("seq")[:1]
    runs = auth.visible_runs(user).select_related("agent", "starter", "conversation", "parent")
    return get_object_or_404(runs.annotate(event_count=Coalesce(Subquery(height), Value(0))), pk=run_id)


def _timeline(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    step, call = _number(request, "step"), _number(request, "call")
    chosen = inspector.choose(found, line, step, call)
    inspected = inspector.inspect(found, line, chosen) if chosen else None
    if chosen is None or inspected is None:
        raise Http404
    first = _number(request, "first") or _page_of(step or 1)
    totals = line.totals
    shares = [("model", totals.model_seconds), ("tool", totals.tool_seconds), ("failed", totals.failed_seconds)]
    return {
        "rows": line.of_steps(first, first + STEPS_PER_PAGE - 1),
        "earlier": max(1, first - STEPS_PER_PAGE) if first > 1 else None,
        "later": first + STEPS_PER_PAGE if first + STEPS_PER_PAGE <= found.step_count else None,
        "chosen": chosen,
        "inspected": inspected,
        "is_inspecting": step is not None,
        "shares": _shares(shares, totals.worked_seconds),
    }


def _conversation(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    first = _number(request, "first") or 1
    last = first + STEPS_PER_PAGE - 1
    steps = (
        found.steps.filter(number__range=(first, last)).order_by("number").only("number", "text", "finished_at", "run")
    )
    calls: dict[int, list[Row]] = {}
    for row in line.of_steps(first, last):
        if row.kind == "call":
            calls.setdefault(row.step, []).append(row)
    before: list[Message] = []
    if found.conversation_id and first == 1:
        # Only what this person may see: a conversation can hold other people's runs.
        before = said_before(found, auth.visible_messages(signed_in(request)))[-EARLIER_MESSAGES:]
    return {
        "before": before,
        "turns": [(step, calls.get(step.number, [])) for step in steps.defer("disclosed_tools", "provider_parts")],
        "first": first,
        "earlier": max(1, first - STEPS_PER_PAGE) if first > 1 else None,
        "later": last + 1 if last < found.step_count else None,
    }


def _events(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    chain = ledger.run_chain(found.pk)
    after = _number(request, "after") or 0
    events = list(Event.objects.filter(chain=chain, seq__gt=after).order_by("seq")[: EVENTS_PER_PAGE + 1])
    held, broken = ledger.verify(chain)
    return {
        "events": [(event, trace.said(event)) for event in events[:EVENTS_PER_PAGE]],
        "later": events[EVENTS_PER_PAGE - 1].seq if len(events) > EVENTS_PER_PAGE else None,
        "earlier": max(0, after - EVENTS_PER_PAGE) if after else None,
        "held": held,
        "broken": broken,
    }


def _siblings(found: Run, user: User) -> list[Run]:
    """The latest other runs of the conversation that this person may see, in their order."""
    if found.conversation_id is None:
        return []
    others = auth.visible_runs(user).filter(conversation=found.conversation_id).exclude(pk=found.pk)
    latest = others.order_by("-created_at").only("state", "title", "created_at")[:SIBLINGS]
    return list(reversed(latest))


def _blocked(line: Timeline) -> list[Row]:
    """The requests that keep the run from going on, decided or not."""
    return [
        row
        for row in line.rows
        if row.approval and row.approval.state in _OPEN_APPROVALS and row.approval.used_at is None
    ]


def _shares(parts: list[tuple[str, float]], whole: float) -> list[tuple[str, float, float]]:
    """Kind, where its bar begins and how wide it is, in percent. What took no time is left out."""
    placed, x = [], 0.0
    for kind, seconds in parts:
        width = 100 * seconds / whole if whole else 0.0
        if width:
            placed.append((kind, round(x, 2), round(width, 2)))
        x += width
    return placed


def _page_of(step: int) -> int:
    return (step - 1) // STEPS_PER_PAGE * STEPS_PER_PAGE + 1 if step > 0 else 1


def _number(request: HttpRequest, name: str) -> int | None:
    """A whole number from the address. What is none counts as not given."""
    raw = request.GET.get(name, "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 10 else None


def _cancelled_words(run: Run) -> str:
    if run.state == Run.State.CANCELLED:
        return "The run is cancelled. Its calls that had not started will not run."
    if run.is_final:
        return "The run had already ended; nothing was changed."
    return "The run stops before its next model or tool call."
