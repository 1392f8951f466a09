"""Links for the customer of a conversation: making one, and revoking those that open it."""

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from agentapp import actions, auth, customer_links, customers
from agentapp.console.shell import signed_in
from approvals import ledger

_HOURS = (1, 24, 24 * 7)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def links(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The links that open a run's conversation. A new link is shown once, to the person who made it."""
    user = signed_in(request)
    runs = auth.visible_runs(user).select_related("agent", "conversation__agent").filter(conversation__isnull=False)
    run = get_object_or_404(runs, pk=run_id)
    assert run.conversation is not None
    context: dict[str, Any] = {"run": run, "hours": _HOURS}
    status = 200
    if request.method == "POST":
        try:
            access = customers.of_staff(run.conversation, user)
            if gone := request.POST.get("revoke"):
                link = get_object_or_404(run.conversation.links, pk=_key(gone))
                customer_links.revoke(link, ledger.actor_of(user))
                return redirect("run_customer_links", run.pk)
            made = customers.make_link(access, _number(request.POST.get("hours", "")))
            address = reverse("customer_talk", args=[customer_links.signed(made)])
            context["address"] = request.build_absolute_uri(address)
        except actions.Refused as refused:
            context["refused"], status = refused, {"forbidden": 403}.get(refused.code, 422)
    context["live"] = customer_links.live().filter(conversation=run.conversation).select_related("made_by")
    context["may_make"] = auth.may_start(user) and auth.may_join(user, run.conversation)
    return render(request, "console/customer_links.html", context, status=status)


def _key(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.UUID(int=0)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
