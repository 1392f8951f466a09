"""How the console looks, and whether single keys do something."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from agentapp import preferences
from agentapp.console.settings.sections import APPEARANCE, KEYS, page, saved
from agentapp.console.shell import places, signed_in
from agentapp.models import Preferences
from agentapp.refused import Refused

# The console's keys, for people who look them up here. Each page's ? sheet shows those that work there.
EVERYWHERE = (
    ("?", "The keys of this page"),
    ("Ctrl K or ⌘K", "Palette: every page and every action"),
    ("/", "Find on this page"),
    ("J K or ↓ ↑", "Next, previous row"),
    ("Enter or O", "Open"),
    ("U", "Back to the list"),
    (".", "Show the new rows"),
    ("Z", "Undo my last decision"),
    ("Esc", "Close"),
)
ON_A_REQUEST = (
    ("A", "Approve; at high risk Enter confirms"),
    ("E", "Edit the arguments"),
    ("R", "Reject: 1 to 4 picks a reason, Ctrl ↵ or ⌘↵ sends"),
    ("Q", "Ask the agent"),
    ("T", "Take over the run"),
    ("C", "Claim or release"),
    ("H", "Hand to a person or team"),
    ("S", "Snooze"),
    ("1 to 9", "Jump to evidence"),
    ("V", "Form, Diff, JSON"),
    ("F", "Focus mode"),
)


@require_http_methods(["GET", "HEAD", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    if request.method == "POST":
        preferences.set_keys(user, "single_keys" in request.POST)
        return saved(request, KEYS)
    reached = [shown.place for shown in places(request) if shown.place.key]
    letters = ", ".join(place.key.upper() for place in reached)
    going = (f"G, then {letters}", ", ".join(place.label for place in reached))
    context = {"chosen": preferences.of(user), "everywhere": (*EVERYWHERE, going), "on_a_request": ON_A_REQUEST}
    return page(request, KEYS, context)


@require_http_methods(["GET", "HEAD", "POST"])
def appearance(request: HttpRequest) -> HttpResponse:
    user, refused = signed_in(request), None
    if request.method == "POST":
        try:
            preferences.set_looks(user, request.POST.get("theme", ""), request.POST.get("density", ""))
        except Refused as error:
            refused = error
        else:
            return saved(request, APPEARANCE)
    context = {
        "chosen": preferences.of(user),
        "themes": Preferences.Theme.choices,
        "densities": Preferences.Density.choices,
        "refused": refused,
    }
    return page(request, APPEARANCE, context, HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK)
