"""The audit trail: who did what, when, on what evidence, how long it took and what it cost, with nothing left out."""

import uuid
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions, preferences
from agentapp.audit import finding, standing
from agentapp.audit.finding import Count, Page
from agentapp.audit.query import TEXT, Malformed, Query, parse
from agentapp.console import audit_choices, audit_record, audit_rows, audit_seen, judged, problems
from agentapp.console.parts import render_part, wants_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import SavedView
from approvals import entitlement, lens, text_search
from approvals.digest import load, storable
from approvals.models import Approval, Event
from approvals.places import Place

PAGE_NAME = "audit"
_CONFIG = "did:config"
TABS = (
    ("Everything", ""),
    ("Decisions", "did:decided"),
    ("Money moved", "did:moved-money"),
    ("Config changes", _CONFIG),
    ("Sign-ins", "did:sign-ins"),
)
# Greater than every key, so that this place comes after all events of its moment.
_LAST = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True)
class Tab:
    """One saved view among the tabs. Those that come with the product have no row."""

    name: str
    query: str
    current: bool = False
    view: SavedView | None = None

    @property
    def url(self) -> str:
        return address(self.query)


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """The trail. `from` names the event it begins with. Problems in a query are named next to what was typed."""
    user = allowed(request)
    typed = _typed(request.GET)
    context: dict[str, Any] = {"typed": typed, "problems": [], "part_words": not text_search.by_words()}
    try:
        start = Place.read(request.GET["from"]) if request.GET.get("from") else None
    except ValueError:
        return problems.no_such_place(request, "from")
    try:
        asked = parse(typed)
        found = finding.find(asked, user)
    except Malformed as wrong:
        asked, shown = Query(), Page([])
        context |= {"problems": [(problem, address(problem.fixed)) for problem in wrong.problems], "count": None}
    else:
        shown = finding.page(found, start)
        context["count"] = _count(found, shown, start) if "count" in request.GET else _counted(shown, start)
    hidden = finding.hidden(user, shown.events)
    context |= {
        "asked": asked,
        "page": shown,
        "rows": audit_rows.lines(shown.events, hidden, user),
        "standing": standing.now(user),
        "chips": audit_choices.chips(asked),
        "has_text": bool(asked.of(TEXT)),
        **_tabs(user, typed),
        "at_top": start is None,
        "newer_url": address(typed, str(shown.newer)) if shown.newer else "",
        "older_url": address(typed, str(shown.older)) if shown.older else "",
        "news_url": _news_url(typed, shown),
        "count_url": f"{reverse('audit_count')}?{urlencode({'q': typed})}",
        "narrowed": not finding.sees_all(user) and bool(asked.terms),
    }
    return render_part(request, "console/audit.html", "trail", context)


@require_safe
def count(request: HttpRequest) -> HttpResponse:
    """How many events match, for a page that is already shown: counting may take longer than finding the first few."""
    user, typed = allowed(request), _typed(request.GET)
    if not wants_part(request):
        return redirect(f"{address(typed)}{'&' if typed else '?'}count=yes")
    try:
        number = finding.count(finding.find(parse(typed), user))
    except ValueError:  # the page says what is wrong
        return HttpResponseBadRequest("This query cannot be read.")
    return render(request, "console/_audit_count.html", {"count": number, "apart": True})


@never_cache
@require_safe
def news(request: HttpRequest) -> HttpResponse:
    """How many events have come since the page was shown, and nothing else about them."""
    user, typed, number = allowed(request), _typed(request.GET), 0
    try:
        since = Place.read(request.GET.get("after", ""))
        number = finding.find(parse(typed), user).filter(since.newer)[: finding.MOST_NEWS + 1].count()
    except ValueError:  # either the place or the query cannot be read
        return HttpResponseBadRequest("after names a place in the trail.")
    context = {"number": number, "top": address(typed), "news_url": request.get_full_path()}
    return render(request, "console/audit.html#news", context)


@require_safe
def event(request: HttpRequest, event_id: uuid.UUID) -> HttpResponse:
    """One event at its own address: the row opened, and its whole text."""
    user = allowed(request)
    found = _visible_or_404(user, event_id)
    around = Event.objects.filter(chain=found.chain, seq__in=(found.seq - 1, found.seq + 1)).only("id", "seq", "type")
    context = {
        **_opened(found, user),
        "body": load(found.body),
        "around": {("previous" if one.seq < found.seq else "next"): one for one in around},
    }
    return render(request, "console/audit_event.html", context)


@require_safe
def row(request: HttpRequest, event_id: uuid.UUID) -> HttpResponse:
    """The same, shown below its row."""
    user = allowed(request)
    return render(request, "console/audit.html#opened", _opened(_visible_or_404(user, event_id), user))


@require_safe
def event_json(request: HttpRequest, event_id: uuid.UUID) -> JsonResponse:
    """The event as it was written: the hashed text and the hashes."""
    found = _visible_or_404(allowed(request), event_id)
    said = {name: getattr(found, name) for name in ("chain", "seq", "type", "actor", "body", "previous_hash", "hash")}
    lens.leave_as_written()
    return JsonResponse({"id": str(found.pk), "at": found.at.isoformat(), "data": found.data, **said})


