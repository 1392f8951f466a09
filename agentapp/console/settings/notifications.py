"""Of what somebody is told, and how; and a test that says of each way whether it works."""

from datetime import time
from http import HTTPStatus

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import preferences
from agentapp.console.settings.sections import NOTIFICATIONS, page, saved
from agentapp.console.shell import signed_in
from agentapp.refused import Refused
from approvals import people
from approvals.channels.base import ChannelError
from approvals.models import Notification, Risk

Kind = Notification.Kind
ROWS = (
    (Kind.WAITING, "A request waits for my team"),
    (Kind.HANDED, "A request was handed to me"),
    (Kind.DUE_SOON, "A request of mine is due soon"),
    (Kind.FAILED, "A call failed that I approved"),
    (Kind.ANSWERED, "My question was answered"),
    (Kind.REMINDED, "A request for my team still waits"),
    (Kind.ESCALATED, "My team may decide a request now, too"),
    (Kind.MENTIONED, "Somebody mentions me in a comment"),
)
TESTED = "tested"


@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponse:
    user, refused = signed_in(request), None
    if request.method == "POST":
        try:
            ways, quiet = _chosen(request.POST), _quiet(request.POST)
            least = request.POST.get("least_risk", Risk.LOW)
            preferences.set_notifications(user, ways, quiet, "shows" in request.POST, least)
        except Refused as error:
            refused = error
        else:
            return saved(request, NOTIFICATIONS)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
    return page(request, NOTIFICATIONS, _context(user) | {"refused": refused}, status)


@require_POST
def test(request: HttpRequest) -> HttpResponse:
    """Send a message to oneself, now, and say of each way what became of it. The browser's is for its script."""
    user = signed_in(request)
    if not user.email:
        said = "Mail: not sent. Your profile has no address."
    else:
        try:
            people.send_test(user)
            said = f"Mail: the mail server took it for {user.email}."
        except ChannelError as error:
            said = f"Mail: not sent. {error}"
    messages.info(request, said, extra_tags=TESTED)
    return redirect(NOTIFICATIONS.url)


def _chosen(form: QueryDict) -> dict[str, list[str]]:
    return {kind: [way for way in preferences.WAYS if f"{kind}-{way}" in form] for kind, _ in ROWS}


def _quiet(form: QueryDict) -> tuple[time, time] | None:
    begin, end = form.get("quiet_from", ""), form.get("quiet_until", "")
    if not begin and not end:
        return None
    try:
        return time.fromisoformat(begin), time.fromisoformat(end)
    except ValueError as error:
        raise Refused("invalid", "Quiet hours need two times, as in 22:00 and 07:00.", "quiet_from") from error


def _context(user: User) -> dict[str, object]:
    chosen = preferences.of(user)
    rows = []
    for kind, words in ROWS:
        told = preferences.ways(chosen, kind)
        rows.append({"kind": kind, "words": words, "ways": [(way, way in told) for way in preferences.WAYS]})
    risks = [
        (Risk.LOW, "Any"),
        *((risk, f"{risk.label} or higher") for risk in (Risk.MEDIUM, Risk.HIGH)),
        (Risk.CRITICAL, "Critical"),
    ]
    return {"chosen": chosen, "rows": rows, "risks": risks}
