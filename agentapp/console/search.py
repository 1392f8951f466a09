"""The palette: finding the pages, requests, runs, agents and tools a person may see, by a few letters.

The actions of the page it is opened on come from that page's own table of keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from agentapp import auth, discretion
from agentapp.console import shell
from agentapp.console.parts import render_part
from agentapp.models import Agent, Tool
from approvals.digest import storable
from approvals.models import Approval

MAX_CHARS = 100
# One letter matches everything.
MIN_CHARS = 2
SHOWN = 6
# Titles and references are not indexed, so only the latest requests and runs are searched.
LATEST = 2000
LOOKED_AT = 50


@dataclass(frozen=True)
class Found:
    """One search result."""

    label: str
    url: str
    icon: str
    sub: str = ""
    key: str = ""
    # The state of a request or a run, shown instead of the icon.
    state: str = ""


@dataclass(frozen=True)
class Kind:
    """Results of one kind, under its name."""

    name: str
    found: list[Found]


@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """The palette's list, or a page of its own for a browser without script."""
    user = shell.signed_in(request)
    text = storable(request.GET.get("q", "").strip())[:MAX_CHARS]
    kinds = [Kind("Go to", list(_pages(request, user, text)))]
    if len(text) >= MIN_CHARS:
        kinds += [
            Kind("Requests", list(_requests(user, text))),
            Kind("Runs", list(_runs(user, text))),
            Kind("Agents", list(_agents(user, text))),
            Kind("Tools", list(_tools(user, text))),
        ]
    context = {"text": text, "kinds": [kind for kind in kinds if kind.found], "latest": LATEST}
    context["is_palette"] = bool(request.headers.get("HX-Request"))
    return render_part(request, "console/search.html", "found", context)


@require_safe
def by_reference(request: HttpRequest, reference: str) -> HttpResponse:
    """Lead from the short name that people pass on to its page, if this person may see it."""
    user = shell.signed_in(request)
    if reference.casefold().startswith("apr-"):
        return _lead(reference, "approval", _latest(auth.visible_approvals(user)).filter(_ends(reference, "apr-")))
    return _lead(reference, "run", _latest(auth.visible_runs(user)).filter(_ends(reference, "run_")))


def _lead[M: Model](reference: str, route: str, named: QuerySet[M]) -> HttpResponse:
    match list(named.values_list("pk", flat=True)[:2]):
        case []:
            raise Http404("None of the latest has this name.")
        case [one]:
            return redirect(route, one)
    return redirect(reverse("search", query={"q": reference}))


def _pages(request: HttpRequest, user: User, text: str) -> Iterable[Found]:
    for shown in shell.places(request):
        place = shown.place
        if text.casefold() in place.label.casefold():
            yield Found(place.label, shown.url, place.icon, key=place.key)
    if auth.may_start(user) and text.casefold() in "start a run":
        yield Found("Start a run", reverse("run_new"), "plus")


def _requests(user: User, text: str) -> Iterable[Found]:
    named = Q(title__icontains=text) | Q(final_title__icontains=text) | _ends(text, "apr-")
    found = list(_latest(auth.visible_approvals(user)).filter(named).order_by("-created_at")[: _most()])
    if discretion.hides():
        found = discretion.legible(text, ((row, row.run_id, f"{row.shown_title}\n{row.reference}") for row in found))
    for approval in found[:SHOWN]:
        url = reverse("approval", args=[approval.pk])
        yield Found(approval.shown_title, url, "inbox", approval.reference, state=_state(approval))


def _runs(user: User, text: str) -> Iterable[Found]:
    named = Q(title__icontains=text) | _ends(text, "run_")
    latest = _latest(auth.visible_runs(user)).filter(named).order_by("-created_at")
    found = list(latest.only("id", "title", "state")[: _most()])
    if discretion.hides():
        found = discretion.legible(text, ((row, row.pk, f"{row.title}\n{row.reference}") for row in found))
    for run in found[:SHOWN]:
        yield Found(run.title, reverse("run", args=[run.pk]), "runs", run.reference, state=run.state)


def _most() -> int:
    """How many to read: if titles are masked, matches that this reader may not see drop out."""
    return LOOKED_AT if discretion.hides() else SHOWN


def _agents(user: User, text: str) -> Iterable[Found]:
    if not user.has_perm("agentapp.view_run"):
        return
    for name in Agent.objects.filter(name__icontains=text).order_by("name").values_list("name", flat=True)[:SHOWN]:
        yield Found(name, reverse("runs", query={"agent": name}), "user", "Runs of this agent")


def _tools(user: User, text: str) -> Iterable[Found]:
    if not user.has_perm("agentapp.view_tool"):
        return
    for tool in Tool.objects.filter(name__icontains=text).order_by("name").only("name")[:SHOWN]:
        yield Found(tool.name, reverse("tool", args=[tool.name]), "tools", "Tool")


def _latest[M: Model](rows: QuerySet[M]) -> QuerySet[M]:
    return rows.filter(pk__in=rows.order_by("-created_at").values("pk")[:LATEST])


def _ends(text: str, prefix: str) -> Q:
    """The condition that a text is a reference, which is the end of a key."""
    end = text.casefold().removeprefix(prefix)
    is_one = len(end) == 6 and all(char in "0123456789abcdef" for char in end)
    return Q(pk__iendswith=end) if is_one else Q(pk__in=[])


def _state(approval: Approval) -> str:
    return "edited" if approval.state == Approval.State.APPROVED and approval.is_edited else approval.state
