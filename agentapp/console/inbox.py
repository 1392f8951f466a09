"""The inbox: what needs a person, in what order, decided without leaving."""

import uuid
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentapp import actions, attention, auth, discretion, preferences
from agentapp.console import card, card_rows, outcome, queue, toast
from agentapp.console.filters import AGES, DECIDED, LATE, NEEDS, SORTS, Filters
from agentapp.console.shell import signed_in
from agentapp.models import ToolExecution
from approvals import claims
from approvals.models import Approval, Claim, Risk

CHOICES = 1000


@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """The queue and next to it one request: the one asked for, else the first."""
    user, filters = signed_in(request), Filters.read(request.GET)
    after = request.GET.get("after", "")
    counts = queue.counts(user)
    context: dict[str, Any] = {"filters": filters, "counts": counts, "waiting_count": counts.needs}
    unknown: list[ToolExecution] = []
    if filters.view == DECIDED:
        listed = queue.decided(user, filters, after)
    elif _storms(filters, counts, after):
        listed = queue.Queue([], [])
        context.update(storm=queue.storm(user), may_stop=auth.may_stop(user))
    else:
        listed = queue.waiting(user, filters, after)
        unknown = queue.unknown_outcomes(user) if filters.view == NEEDS and not after else []
    context |= {
        "queue": listed,
        "unknown": unknown,
        "first_page": not after,
        "picked": set(request.GET.getlist("pick")),
    }
    if not listed.rows and not unknown and not filters.narrow:
        context["my_day"] = queue.my_day(user)
    chosen = _chosen(request, listed)
    if chosen is None and unknown:
        context["execution"] = unknown[0]
        context["may_resolve"] = auth.may_resolve(user, unknown[0].run)
    elif chosen is not None:
        context |= peek_context(request, chosen, filters, listed)
        context["listed"] = discretion.beside(request, render_to_string("console/_queue.html", context, request))
    if decided := queue.read_ids([request.GET.get("decided", "")]):
        context["toast"] = toast.of(user, decided[0])
    return render(request, "console/inbox.html", context)


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    """The queue again, for a page that shows it: known rows stay in their places, new ones are counted."""
    user, filters = signed_in(request), Filters.read(request.GET)
    first, shown = bool(request.GET.get("first")), queue.read_ids(request.GET.getlist("shown"))
    context: dict[str, Any] = {
        "filters": filters,
        "first_page": first,
        "chosen": next(iter(queue.read_ids([request.GET.get("id", "")])), None),
        "picked": set(request.GET.getlist("pick")),
    }
    if request.GET.get("storm"):
        counts = queue.counts(user)
        context.update(queue=queue.Queue([], []), storm=queue.storm(user), counts=counts, may_stop=auth.may_stop(user))
        return render(request, "console/_queue.html", context)
    listed = queue.as_shown(user, filters, shown, request.GET.get("last", ""))
    context["queue"] = listed
    context["unknown"] = queue.unknown_outcomes(user) if first and filters.view == NEEDS else []
    if not listed.rows and not context["unknown"]:
        context |= {"counts": queue.counts(user), "my_day": queue.my_day(user)}
    return render(request, "console/_queue.html", context)


@require_safe
def tabs(request: HttpRequest) -> HttpResponse:
    """The tabs with their counts."""
    user = signed_in(request)
    context = {"filters": Filters.read(request.GET), "counts": queue.counts(user)}
    return render(request, "console/inbox.html#tabs", context)


