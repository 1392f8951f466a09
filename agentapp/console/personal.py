"""Seeing personal data on a run's pages: on request, recorded, and for some minutes."""

import uuid
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentapp import actions, discretion
from agentapp.console.shell import Forbidden, signed_in


@require_POST
def run_personal(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Show it from now on, or with `hide` mask it again; then go back to the run's page where this was pressed."""
    user = signed_in(request)
    if "hide" in request.POST:
        discretion.hide_of_run(request, run_id)
    else:
        try:
            actions.show_personal_data(run_id, user)
        except actions.Refused as refused:
            if refused.code == "not_found":
                raise Http404 from refused
            raise Forbidden(refused.message, discretion.REVEAL) from refused
        discretion.show_of_run(request, run_id)
    page, wanted = reverse("run", args=[run_id]), request.POST.get("here", "")
    return redirect(wanted if wanted.startswith(page) else page)


def of(request: HttpRequest, run_id: uuid.UUID) -> dict[str, Any]:
    """What `_personal_data.html` needs: whether they may ask, and until when the data is shown."""
    return {
        "may_show_personal": discretion.may_see(request),
        "personal_until": discretion.shown_until(request, run_id),
        "here": request.get_full_path(),
    }
