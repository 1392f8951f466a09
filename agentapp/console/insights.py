"""Insights: figures for people with overall responsibility, each with the rows behind it."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Exists, OuterRef, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import auth
from agentapp.audit.cells import inert
from agentapp.console import insights_approvals, insights_costs, insights_reliability
from agentapp.console.insights_parts import Card, Cell, Topic
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.insights import periods, reading
from agentapp.insights.counting import ALL_TEAMS, hour_of
from agentapp.insights.periods import Period
from agentapp.models import Agent, Breaker
from approvals.models import Approval, Rule

RIGHT = "agentapp.view_insights"
TABS = (("insights", "Approvals"), ("insights_cost", "Cost"), ("insights_reliability", "Reliability"))


@dataclass(frozen=True)
class Asked:
    """What an address asks for: a period, a team, and the time up to which figures exist."""

    user: User
    period: Period
    standing: reading.Standing
    now: datetime
    teams: list[tuple[int, str]]
    team: int = ALL_TEAMS
    not_taken: str = ""
    """Why the period is not the one that was asked for."""
    late: datetime | None = None
    """Figures end here, because counting is behind."""

    @property
    def team_name(self) -> str:
        return dict(self.teams).get(self.team, "")


@require_safe
def approvals(request: HttpRequest) -> HttpResponse:
    """How many requests wait, how long decisions take, who decides what."""
    asked = _asked(request, with_teams=True)
    return _page(request, asked, "insights", _approvals(asked))


@require_safe
def cost(request: HttpRequest) -> HttpResponse:
    """What models and tools cost, by day."""
    asked = _asked(request, UTC)
    return _page(request, asked, "insights_cost", _costs(asked))


@require_safe
def reliability(request: HttpRequest) -> HttpResponse:
    """Which tools fail, and which are not called for now."""
    asked = _asked(request)
    breakers = list(Breaker.objects.all())
    context = {
        "breakers": insights_reliability.stopped(breakers, asked.now),
        "open": sum(one.state != Breaker.State.CLOSED for one in breakers),
        "may_reset": auth.may_stop(asked.user),
    }
    return _page(request, asked, "insights_reliability", _reliability(asked, breakers), **context)


@require_safe
def export(request: HttpRequest, slug: str) -> HttpResponse:
    """One card as a table for a spreadsheet. Cells it would treat as formulas are written as text."""
    found = _card(request, slug)
    if found is None:
        raise Http404("There is no such card.")
    card, days = found
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slug}-{days[0]}-{days[-1]}.csv"'
    writer = csv.writer(response)
    writer.writerow(map(_plain, card.table.heads))
    writer.writerows(map(_plain, row) for row in card.table.rows)
    return response


def _plain(cell: str) -> str:
    return cell.plain if isinstance(cell, Cell) else inert(cell)


def _asked(request: HttpRequest, zone: tzinfo | None = None, *, with_teams: bool = False) -> Asked:
    """What is asked for, in days of the installation's time zone unless another is given."""
    user = signed_in(request)
    if not user.has_perm(RIGHT):
        raise Forbidden("Insights are figures about everybody's requests, calls and costs.", RIGHT)
    now = timezone.now()
    standing = reading.standing(now)
    shown = standing.shown_until
    zone = zone or timezone.get_current_timezone()
    period, not_taken = periods.read(request.GET, now, zone), periods.why_not(request.GET, now, zone)
    late = shown if shown < period.end else None
    teams = _teams() if with_teams else []
    chosen = request.GET.get("team", "")
    team = next((pk for pk, name in teams if name == chosen), ALL_TEAMS)
    return Asked(user, period.up_to(shown), standing, now, teams, team, not_taken, late)


def _teams() -> list[tuple[int, str]]:
    """The groups that decide something: those that a request or a rule names."""
    named = Q(Exists(Approval.groups.through.objects.filter(group=OuterRef("pk")))) | Q(
        Exists(Rule.groups.through.objects.filter(group=OuterRef("pk")))
    )
    return list(Group.objects.filter(named).order_by("name").values_list("pk", "name"))


def _approvals(asked: Asked) -> Topic:
    zone = timezone.get_current_timezone()
    found = reading.requests(asked.period, asked.team, asked.standing.kept_until, zone)
    waits = reading.waiting(asked.team, asked.now)
    is_now = asked.period.end == asked.now
    at_end = waits.number if is_now else reading.waiting_at(asked.team, asked.period.end)
    people = {str(pk): user for pk, user in User.objects.in_bulk([int(key) for key in found.by_person]).items()}
    return insights_approvals.topic(insights_approvals.Told(found, waits, at_end, people, asked.team_name, asked.now))


def _costs(asked: Asked) -> Topic:
    period = insights_costs.whole_days(asked.period)
    limits = list(Agent.objects.filter(enabled=True).values_list("max_daily_cost", flat=True))
    known = [limit for limit in limits if limit is not None]
    total = insights_costs.Limits(sum(known, Decimal(0)), len(limits) - len(known), len(limits))
    found = reading.costs(period, asked.standing.kept_until)
    today = insights_costs.whole_days(Period("", hour_of(asked.now), asked.now, "today"))
    if today.begin < period.end:
        spent = found.on(today.begin.date())
    else:
        spent = reading.spent(today.up_to(asked.standing.shown_until), asked.standing.kept_until)
    return insights_costs.topic(found, total, spent, asked.now)


def _reliability(asked: Asked, breakers: list[Breaker]) -> Topic:
    found = reading.calls(asked.period, asked.standing.kept_until)
    before = reading.calls(asked.period.before, asked.period.before.end)
    return insights_reliability.topic(found, before, breakers, asked.period)


def _card(request: HttpRequest, slug: str) -> tuple[Card, list[date]] | None:
    """A card on any tab, and the days it covers."""
    asked, by_utc = _asked(request, with_teams=True), _asked(request, UTC)
    makers: tuple[tuple[Asked, Callable[[Asked], Topic]], ...] = (
        (asked, _approvals),
        (by_utc, _costs),
        (asked, lambda asked: _reliability(asked, list(Breaker.objects.all()))),
    )
    for by, make in makers:
        for card in make(by).cards:
            if card.slug == slug:
                return card, by.period.days
    return None


def _page(request: HttpRequest, asked: Asked, route: str, topic: Topic, **more: Any) -> HttpResponse:
    period = asked.period
    context = {
        "topic": topic,
        "asked": asked,
        "title": next(words for name, words in TABS if name == route),
        "tabs": [(reverse(name), words, name == route) for name, words in TABS],
        "route": route,
        "choices": periods.CHOICES,
        "zone": str(period.zone),
        "first": request.GET.get("from", "") if asked.not_taken else f"{period.days[0]}",
        "last": request.GET.get("to", "") if asked.not_taken else f"{period.days[-1]}",
        **more,
    }
    return render_part(request, "console/insights.html", "figures", context)
