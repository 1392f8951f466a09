"""Whether this process is alive, whether it can serve, and what is wrong."""

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentapp import health
from agentapp.console.shell import signed_in


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """503 until the database answers and has its tables. Other problems are listed without naming rows, since anybody
    can ask.
    """
    problems = health.current()
    unavailable = any(problem.fatal for problem in problems)
    said = [{"code": one.code, "message": one.message, "means": one.means} for one in problems]
    status = "unavailable" if unavailable else "degraded" if problems else "ok"
    return JsonResponse({"status": status, "problems": said}, status=503 if unavailable else 200)


@never_cache
@require_safe
def wellbeing(request: HttpRequest) -> HttpResponse:
    """The banner on the console's pages, for people who can do something about it."""
    if not signed_in(request).is_staff:
        raise Http404
    return render(request, "console/_health.html", {"unwell": health.current()})
