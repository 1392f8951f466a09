"""Focus mode: one request at a time, claimed before it is shown, so that no two people read the same one."""

import uuid
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from agentapp import actions
from agentapp.console import approval, card_rows, queue, toast
from agentapp.console.filters import DECIDED, FREE, MINE, Filters, ordered, read_query, tab
from agentapp.console.shell import signed_in
from approvals import claims
from approvals.models import Approval, Decision
from approvals.standing import may_decide

# How many to look at for one that this person may decide and that nobody else takes at that moment.
TRIED = 20
SKIPPED = 100


@require_POST
def begin(request: HttpRequest) -> HttpResponse:
    """Start with the first request of the queue, as filtered."""
    if not signed_in(request).has_perm("approvals.decide_approval"):
        raise PermissionDenied("Focus mode is for those who decide. You can see requests in the inbox.")
    filters = Filters.read(request.POST)
    request.session["focus"] = {"since": timezone.now().isoformat(), "skipped": [], "query": filters.here}
    return _serve(request, None)


@require_POST
def onward(request: HttpRequest) -> HttpResponse:
    """The next request: the one fetched before if it is still free, else another."""
    return _serve(request, next(iter(queue.read_ids([request.POST.get("wanted", "")])), None))


@require_POST
def skip(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Leave a request to others and go on."""
    _give_back(request, approval_id)
    sitting = _sitting(request)
    request.session["focus"] = sitting | {"skipped": [*sitting["skipped"], str(approval_id)][-SKIPPED:]}
    return _serve(request, None)


@require_POST
def leave(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Stop, and give back what is on the screen. The page also sends this when it is closed."""
    _give_back(request, approval_id)
    return redirect(reverse("focus") + "?done=1")


@require_safe
def focus(request: HttpRequest) -> HttpResponse:
    """Between two requests and at the end: what was decided in this sitting."""
    user, sitting = signed_in(request), _sitting(request)
    since = datetime.fromisoformat(sitting["since"])
    mine = Decision.objects.filter(user=user, decided_at__gte=since, undone_at__isnull=True)
    counts = queue.counts(user)
    context: dict[str, Any] = {
        "begun": "focus" in request.session,
        "done": bool(request.GET.get("done")),
        "decided": [d.type for d in mine.only("type")],
        "skipped": len(sitting["skipped"]),
        "took": timezone.now() - since,
        "counts": counts,
        "waiting_count": counts.needs,
        "filters": read_query(sitting["query"]),
        "back_to": "focus",
    }
    if decided := queue.read_ids([request.GET.get("decided", "")]):
        context["toast"] = toast.of(user, decided[0])
    return render(request, "console/focus.html", context)


@require_safe
def one(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """The request on the screen. Only its holder sees it here; a person who lost it goes on to another."""
    user = signed_in(request)
    found = card_rows.visible_or_404(user, approval_id)
    claim = claims.of(approval_id)
    if claim is None or claim.user_id != user.pk:
        return redirect("focus")
    card_rows.note_shown(found, user)
    return render(request, "console/focus_one.html", _context(request, found))


@require_safe
def upcoming(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """The request after this one, for the page to have ready. It is not claimed: nobody has seen it yet."""
    user = signed_in(request)
    card_rows.visible_or_404(user, approval_id)
    for row in _candidates(request, user, approval_id):
        found = card_rows.visible_or_404(user, row.pk)
        return render(request, "console/focus_one.html#one", _context(request, found) | {"coming": True})
    return HttpResponse(status=204)


def _serve(request: HttpRequest, wanted: uuid.UUID | None) -> HttpResponse:
    """Claim the next request and show it; if somebody else is quicker, the one after."""
    user = signed_in(request)
    rows = _candidates(request, user, None)
    for row in sorted(rows, key=lambda row: row.pk != wanted):
        try:
            actions.claim_request(row.pk, user)
        except actions.Refused:
            continue
        address = reverse("focus_one", args=[row.pk])
        if not request.htmx:  # type: ignore[attr-defined]
            return redirect(address)
        found = card_rows.visible_or_404(user, row.pk)
        card_rows.note_shown(found, user)
        context = _context(request, found)
        if decided := queue.read_ids([request.POST.get("decided", "")]):
            context["toast"] = toast.of(user, decided[0])
        response = render(request, "console/focus_one.html#one", context)
        response["HX-Replace-Url"] = address
        return response
    done = reverse("focus") + "?done=1"
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponse(headers={"HX-Redirect": done})
    return redirect(done)


def _candidates(request: HttpRequest, user: User, besides: uuid.UUID | None) -> list[Approval]:
    """What this person could be shown next: their own claims first, then what nobody holds."""
    sitting = _sitting(request)
    filters = read_query(sitting["query"])
    mine = Decision.objects.filter(approval=OuterRef("pk"), user=user, undone_at__isnull=True)
    open_ = queue.undecided(user).filter(~Exists(mine), filters.condition(user), expires_at__gt=timezone.now())
    open_ = open_.exclude(pk__in=[*queue.read_ids(sitting["skipped"]), *([besides] if besides else [])])
    open_ = ordered(open_.prefetch_related("groups"), Filters() if filters.view == DECIDED else filters)
    found = [*open_.filter(tab(MINE, user.pk))[:TRIED], *open_.filter(tab(FREE, user.pk))[:TRIED]]
    return [row for row in dict.fromkeys(found) if may_decide(user, row) is None]


def _context(request: HttpRequest, found: Approval) -> dict[str, Any]:
    page = approval.context_of(request, found)
    filters = read_query(_sitting(request)["query"])
    return page | {"peek": True, "back_to": "focus", "filters": filters}


def _give_back(request: HttpRequest, approval_id: uuid.UUID) -> None:
    """Release what was on the screen, unless it was decided, lost, or handed to this person."""
    user = signed_in(request)
    claim = claims.of(approval_id)
    if claim is None or claim.user_id != user.pk or claim.until is None:
        return
    try:
        actions.release_claim(approval_id, user)
    except actions.Refused:
        return


def _sitting(request: HttpRequest) -> dict[str, Any]:
    """When the sitting began, what was skipped, and how the queue was filtered."""
    kept = request.session.get("focus")
    return kept if isinstance(kept, dict) else {"since": timezone.now().isoformat(), "skipped": [], "query": ""}