@require_safe
def peek(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """One request, as shown next to the queue."""
    found = card_rows.visible_or_404(signed_in(request), approval_id)
    context = peek_context(request, found, Filters.read(request.GET))
    return render(request, "console/_peek.html", context)


@require_safe
def peek_outcome(request: HttpRequest, execution_id: uuid.UUID) -> HttpResponse:
    """One call whose outcome is unknown, as shown next to the queue."""
    user = signed_in(request)
    execution = outcome.visible_or_404(user, execution_id)
    context = {"execution": execution, "may_resolve": auth.may_resolve(user, execution.run)}
    return render(request, "console/_peek.html", context)


@require_safe
def filter_panel(request: HttpRequest) -> HttpResponse:
    """The choices for narrowing the queue: those that occur in what waits, or was decided last, and what is chosen."""
    user, filters = signed_in(request), Filters.read(request.GET)
    shown = queue.last_decided(user) if filters.view == DECIDED else queue.undecided(user)
    found = shown.order_by().values_list("tool", "agent", "rule", "starter__username", "groups__name")
    combinations = list(found.distinct()[:CHOICES])
    tools, agents, rules, starters, teams = (
        sorted({str(one[place]) for one in combinations if one[place]}) for place in range(5)
    )
    held = claims.standing().filter(user__isnull=False, approval__in=queue.undecided(user))
    holders = sorted(set(held.values_list("user__username", flat=True)))
    choices = [
        ("team", "Team", [(team, team) for team in teams]),
        ("risk", "Risk", [(level, str(Risk(level).label)) for level in reversed(Risk.values)]),
        ("tool", "Tool", [(tool, tool) for tool in tools]),
        ("agent", "Agent", [(agent, agent) for agent in agents]),
        ("rule", "Policy", [(rule, rule) for rule in rules]),
        ("starter", "Requester", [(name, name) for name in starters]),
        ("late", "Target", list(LATE.items())),
        ("age", "Waiting longer than", list(AGES.items())),
        ("claimed", "Claimed by", [("nobody", "Nobody"), *((name, name) for name in holders)]),
        ("sort", "Order", list(SORTS.items())),
    ]
    for name, _, options in choices:
        # What is chosen may occur nowhere now.
        chosen = getattr(filters, name)
        if chosen and chosen not in dict(options):
            options.append((chosen, chosen))
    offered = {name for name, _, _ in choices}
    # The panel has no field for these, and its answer has to lead back to them.
    kept = [(name, value) for name, value in filters.parts if name not in offered]
    context = {"filters": filters, "choices": choices, "kept": kept}
    return render(request, f"console/inbox_filters.html{'#panel' if _htmx(request) else ''}", context)


@require_http_methods(["GET", "HEAD", "POST"])
def views(request: HttpRequest) -> HttpResponse:
    """A person's saved views, with the number of waiting requests in each. A post saves another."""
    user = signed_in(request)
    if request.method == "POST":
        filters, name = Filters.read(request.POST), request.POST.get("name", "")
        try:
            preferences.save_view(user, "inbox", name, filters.here)
        except actions.Refused as refused:
            context = {"refused": refused, "views": queue.saved_views(user), "filters": filters, "name": name}
            return render(request, "console/inbox_views.html", context, status=422)
        return redirect(reverse("inbox") + filters.here)
    context = {"views": queue.saved_views(user), "filters": Filters.read(request.GET)}
    return render(request, f"console/inbox_views.html{'#views' if _htmx(request) else ''}", context)


@require_POST
def view_delete(request: HttpRequest, view_id: uuid.UUID) -> HttpResponse:
    """Delete a saved view. This changes no request."""
    preferences.delete_view(signed_in(request), view_id)
    return redirect("inbox_views")


def after(posted: QueryDict, approval_id: uuid.UUID) -> str:
    """Where a page leads after a decision: to the next request, in the place where the decision was made."""
    if posted.get("next") == "focus":
        return reverse("focus") + f"?decided={approval_id}"
    if posted.get("next") != "inbox":
        return reverse("approval", args=[approval_id])
    following = queue.read_ids([posted.get("following", "")])
    chosen = str(following[0]) if following else ""
    return reverse("inbox") + Filters.read(posted).query(id=chosen, decided=str(approval_id))


def back(posted: QueryDict, approval_id: uuid.UUID) -> str:
    """Where a page leads after a decision was taken back: to the same request, in the place where that was done."""
    if posted.get("next") != "inbox":
        return reverse("approval", args=[approval_id])
    return reverse("inbox") + Filters.read(posted).query(id=str(approval_id))


def peek_context(
    request: HttpRequest, approval: Approval, filters: Filters, listed: queue.Queue | None = None
) -> dict[str, Any]:
    """The card, who looks after it, and what this person may do about that."""
    user = signed_in(request)
    card_rows.note_shown(approval, user)
    row = next((row for row in listed.rows if row.pk == approval.pk), None) if listed else None
    claim = queue.holder(row) if row is not None else claims.of(approval.pk)
    context = {**card.context(approval, user), "peek": True, "filters": filters}
    return context | claim_context(user, approval, claim, context["forbidden"] is not None) | {
        "anyway": request.GET.get("anyway") == "1",
    }  # fmt: skip


def claim_context(user: User, approval: Approval, claim: Claim | None, forbidden: bool) -> dict[str, Any]:
    """Who looks after a request, and what this person may do about that."""
    mine = claim is not None and claims.concerns(claim, user)
    hands = attention.may_hand_over(user, approval)
    waits = approval.state in Approval.UNDECIDED
    groups: list[Group] = list(approval.groups.all()) if forbidden and waits and hands else []
    return {
        "claim": claim,
        "claim_mine": mine,
        "claim_other": claim if claim is not None and not mine else None,
        "may_claim": waits and not forbidden and (claim is None or (mine and claim.user_id != user.pk)),
        "may_release": waits and mine and claim is not None and claim.user_id == user.pk,
        "may_hand_over": waits and hands and (claim is None or mine or claim.handed_by_id == user.pk),
        "hand_to": [] if claim is not None else groups,
        "lease_minutes": attention.lease().total_seconds() // 60,
    }


def _storms(filters: Filters, counts: queue.Counts, after: str) -> bool:
    plain = filters.view == NEEDS and not filters.narrow and not filters.flat and filters.sort == "due" and not after
    return plain and counts.needs > queue.STORM


def _chosen(request: HttpRequest, listed: queue.Queue) -> Approval | None:
    """The request shown in the preview. The id of a request that this person may not see shows nothing."""
    user = signed_in(request)
    wanted = queue.read_ids([request.GET.get("id", "")])
    shown = wanted or [row.pk for row in listed.rows[:1]]
    return card_rows.one(user, shown[0]) if shown else None


def _htmx(request: HttpRequest) -> bool:
    return bool(request.htmx)  # type: ignore[attr-defined]
