"""The list of runs: which are going on, which wait and for whom, what they took."""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.views.decorators.http import require_safe

from agentapp import auth, turns
from agentapp.console import words
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.models import Agent, Run
from agentapp.reasons import StopReason
from approvals.digest import storable
from approvals.models import Approval

PAGE = 50
# More new runs than this are "99+": nobody counts them one by one.
MOST_NEWS = 99


@dataclass(frozen=True)
class Cursor:
    """A place in the list, the newest first: that of one run."""

    created_at: datetime
    id: uuid.UUID

    @classmethod
    def of(cls, run: Run) -> "Cursor":
        return cls(run.created_at, run.pk)

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """Raises ValueError for what no list has written."""
        moment, _, key = text.partition("_")
        created_at = datetime.fromisoformat(moment)
        try:
            created_at = created_at.astimezone(UTC) if created_at.tzinfo else created_at
        except OverflowError as error:
            raise ValueError("no run is as old or as young as that") from error
        if created_at.tzinfo is None:
            raise ValueError("a place in the list has a time zone")
        return cls(created_at, uuid.UUID(key))

    def __str__(self) -> str:
        return f"{self.created_at.isoformat()}_{self.id}"

    @property
    def here_and_older(self) -> Q:
        """Written so that the index on (created_at, id) serves it."""
        return Q(created_at__lte=self.created_at) & (Q(created_at__lt=self.created_at) | Q(id__lte=self.id))

    @property
    def newer(self) -> Q:
        return Q(created_at__gte=self.created_at) & (Q(created_at__gt=self.created_at) | Q(id__gt=self.id))


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to; empty means everything."""

    state: str = ""
    agent: str = ""
    reason: str = ""

    @classmethod
    def read(cls, request: HttpRequest) -> "Filters":
        state = request.GET.get("state", "")
        reason = request.GET.get("reason", "")
        return cls(
            state=state if state in Run.State.values else "",
            agent=storable(request.GET.get("agent", ""))[:80],
            reason=reason if reason in list(StopReason) else "",
        )

    @property
    def any(self) -> bool:
        return bool(self.state or self.agent or self.reason)

    @property
    def reason_words(self) -> str:
        return words.stop_reason(self.reason)

    def narrow(self, runs: QuerySet[Run]) -> QuerySet[Run]:
        if self.state:
            runs = runs.filter(state=self.state)
        if self.reason:
            runs = runs.filter(stop_reason=self.reason)
        return runs.filter(agent__name=self.agent) if self.agent else runs


@dataclass(frozen=True)
class Page:
    """A stretch of the list. `older` and `newer` are where the next stretches begin, if there are any."""

    runs: list[Run]
    older: Cursor | None
    newer: Cursor | None
    news: int

    @property
    def first(self) -> Cursor | None:
        return Cursor.of(self.runs[0]) if self.runs else None


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """The list. `from` names the run it begins with, so that nothing moves while it refreshes itself."""
    user = signed_in(request)
    filters = Filters.read(request)
    try:
        start = Cursor.read(request.GET["from"]) if request.GET.get("from") else None
    except ValueError:
        return HttpResponseBadRequest("from names a place in the list; leave it out to begin at the top.")
    visible = auth.visible_runs(user)
    page = _page(filters.narrow(visible), start)
    context = {
        "page": page,
        "rows": [(run, waiting) for run, waiting in zip(page.runs, _waiting_on(page.runs), strict=True)],
        "at_top": start is None or request.GET.get("top") == "1",
        "filters": filters,
        "counts": _counts(visible, filters),
        "agents": list(Agent.objects.order_by("name").values_list("name", flat=True)),
        "reasons": [(str(reason), words.stop_reason(reason)) for reason in StopReason],
        "may_start": auth.may_start(user),
        "api_url": request.build_absolute_uri("/api/v1/runs"),
    }
    context["refresh"] = _refresh(request, page, bool(context["at_top"]))
    return render_part(request, "console/runs.html", "list", context)


def _refresh(request: HttpRequest, page: Page, at_top: bool) -> str:
    """The query that asks for this very stretch again."""
    query = request.GET.copy()
    for name, value in {"from": str(page.first or ""), "top": "1" if at_top and page.first else ""}.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"?{query.urlencode()}"


def _page(found: QuerySet[Run], start: Cursor | None) -> Page:
    stretch = found.filter(start.here_and_older) if start else found
    shown = list(
        stretch.select_related("agent", "starter")
        .defer("agent_snapshot", "input", "script", "metadata", "answer", "stop_message")
        .order_by("-created_at", "-id")[: PAGE + 1]
    )
    older = Cursor.of(shown[PAGE]) if len(shown) > PAGE else None
    if start is None:
        return Page(shown[:PAGE], older, None, 0)
    # Going up, the stretch before this one begins a page's length above it.
    above = list(
        found.filter(start.newer).order_by("created_at", "id").only("created_at", "id")[: max(PAGE, MOST_NEWS + 1)]
    )
    newer = Cursor.of(above[min(PAGE, len(above)) - 1]) if above else None
    return Page(shown[:PAGE], older, newer, len(above))


def _counts(visible: QuerySet[Run], filters: Filters) -> list[tuple[str, str, int]]:
    """Each state with its word and how many runs are in it, within the other filters."""
    narrowed = replace(filters, state="").narrow(visible)
    counted = dict(narrowed.order_by().values_list("state").annotate(Count("pk")))
    return [(state, str(word), counted.get(state, 0)) for state, word in Run.State.choices]


def _waiting_on(runs: Sequence[Run]) -> list[str]:
    """Whom or what each run waits for, in words. Two queries for all of them."""
    waiting = [run.pk for run in runs if run.waiting_for == Run.WaitingFor.APPROVAL]
    pending: Counter[Any] = Counter()
    if waiting:
        open_ones = Approval.objects.filter(run_id__in=waiting, state=Approval.State.PENDING)
        pending.update(open_ones.values_list("run_id", flat=True))
    ahead = turns.ahead(runs)
    return [_waiting_words(run, pending[run.pk], ahead.get(run.pk)) for run in runs]


def _waiting_words(run: Run, pending: int, ahead: Run | None) -> str:
    if run.state == Run.State.QUEUED:
        return f"After {ahead.reference}" if ahead else "A worker"
    if run.waiting_for == Run.WaitingFor.SUBAGENT:
        return "Another agent"
    if run.waiting_for == Run.WaitingFor.OUTCOME:
        return "A person: outcome unknown"
    if run.waiting_for == Run.WaitingFor.BUDGET:
        return "A person: more budget"
    if run.state == Run.State.PAUSED:
        return "Somebody to resume it"
    if run.waiting_for == Run.WaitingFor.SWITCH:
        return "A kill switch"
    if run.waiting_for == Run.WaitingFor.APPROVAL:
        # None is open: the decision is held for a moment, and can still be undone.
        return {0: "Undo time", 1: "A person"}.get(pending, f"People: {pending} requests")
    return ""
