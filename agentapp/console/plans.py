"""Ending the rest of a plan, from the page of its request."""

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from agentapp import actions
from agentapp.console import approval, card_rows
from agentapp.console.shell import signed_in


@require_POST
def end(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """End the rest of a plan, with a reason. The rules then decide on its other calls, as on any call."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    why = request.POST.get("reason", "")
    try:
        actions.end_plan(approval_id, why, user)
    except actions.Refused as refused:
        return approval.refused_page(request, found, refused, ending=why)
    return redirect("approval", approval_id)
