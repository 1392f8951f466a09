"""One run: what it did, why, at what cost, and the brake."""

import uuid
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from agentapp import auth, discretion, lineage, starting, takeover, trace, turns
from agentapp.console import controls, inspector, personal, run_views, undoing, words
from agentapp.console.parts import render_part, wants_part
from agentapp.console.shell import signed_in
from agentapp.models import Run, ToolExecution
from agentapp.timeline import Timeline, timeline
from agentapp.trace_rows import Row
from approvals import ledger
from approvals.models import Approval, Event

# At most this many other runs of its conversation are linked.
SIBLINGS = 5
# The same for its forks and replays.
BRANCHES = 12
_OPEN_APPROVALS = (*Approval.UNDECIDED, *Approval.DECIDED)
# The templates of the page's own parts, by the id of the element each replaces.
_PARTS = {"inspector": "console/_run_inspector.html", "more": "console/_run_rows.html"}


@require_safe
def run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The run's page, its live part, or of that only the inspector or more rows.

    `step` and `call` choose what the inspector shows, `waits` and `open` what is unfolded, `q` what is marked.
    """
    user = signed_in(request)
    found = _find(user, run_id)
    line = timeline(found, timezone.now(), user, waits_folded=request.GET.get("waits") != "open")
    view = request.GET.get("view", "")
    context: dict[str, Any] = {
        "run": found,
        "line": line,
        "totals": line.totals,
        "view": view if view in run_views.VIEWS else "timeline",
        "may_resolve": auth.may_resolve(user, found),
        "may_start_again": starting.may_try_again(user, found),
        "may_branch": starting.may_begin_from(user, found),
        "branches": _branches(found, user),
        "goes_on_at": found.step_count + 1 if line.stopped_midway else 0,
        "again_key": uuid.uuid4(),
        "again_label": "Run again" if found.state == Run.State.SUCCEEDED else "Retry as a new run",
        **personal.of(request, found.pk),
    }
    context |= run_views.VIEWS[context["view"]](request, found, line)
    part = _PARTS.get(request.headers.get("HX-Target", "").rpartition("#")[2]) if wants_part(request) else None
    if part and context["view"] == "timeline":
        response = render(request, part, context)
    else:
        response = render_part(
            request, "console/run.html", "run", context | _head(user, found, line) | _beside(user, found, context)
        )
    patch_vary_headers(response, ["HX-Request-Type", "HX-Target"])
    return response


@require_safe
def run_json(request: HttpRequest, run_id: uuid.UUID, step: int, call: int, part: str) -> HttpResponse:
    """All of a call's arguments or its result, as text, when it is too long for the page."""
    found = _find(signed_in(request), run_id)
    execution = trace.call_of(found, step, call)
    if execution is None or part not in inspector.PARTS:
        raise Http404
    return HttpResponse(inspector.full_text(execution, part), content_type="text/plain; charset=utf-8")


def _find(user: User, run_id: uuid.UUID) -> Run:
    """The run, if this person may see it. Others are not told whether it exists."""
    height = Event.objects.filter(chain=ledger.run_chain(run_id)).order_by("-seq").values("seq")[:1]
    related = ("agent", "starter", "conversation", "parent", "retry_of", "taken_over_by")
    runs = auth.visible_runs(user).select_related(*related)
    runs = runs.annotate(event_count=Coalesce(Subquery(height), Value(0)), has_marks=discretion.marks())
    runs = runs.annotate(has_branches=Exists(Run.objects.filter(retry_of=OuterRef("pk")).exclude(branch="")))
    found = get_object_or_404(runs, pk=run_id)
    discretion.note_marks(found.has_marks)  # type: ignore[attr-defined]
    return found


def _branches(found: Run, user: User) -> list[Run]:
    """The latest forks and replays of a run that this person may see. Needs no query if the run has none."""
    if not found.has_branches:  # type: ignore[attr-defined]
        return []
    theirs = auth.visible_runs(user).filter(retry_of=found.pk).exclude(branch="")
    shown = ("state", "title", "branch", "steps_kept", "calls_kept", "mocks", "retry_of", "created_at")
    return list(theirs.order_by("-created_at").only(*shown)[:BRANCHES])


def _head(user: User, found: Run, line: Timeline) -> dict[str, Any]:
    """What is shown above every view of the run."""
    ahead = turns.ahead([found]).get(found.pk)
    is_taken = found.taken_over_by_id is not None
    held_back = takeover.held_back(user, found) if is_taken else ""
    braked = auth.brake(user, found)
    may_pause = not found.is_final and auth.may_pause(user, found)
    return {
        "stopped": words.stopped(found) if found.is_final else "",
        "blocked": _blocked(line),
        "held_by": controls.held_by(found),
        "unknown": line.calls_in(ToolExecution.State.OUTCOME_UNKNOWN),
        "may_cancel": not found.is_final and auth.may_cancel(user, found),
        "may_pause": may_pause,
        "may_resume": may_pause and not braked,
        "braked": braked if may_pause else "",
        "target": found,
        "takes_back": undoing.undone_by(found),
        "may_take_over": not found.is_final and auth.offers_take_over(user, found, _is_asked(user, found, line)),
        "may_hand_back": is_taken and auth.may_hand_back(user, found) and not held_back,
        "held_back": held_back,
        "may_raise_budget": auth.may_raise_budget(user, found),
        "family": lineage.cost_of_family(found) if line.has_subruns else None,
        "max_cost": found.agent_snapshot.get("max_cost"),
        "ahead": ahead,
        "may_see_ahead": ahead is not None and auth.visible_runs(user).filter(pk=ahead.pk).exists(),
    }


def _beside(user: User, found: Run, shown: dict[str, Any]) -> dict[str, Any]:
    """The other runs of the conversation. Left out during a search, to save a query."""
    return {"siblings": [] if shown.get("found") else _siblings(found, user)}


def _is_asked(user: User, found: Run, line: Timeline) -> bool:
    """Whether this person seems to be asked about a call, judged from the page; the action checks more closely."""
    decides = user.has_perm("approvals.decide_approval") and found.starter_id != user.pk
    asked = (row.approval for row in line.requests if row.approval and row.approval.state in Approval.UNDECIDED)
    return decides and any(getattr(approval, "openable", False) for approval in asked)


def _siblings(found: Run, user: User) -> list[Run]:
    """The latest other runs of the conversation that this person may see, in order."""
    if found.conversation_id is None:
        return []
    others = auth.visible_runs(user).filter(conversation=found.conversation_id).exclude(pk=found.pk)
    latest = others.order_by("-created_at").only("state", "title", "created_at")[:SIBLINGS]
    return list(reversed(latest))


def _blocked(line: Timeline) -> list[Row]:
    """The requests that keep the run from going on, decided or not."""
    return [
        row
        for row in line.requests
        if row.approval and row.approval.state in _OPEN_APPROVALS and row.approval.used_at is None
    ]
