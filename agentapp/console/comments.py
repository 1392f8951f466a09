"""Comments on a request: what people say to each other about it."""

import uuid
from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentapp import actions
from agentapp.console import approval as page
from agentapp.console import card_rows, told
from agentapp.console.shell import signed_in
from approvals.comments import Posted


@require_POST
def comment(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Comment on a request, and learn who could not be told of it."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    text = request.POST.get("text", "")
    try:
        posted = actions.post_comment(approval_id, text, user)
    except actions.Refused as refused:
        return page.refused_page(request, found, refused, commenting=text)
    if words := _told(posted):
        told.keep(request, approval_id, words)
    here = "focus_one" if request.POST.get("next") == "focus" else "approval"
    return redirect(f"{reverse(here, args=[approval_id])}#comments")


def _told(posted: Posted) -> str:
    """Who is told of a comment, and who is not. A name that nobody has and a stranger's name read the same."""
    heard = f"Told {_listed(posted.told)}. " if posted.told else ""
    unheard = f"Not told: {_listed(posted.untold)}, who may not see this request." if posted.untold else ""
    return (heard + unheard).strip()


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
