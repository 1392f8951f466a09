"""A page that cannot be shown: what happened, what did not happen, what to do. As a page or as part of one."""

import logging
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.http import Http404, HttpRequest, HttpResponse
from django.middleware.csrf import REASON_NO_CSRF_COOKIE
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme

from agentapp.console.shell import Forbidden
from approvals.database import AWAY, was_given_up

log = logging.getLogger(__name__)

# At most this many people who can help are named.
_HELPERS = 3
# Django's "staff" is not a permission of its own.
_STAFF = "staff"
# The admin's pages, by the end of their names, and the least right that each needs.
_ACTS = {"changelist": "view", "history": "view", "change": "view", "add": "add", "delete": "delete"}
_UNREADABLE = "This request cannot be read"
_OURS = "Something went wrong here, and it has been logged. What was under way was not saved."
_ITS = (
    "It may be away, busy, or accept no changes now. Before you repeat what was under way, see whether it was saved: "
    "most likely it was not. Requests go on waiting, and nothing is approved by itself."
)
_TOO_LONG = (
    "The database gave it up, and nothing was saved. If you searched for something, ask for less, or for a shorter "
    "time. Otherwise, try again in a moment: something else may have been in the way."
)
_GONE = {
    "approvals": "There is no such request, or it is not for you to see.",
    "runs": "There is no such run, or it is not for you to see.",
    "tools": "There is no tool of that name.",
}


@dataclass(frozen=True)
class Problem:
    """Why there is nothing to see. `again` offers to try again, `right` names what is missing.

    `is_final`: another try would end the same, so not even a part of a page offers one.
    """

    title: str
    words: str
    again: bool = False
    is_final: bool = False
    icon: str = "alert"
    right: str = ""
    roles: list[str] = field(default_factory=list)
    helpers: list[User] = field(default_factory=list)
    back: str = ""
    reference: str = ""
    request: str = ""


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 400, Problem(_UNREADABLE, "Nothing was changed. Go back and send it once more."))


def no_such_place(request: HttpRequest, name: str) -> HttpResponse:
    """For a list whose address names where its page begins."""
    words = f"“{name}” in the address names no place in this list. Leave it out to begin at the top."
    return _answer(request, 400, Problem(_UNREADABLE, words))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Names the right that is missing, who has it, and who can give it."""
    words = str(exception) or "This needs a right that you do not have."
    right = exception.right if isinstance(exception, Forbidden) else _right_of_admin(request)
    name, roles, helpers = _who_can_help(right) if _is_signed_in(request) else ("", [], [])
    if right == _STAFF:
        words, name = "The administration is where agents, tools and rules are configured.", "open the administration"
    problem = Problem("This is not open to you", words, icon="lock", right=name, roles=roles, helpers=helpers)
    return _answer(request, 403, problem)


def _right_of_admin(request: HttpRequest) -> str:
    """The right that a page of the admin needed, since the admin refuses without saying why. Empty for other pages."""
    match = request.resolver_match
    if match is None or match.namespace != "admin" or not _is_signed_in(request):
        return ""
    if not (request.user.is_active and request.user.is_staff):
        return _STAFF
    app, _, page = (match.url_name or "").partition("_")
    model, _, act = page.rpartition("_")
    return f"{app}.{_ACTS[act]}_{model}" if model and act in _ACTS else ""


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    section = request.path.strip("/").partition("/")[0]
    words = _GONE.get(section, "There is no such page, or it is not for you to see.")
    return _answer(request, 404, Problem("There is nothing here", words, icon="search"))


class FoundNothing:
    """Middleware that answers with `not_found` also where DEBUG is on, as in the demo. Django would list every address
    there, and tell somebody who may not see a request where in the code that was decided.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        is_no_address = response.status_code == 404 and request.resolver_match is None
        return not_found(request, Http404()) if settings.DEBUG and is_no_address else response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The answer where a view found nothing. Without DEBUG, Django asks `not_found` itself, and logs it."""
        return not_found(request, exception) if settings.DEBUG and isinstance(exception, Http404) else None


def say_what_is_no_page(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware for people who open an address meant for a button, as by reloading or after signing in. They read that
    nothing was done and get a link to its page. Answers to programs say what is wrong already.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code != 405 or request.method not in ("GET", "HEAD") or response.content:
            return response
        words = "A button sends to this address. Opening it sends nothing: nothing was done or changed just now."
        problem = Problem(
            "There is nothing to open here", words, is_final=True, icon="search", back=_page_above(request)
        )
        answer = _answer(request, 405, problem)
        answer.headers["Allow"] = response.headers["Allow"]
        return answer

    return middleware


def _page_above(request: HttpRequest) -> str:
    """The page this address belongs to: its request's or run's, else the nearest one above. Empty: the first page."""
    named = request.resolver_match.kwargs if request.resolver_match is not None else {}
    for name, page in (("approval_id", "approval"), ("run_id", "run")):
        if name in named:
            return reverse(page, args=[named[name]])
    parts = request.path.strip("/").split("/")
    for length in range(len(parts) - 1, 0, -1):
        above = f"/{'/'.join(parts[:length])}/"
        try:
            resolve(above)
        except Resolver404:
            continue
        return above
    return ""


def session_changed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form with the wrong token: somebody signed in or out since its page was opened."""
    words = "Nothing was sent. You signed in or out since this page was opened. Go back and send it again."
    if reason == REASON_NO_CSRF_COOKIE:
        words = "Nothing was sent. The browser keeps no cookies for this site; allow them, go back and send it again."
    return _answer(request, 403, Problem("Your session has changed", words, icon="user", back=page_of(request)))


