"""What every page's frame shows: where to go, how many requests wait, who is signed in, how it looks."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, DateTimeField, Q, QuerySet, Subquery, Value
from django.db.models.functions import JSONObject
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentapp import discretion, health, release
from agentapp.console import filters, queue
from agentapp.models import Preferences
from approvals import entitlement
from approvals.prepared import Given

# Requests with less time left than this add the dot to the favicon.
DUE_WITHIN = timedelta(minutes=5)
# This many pages have a tab on a phone, next to More.
TABS = 4
_LOOKS = ("theme", "density", "single_keys")


class Forbidden(PermissionDenied):
    """Raised when a right is missing. The resulting page names the right and who can help."""

    def __init__(self, message: str, right: str) -> None:
        super().__init__(message)
        self.right = right


@dataclass(frozen=True)
class Place:
    """A page of the console in rail, tab bar and palette. `key` follows G; `sections` are the routes it stands for.

    `right` names the rights that lead there; one of them is enough.
    """

    label: str
    route: str
    icon: str
    sections: tuple[str, ...]
    key: str = ""
    right: str = ""
    staff: bool = False
    # At the foot of the rail; behind More on a phone.
    foot: bool = False


PLACES = (
    Place("Inbox", "inbox", "inbox", ("inbox", "approvals", "outcomes"), "i"),
    Place("Runs", "runs", "runs", ("runs",), "r"),
    Place("Audit trail", "audit", "audit", ("audit",), "a", "approvals.view_event"),
    Place("Insights", "insights", "insights", ("insights",), "d", "agentapp.view_insights"),
    Place("Evals", "evals", "check", ("evals",), "", "agentapp.view_evalrun"),
    Place("Tools", "tools", "tools", ("tools", "changes"), "t", "agentapp.view_tool"),
    Place("Controls", "switches", "stop", ("switches",), "c", "agentapp.engage_killswitch"),
    Place("Grants", "grants", "timer", ("grants",), "", "approvals.view_grant approvals.add_grant"),
    Place("Settings", "settings", "settings", ("settings",), "s", foot=True),
    Place("Admin", "admin:index", "lock", ("admin",), staff=True, foot=True),
)


@dataclass(frozen=True)
class Shown:
    """A place as it is shown on a page."""

    place: Place
    url: str
    current: bool
    # On a phone: shown as a tab. The others are behind More.
    tab: bool = False


@dataclass(frozen=True)
class Frame:
    """What a page's frame shows about its reader: the waiting requests they may see, and their settings."""

    waiting: int = 0
    # Requests they have claimed, and those due soon.
    mine: int = 0
    due: int = 0
    look: Preferences = field(default_factory=Preferences)


def context(request: HttpRequest) -> dict[str, Any]:
    """For every template. Each value is looked up only if a template uses it."""
    frame = SimpleLazyObject(lambda: frame_of(request))
    return {
        "workspace": settings.WORKSPACE_NAME,
        "release": SimpleLazyObject(release.fingerprint),
        "places": SimpleLazyObject(lambda: places(request)),
        "frame": frame,
        "look": SimpleLazyObject(lambda: frame.look),
        "unwell": SimpleLazyObject(health.last_known),
        "waiting_count": SimpleLazyObject(lambda: frame.waiting),
    }


def signed_in(request: HttpRequest) -> User:
    """The person asking. Every console page except sign-in requires one."""
    return cast(User, request.user)


def places(request: HttpRequest) -> list[Shown]:
    """Where this person can go. Pages they may not open or that are not installed are left out."""
    user, match = getattr(request, "user", None), request.resolver_match
    if user is None or not user.is_authenticated:
        return []
    here = match.route.partition("/")[0] if match is not None else ""
    shown: list[Shown] = []
    for place in PLACES:
        if (place.staff and not user.is_staff) or (place.right and not any(map(user.has_perm, place.right.split()))):
            continue
        try:
            is_tab = not place.foot and len(shown) < TABS
            shown.append(Shown(place, reverse(place.route), here in place.sections, is_tab))
        except NoReverseMatch:
            continue
    return shown


def frame_of(request: HttpRequest) -> Frame:
    """In one query, since every page shows it."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return Frame()
    user = cast(User, user)
    row = _FRAMES.first(user, soon=timezone.now() + DUE_WITHIN)
    if row is None:
        raise User.DoesNotExist
    # The page needs to know whether anything is masked. Asking here saves a query later.
    discretion.note_marks(row["has_marks"])
    # No row of preferences: the defaults.
    chosen = {name: row[f"preferences__{name}"] for name in _LOOKS if row[f"preferences__{name}"] is not None}
    # None if nothing waits at all.
    return Frame(**(row["figures"] or {}), look=Preferences(**chosen))


def _framed(sight: entitlement.Sight, reader: entitlement.Person) -> QuerySet[User, dict[str, Any]]:
    """What is looked up for every page."""
    needs = filters.tab(filters.NEEDS, reader)
    figures = {
        "waiting": Count("pk", filter=needs),
        "mine": Count("pk", filter=filters.tab(filters.MINE, reader)),
        "due": Count("pk", filter=needs & Q(expires_at__lte=Given("soon", DateTimeField()))),
    }
    # Together, so that the waiting requests are read only once.
    waiting = queue.waiting_among(entitlement.seen(sight, reader)).annotate(all=Value(1)).values("all").order_by()
    found: QuerySet[User, dict[str, Any]] = (
        User.objects.filter(pk=reader)
        .annotate(
            figures=Subquery(waiting.annotate(figures=JSONObject(**figures)).values("figures")),
            has_marks=discretion.marks(),
        )
        .values("figures", "has_marks", *(f"preferences__{name}" for name in _LOOKS))
    )
    return found


_FRAMES = entitlement.Seen(_framed)


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The page to start with: the inbox for people who decide, runs for everybody else."""
    user = signed_in(request)
    return redirect("inbox" if user.has_perm("approvals.decide_approval") else "runs")


@require_safe
def counts(request: HttpRequest) -> JsonResponse:
    """The figures for the title, favicon and navigation, for `live.js`."""
    frame = frame_of(request)
    return JsonResponse({"waiting": frame.waiting, "mine": frame.mine, "due": frame.due})


@login_not_required
@never_cache
@require_safe
def session(request: HttpRequest) -> JsonResponse:
    """Who is signed in, and their form token, for a page whose session had ended. Never a redirect."""
    user = request.user
    return JsonResponse({"user": str(user.pk), "token": get_token(request)} if user.is_authenticated else {"user": ""})


@never_cache
@require_safe
def signed_in_again(request: HttpRequest) -> HttpResponse:
    """Where a sign-in leads if it was opened next to a page with unsaved work."""
    return render(request, "console/signed_in.html")


@login_not_required
@require_safe
def no_stream(request: HttpRequest) -> HttpResponse:
    """Reached only behind a WSGI server: under ASGI the stream answers before Django does."""
    return HttpResponse("The live stream needs an ASGI server.", status=503, content_type="text/plain")
