"""What a browser tells its user about requests that wait, while the inbox is in a hidden tab."""

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import preferences
from agentapp.console import formats, queue
from agentapp.console.shell import signed_in
from approvals.manners import quiet_until
from approvals.models import Approval
from approvals.policy import risks_from

NEWEST = 20


@require_safe
def notices(request: HttpRequest) -> JsonResponse:
    """The newest requests in sight, each with what may be said of it on a locked screen."""
    user = signed_in(request)
    chosen = preferences.of(user)
    is_quiet = quiet_until(preferences.manners_of(chosen), timezone.now()) is not None
    if is_quiet or preferences.BROWSER not in preferences.ways(chosen, "waiting"):
        return JsonResponse({"notices": []})
    rows = queue.pending(user).filter(risk__in=risks_from(chosen.least_risk)).order_by("-created_at")[:NEWEST]
    found = [_notice(row, chosen.shows_arguments) for row in rows]
    return JsonResponse({"notices": found})


def _notice(row: Approval, with_arguments: bool) -> dict[str, Any]:
    left = formats.time_left(row.expires_at, timezone.now())
    what = formats.visible(row.shown_title) if with_arguments else formats.visible(row.tool.replace("_", " "))
    return {
        "id": str(row.pk),
        "title": f"{row.get_risk_display()}-risk {what} is waiting" if not with_arguments else what,
        "body": f"Due in {left}",
        "url": reverse("approval", args=[row.pk]),
    }