@require_safe
def as_seen(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """A request as somebody saw it when they decided. Nothing on it can be pressed."""
    # People who may not see a request are not told that it exists.
    if not entitlement.visible(signed_in(request)).filter(pk=approval_id).exists():
        raise Http404("There is no such request, or it is not for you to see.")
    user = allowed(request)
    try:
        seen = audit_seen.of(user, approval_id, request.GET.get("decision", ""))
    except Approval.DoesNotExist as error:
        raise Http404("There is no such request or decision, or it is not for you to see.") from error
    return render(request, "console/audit_as_seen.html", {"seen": seen, "approval": seen.approval})


@require_safe
def choices(request: HttpRequest, word: str) -> HttpResponse:
    """What a chip offers, each choice as the whole query it would make; in the menu, or on a page of its own."""
    user, typed = allowed(request), _typed(request.GET)
    if word not in audit_choices.OFFERED:
        raise Http404("There is nothing to choose from here.")
    try:
        asked = parse(typed)
    except Malformed:
        asked = Query()
    offered = [(label, address(str(line)), chosen) for label, line, chosen in audit_choices.offered(word, asked, user)]
    context = {"word": word, "label": audit_choices.LABELS[word], "offered": offered, "typed": typed}
    return render_part(request, "console/audit_choices.html", "list", context)


@require_http_methods(["GET", "HEAD", "POST"])
def views(request: HttpRequest) -> HttpResponse:
    """A person's saved queries, and those that others share; a post saves another."""
    user = allowed(request)
    typed = _typed(request.POST if request.method == "POST" else request.GET)
    name, shared = request.POST.get("name", ""), "shared" in request.POST
    context: dict[str, Any] = {"typed": typed, "name": name, "shared": shared}
    status = 200
    if request.method == "POST":
        try:
            parse(typed)
            preferences.save_view(user, PAGE_NAME, name, urlencode({"q": typed}), shared=shared)
            return redirect(address(typed))
        except actions.Refused as refused:
            context["refused"], status = refused.message, 422
        except Malformed as wrong:
            context["refused"], status = str(wrong), 422
    own = SavedView.objects.select_related("user").filter(page=PAGE_NAME)
    context["views"] = [(view, _line_of(view), view.user_id == user.pk) for view in preferences.seen(own, user)]
    return render(request, "console/audit_views.html", context, status=status)


@require_POST
def view_delete(request: HttpRequest, view_id: uuid.UUID) -> HttpResponse:
    """Delete a saved query. What was about to be saved is kept."""
    preferences.delete_view(allowed(request), view_id)
    typed = _typed(request.POST)
    return redirect(reverse("audit_views") + (f"?{urlencode({'q': typed})}" if typed else ""))


def allowed(request: HttpRequest) -> User:
    """The person asking, if they may read the ledger."""
    user = signed_in(request)
    if not user.has_perm("approvals.view_event"):
        raise Forbidden("The audit trail is for managers and administrators.", "approvals.view_event")
    return user


def address(typed: str, start: str = "") -> str:
    """The address of a query."""
    parts = {name: value for name, value in (("q", typed), ("from", start)) if value}
    return reverse("audit") + (f"?{urlencode(parts)}" if parts else "")


def _typed(given: QueryDict) -> str:
    return storable(given.get("q", "")).strip()


def _counted(shown: Page, start: Place | None) -> Count | None:
    """The count, where everything found fits on the page."""
    return Count(len(shown.events)) if start is None and shown.older is None else None


def _count(found: Any, shown: Page, start: Place | None) -> Count:
    return _counted(shown, start) or finding.count(found)


def _news_url(typed: str, shown: Page) -> str:
    after = shown.first or Place(timezone.now(), _LAST)
    return f"{reverse('audit_news')}?{urlencode({'q': typed, 'after': str(after)})}"


def _tabs(user: User, typed: str) -> dict[str, Any]:
    """The views as tabs. The current one is the longest whose whole query is part of what is asked."""
    kept = preferences.seen(SavedView.objects.filter(page=PAGE_NAME), user)
    tabs = [Tab(name, line) for name, line in TABS] + [Tab(view.name, _line_of(view), view=view) for view in kept]
    parts = set(typed.split())
    inside = [tab for tab in tabs if set(tab.query.split()) <= parts]
    current = max(inside, key=lambda tab: len(tab.query))
    return {
        "tabs": [replace(tab, current=tab is current) for tab in tabs],
        "on_config": current.query == _CONFIG,
        "may_save": bool(typed) and all(tab.query != typed for tab in tabs),
    }


def _line_of(view: SavedView) -> str:
    return QueryDict(view.query).get("q", "")


def _opened(found: Event, user: User) -> dict[str, Any]:
    """One event, and how the decision it records was judged afterwards."""
    record = audit_record.of(found, user)
    return {"record": record, **judged.context([record.decision] if record.decision else [], record.run, user)}


def _visible_or_404(user: User, event_id: uuid.UUID) -> Event:
    found = Event.objects.filter(pk=event_id).first()
    if found is None or finding.hidden(user, [found]):
        raise Http404("There is no such event, or it is not for you to see.")
    return found
