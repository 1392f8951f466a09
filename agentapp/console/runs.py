"""The list of runs: which are under way, which wait and for whom, what they cost."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import auth, starting
from agentapp.console import problems, words
from agentapp.console.counting import CountOf, in_words
from agentapp.console.parts import render_part
from agentapp.console.run_filters import SINCE, Filters
from agentapp.console.shell import signed_in
from agentapp.console.waiting_on import waiting_on
from agentapp.console.waterfall import waterfalls
from agentapp.models import Agent, Run
from agentapp.reasons import StopReason
from approvals.places import Place

PAGE = 50
# More new runs than this are shown as "99+": nobody counts them one by one.
MOST_NEWS = 99


@dataclass(frozen=True)
class Page:
    """Part of the list. `older` and `newer` are where the neighbouring parts begin, if there are any."""

    runs: list[Run]
    older: Place | None
    newer: Place | None
    news: int
    column: str

    @property
    def first(self) -> Place | None:
        return Place.of(self.runs[0], self.column) if self.runs else None


@dataclass(frozen=True)
class Line:
    """One run of the list: whom it waits for, in words; its last steps, drawn; what this person may do with it."""

    run: Run
    waiting: str
    bars: Sequence[tuple[str, str]]
    may_cancel: bool
    may_pause: bool
    """Or resume it, if it is paused."""
    may_retry: bool


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """The list. `from` names the run it begins with, so that nothing moves while it refreshes itself."""
    user = signed_in(request)
    filters = Filters.read(request)
    try:
        start = Place.read(request.GET["from"], filters.column) if request.GET.get("from") else None
    except ValueError:
        return problems.no_such_place(request, "from")
    visible = auth.visible_runs(user)
    page = _page(filters.narrow(visible), start, filters.column)
    at_top = start is None or request.GET.get("top") == "1"
    context = {
        "page": page,
        "rows": _lines(page.runs, user),
        "at_top": at_top,
        "filters": filters,
        "counts": _counts(visible, filters, user),
        "agents": list(Agent.objects.order_by("name").values_list("name", flat=True)),
        "reasons": [(str(reason), words.stop_reason(reason)) for reason in StopReason],
        "without": {name: _without(request, name) for name, _, _ in filters.shown},
        "again_key": uuid.uuid4(),
        "spans": [(key, shown) for key, (shown, _) in SINCE.items()],
        "may_start": auth.may_start(user),
        "api_url": request.build_absolute_uri("/api/v1/runs"),
        "key_url": _where_keys_are_made(user),
        # Sorted by activity, runs move up when something happens; otherwise nothing moves while the list refreshes.
        "refresh": _refresh(request, page, at_top) if not filters.sort else request.get_full_path(),
    }
    return render_part(request, "console/runs.html", "list", context)


def _where_keys_are_made(user: User) -> str:
    try:
        return reverse("settings")
    except NoReverseMatch:
        return reverse("admin:agentapp_apitoken_add") if user.is_staff else ""


def _lines(runs: Sequence[Run], user: User) -> list[Line]:
    drawn, braked = waterfalls(runs, timezone.now()), auth.braked(user, runs)
    return [
        Line(
            run,
            waiting,
            drawn.get(run.pk, ()),
            may_cancel=not run.is_final and auth.may_cancel(user, run),
            may_pause=not run.is_final
            and run.taken_over_by_id is None
            and auth.may_pause(user, run)
            and run.pk not in braked,
            may_retry=run.state in (Run.State.FAILED, Run.State.STOPPED) and starting.may_try_again(user, run),
        )
        for run, waiting in zip(runs, waiting_on(runs), strict=True)
    ]


def _without(request: HttpRequest, name: str) -> str:
    """The query of the list without one of its filters."""
    query = request.GET.copy()
    for gone in (name, "from", "top"):
        query.pop(gone, None)
    return f"?{query.urlencode()}"


def _refresh(request: HttpRequest, page: Page, at_top: bool) -> str:
    """The query for exactly this part of the list."""
    query = request.GET.copy()
    for name, value in {"from": str(page.first or ""), "top": "1" if at_top and page.first else ""}.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"?{query.urlencode()}"


def _page(found: QuerySet[Run], start: Place | None, column: str) -> Page:
    stretch = found.filter(start.here_and_older) if start else found
    shown = list(
        stretch.select_related("agent", "starter", "conversation")
        .defer("agent_snapshot", "input", "script", "metadata", "answer", "stop_message", "conversation__summary")
        .order_by(f"-{column}", "-id")[: PAGE + 1]
    )
    older = Place.of(shown[PAGE], column) if len(shown) > PAGE else None
    if start is None:
        return Page(shown[:PAGE], older, None, 0, column)
    # Going up, the previous part begins one page's length above this one.
    above = list(found.filter(start.newer).order_by(column, "id").only(column, "id")[: max(PAGE, MOST_NEWS + 1)])
    newer = Place.of(above[min(PAGE, len(above)) - 1], column) if above else None
    return Page(shown[:PAGE], older, newer, len(above), column)


def _counts(visible: QuerySet[Run], filters: Filters, user: User) -> list[tuple[str, str, str]]:
    """Each state with its word and its number of runs, under the other filters. One query."""
    narrowed = replace(filters, state="").narrow(visible)
    each = [CountOf(narrowed.filter(state=state)) for state in Run.State.values]
    counted = User.objects.filter(pk=user.pk).values_list(*each).get()
    return [(state, str(word), in_words(n)) for (state, word), n in zip(Run.State.choices, counted, strict=True)]