def broken(request: HttpRequest) -> HttpResponse:
    """Our own failure, or the database's. Makes no query, so it can be shown when the database fails."""
    reference = f"E-{secrets.token_hex(4).upper()}"
    # A request that failed early has no id yet.
    request_id = getattr(request, "request_id", "")
    failure, error, _ = sys.exc_info()
    name = failure.__name__ if failure else "an error"
    # Django logs the traceback next to this line.
    log.error("%s: %s %s failed with %s", reference, request.method, request.path, name)
    title, words, status = "This did not work", _OURS, 500
    if failure is not None and issubclass(failure, AWAY):
        title, words, status = "The database does not answer", _ITS, 503
        if error is not None and was_given_up(error):
            title, words = "This took too long", _TOO_LONG
    problem = Problem(title, words, again=True, reference=reference, request=request_id)
    is_part = bool(request.headers.get("HX-Request"))
    template = "console/_failed.html" if is_part else "console/broken.html"
    try:
        text = render_to_string(template, {"problem": problem, "workspace": settings.WORKSPACE_NAME})
    except Exception:
        log.exception("%s: its page failed too", reference)
        return HttpResponse(f"{words} Reference: {reference}", status=status, content_type="text/plain")
    return HttpResponse(text, status=status)


def _answer(request: HttpRequest, status: int, problem: Problem) -> HttpResponse:
    if request.headers.get("HX-Request"):
        return render(request, "console/_failed.html", {"problem": problem}, status=status)
    frame = "console/base.html" if _is_signed_in(request) else "console/bare.html"
    return render(request, "console/problem.html", {"problem": problem, "frame": frame}, status=status)


def _is_signed_in(request: HttpRequest) -> bool:
    """Whether somebody is signed in. A request that is refused early has no user yet."""
    user = getattr(request, "user", None)
    return user is not None and bool(user.is_authenticated)


def _who_can_help(right: str) -> tuple[str, list[str], list[User]]:
    """The right in people's words, the roles that carry it, and some people who can give it."""
    app, _, codename = right.partition(".")
    permission = Permission.objects.filter(content_type__app_label=app, codename=codename).first()
    roles = Group.objects.filter(permissions=permission).order_by("name") if permission else Group.objects.none()
    helpers = User.objects.with_perm("auth.change_user", backend="django.contrib.auth.backends.ModelBackend")
    name = permission.name.removeprefix("Can ") if permission else ""
    return name, list(roles.values_list("name", flat=True)), list(helpers.order_by("username")[:_HELPERS])


def page_of(request: HttpRequest) -> str:
    """The path of our page from which something was posted; else the first page."""
    referrer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referrer, {request.get_host()}, request.is_secure()):
        return "/"
    parts = urlsplit(referrer)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path or "/"
