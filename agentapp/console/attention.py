"""Who looks after a request: claim it, give it back, hand it over, put it off. Forms that work without script."""

import uuid
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import actions, attention
from agentapp.console import card_rows, inbox, queue
from agentapp.console.filters import Filters
from agentapp.console.shell import signed_in
from approvals import absences, entitlement
from approvals.models import Approval

# This is a list to choose from, not a directory.
PEOPLE = 100


@require_POST
def claim(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Look after a request for a while."""
    return _changed(request, approval_id, lambda user: actions.claim_request(approval_id, user))


@require_POST
def release(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Give a request back. A page also sends this when it is closed."""
    return _changed(request, approval_id, lambda user: actions.release_claim(approval_id, user))


@require_POST
def renew(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Sent by a page while its reader is at work. Answers whether the claim still stands."""
    renewed = actions.renew_claim(approval_id, signed_in(request))
    return HttpResponse(status=204 if renewed else 410)


@require_POST
def wake(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Bring a snoozed request back."""
    return _changed(request, approval_id, lambda user: actions.wake_request(approval_id, user))


@require_http_methods(["GET", "HEAD", "POST"])
def hand_over(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Choose who should have a request, among those who may decide; a post hands it over."""
    user = signed_in(request)
    if request.method != "POST":
        return _page(request, approval_id, "hand_over")
    to = _chosen(request.POST.get("to", ""))
    note = request.POST.get("note", "")
    return _changed(
        request, approval_id, lambda _: actions.hand_over(approval_id, to, note, user), "hand_over", onward=True
    )


@require_http_methods(["GET", "HEAD", "POST"])
def snooze(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Choose how long to hide a request from oneself; never past its expiry."""
    user = signed_in(request)
    if request.method != "POST":
        return _page(request, approval_id, "snooze")
    preset = request.POST.get("until", "")
    return _changed(
        request, approval_id, lambda _: actions.snooze_request(approval_id, preset, user), "snooze", onward=True
    )


def _changed(
    request: HttpRequest, approval_id: uuid.UUID, change: Any, dialog: str = "", onward: bool = False
) -> HttpResponse:
    """Make the change and go back to where it was asked for; or say why not, with a way to go on."""
    user = signed_in(request)
    try:
        change(user)
    except actions.Refused as refused:
        if refused.code == "not_found":
            return card_gone(request, approval_id)
        if inbox_asks(request):
            return _peek(request, approval_id, refused)
        return _page(request, approval_id, dialog, refused)
    if inbox_asks(request):
        return _peek(request, approval_id, None)
    if request.POST.get("next") != "inbox":
        return redirect(reverse("approval", args=[approval_id]))
    following = queue.read_ids([request.POST.get("following", "")]) if onward else [approval_id]
    return redirect(reverse("inbox") + Filters.read(request.POST).query(id=str(following[0]) if following else ""))


def inbox_asks(request: HttpRequest) -> bool:
    """Whether the preview next to the queue asks for a fresh copy of itself."""
    return bool(request.htmx) and request.POST.get("next") == "inbox"  # type: ignore[attr-defined]


def card_gone(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    card_rows.visible_or_404(signed_in(request), approval_id)
    return redirect("inbox")


def _peek(request: HttpRequest, approval_id: uuid.UUID, refused: actions.Refused | None) -> HttpResponse:
    found = card_rows.visible_or_404(signed_in(request), approval_id)
    context = inbox.peek_context(request, found, Filters.read(request.POST))
    return render(request, "console/_peek.html", context | {"refused": refused})


def _page(
    request: HttpRequest, approval_id: uuid.UUID, dialog: str, refused: actions.Refused | None = None
) -> HttpResponse:
    """A dialog by itself, or the page with it open. Without a dialog, the page says why nothing was changed."""
    user = signed_in(request)
    approval = card_rows.visible_or_404(user, approval_id)
    posted = request.method == "POST"
    asked = request.POST if posted else request.GET
    context: dict[str, Any] = {
        "approval": approval,
        "dialog": dialog,
        "refused": refused,
        "filters": Filters.read(asked),
        "back_to": "inbox" if asked.get("next") == "inbox" else "",
        "note": request.POST.get("note", ""),
        "chosen": _chosen(request.POST.get("to", "")),
    }
    if dialog == "hand_over":
        context["people"], context["groups"] = _those_who_may(user, approval)
    elif dialog == "snooze":
        context["presets"] = _presets(approval)
    if request.htmx and dialog and not posted:  # type: ignore[attr-defined]
        return render(request, f"console/attention.html#{dialog}", context)
    status = refused.status if refused else 200
    return render(request, "console/attention.html", context, status=status)


def _those_who_may(user: User, approval: Approval) -> tuple[list[tuple[User, User | None]], list[Group]]:
    """The people and groups a request can be handed to. Each absent person comes with their deputy, if that one may."""
    people = list(entitlement.deciders_of(approval).exclude(pk=user.pk).order_by("first_name", "username")[:PEOPLE])
    deputies = absences.standing_in([person.pk for person in people])
    stand_ins = [deputy.pk for deputy in deputies.values()]
    able = entitlement.deciders_of(approval).filter(pk__in=stand_ins) if stand_ins else []
    theirs = {person: deputy for person, deputy in deputies.items() if deputy in able}
    groups = list(entitlement.deciding_groups(approval).order_by("name")[:PEOPLE])
    return [(person, theirs.get(person.pk)) for person in people], groups


def _presets(approval: Approval) -> list[tuple[str, str, bool]]:
    """The ways to snooze it: the name, the words, and whether it would come back in time."""
    now = timezone.localtime()
    return [
        (name, words, attention.snooze_ends(name, now) < approval.expires_at)
        for name, words in attention.SNOOZES.items()
    ]


def _chosen(text: str) -> User | Group | None:
    """The person or group meant by `user:3` or `group:2`."""
    kind, _, key = text.partition(":")
    if not (key.isascii() and key.isdigit() and len(key) < 10):
        return None
    if kind == "user":
        return User.objects.filter(pk=int(key), is_active=True).first()
    return Group.objects.filter(pk=int(key)).first() if kind == "group" else None
