"""What every page's frame shows: the workspace's name, how many requests wait, who is signed in."""

from typing import Any, cast

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_safe

from agentapp import auth
from approvals.models import Approval


def context(request: HttpRequest) -> dict[str, Any]:
    """For every template. The count is looked up only where a template shows it."""
    return {
        "workspace": settings.WORKSPACE_NAME,
        "waiting_count": SimpleLazyObject(lambda: waiting_count(request)),
    }


def signed_in(request: HttpRequest) -> User:
    """The person asking. Every console page but sign-in requires one."""
    return cast(User, request.user)


def waiting_count(request: HttpRequest) -> int:
    """How many requests wait that this person may see."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return 0
    return auth.visible_approvals(cast(User, user)).filter(state=Approval.State.PENDING).count()


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The page a role starts with: deciding for those who decide, runs for everybody else."""
    user = signed_in(request)
    return redirect("inbox" if user.has_perm("approvals.decide_approval") else "runs")


@require_safe
def counts(request: HttpRequest) -> JsonResponse:
    """The figures in title, favicon and navigation, for `live.js`."""
    return JsonResponse({"waiting": waiting_count(request)})


@login_not_required
@require_safe
def no_stream(request: HttpRequest) -> HttpResponse:
    """Reached only behind a WSGI server: under ASGI the stream answers before Django does."""
    return HttpResponse("The live stream needs an ASGI server.", status=503, content_type="text/plain")
