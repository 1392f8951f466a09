"""Days that somebody chose for the figures: these are counted, listed and led to, and no others."""

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.console.insights_parts import Card, Figure
from agentapp.insights.counting import hour_of
from agentapp.models import Agent, ModelFigures, ModelUse, RollUp, Span
from approvals.models import Approval
from tests.rows import a_request, a_run

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
THREE_DAYS = {"range": "custom", "from": "2026-01-01", "to": "2026-01-03"}


@pytest.fixture
def page(client: Client, mia: User) -> Client:
    """A manager who looks at figures, which are added up until a moment ago."""
    now = timezone.now()
    RollUp.objects.create(until=hour_of(now), looked_at=now)
    client.force_login(mia)
    return client


def spend(begin: datetime, cost: str, hours: int = 24) -> None:
    """Let one model have cost that in the whole of a day, or in an hour of it."""
    span = Span.DAY if hours == 24 else Span.HOUR
    ModelFigures.objects.create(span=span, at=begin, agent="support", model="m", replies=1, cost=Decimal(cost))


def figure(client: Client, path: str, name: str, asked: dict[str, str]) -> Figure:
    [found] = [one for one in client.get(path, asked).context["topic"].figures if one.name.startswith(name)]
    return found


def card(client: Client, path: str, slug: str, asked: dict[str, str]) -> Card:
    [found] = [one for one in client.get(path, asked).context["topic"].cards if one.slug == slug]
    return found


def spend_now(cost: str) -> None:
    """Let a reply that came outside of steps have cost that a moment ago."""
    ModelUse.objects.create(run=a_run(), at=timezone.now(), cost=Decimal(cost))


def first_column(client: Client, slug: str, asked: dict[str, str]) -> list[str]:
    response = client.get(f"/insights/{slug}.csv", asked)
    return [row[0] for row in csv.reader(io.StringIO(response.content.decode()))][1:]


def test_a_day_costs_on_average_what_was_spent_by_the_days_that_were_chosen(page: Client) -> None:
    for number, cost in enumerate(("3", "6", "9")):
        spend(JANUARY + number * DAY, cost)

    assert figure(page, "/insights/cost/", "Cost, ", THREE_DAYS).about == "$6.00 a day"
    one = {**THREE_DAYS, "to": "2026-01-01"}
    assert figure(page, "/insights/cost/", "Cost, ", one).about == "$3.00 a day"
    assert card(page, "/insights/cost/", "cost-by-day", THREE_DAYS).sentence.endswith("; $9.00 on the last.")


@pytest.mark.parametrize("slug", ["cost-by-day", "time-to-decide", "waiting"])
def test_a_range_lists_the_days_that_were_chosen(page: Client, slug: str) -> None:
    a_request()
    Approval.objects.update(created_at=JANUARY - DAY, expires_at=timezone.now() + DAY)

    assert first_column(page, slug, THREE_DAYS) == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_a_file_is_named_by_the_days_that_were_chosen(page: Client) -> None:
    named: Any = page.get("/insights/cost-by-day.csv", THREE_DAYS)["Content-Disposition"]

    assert named == 'attachment; filename="cost-by-day-2026-01-01-2026-01-03.csv"'


@pytest.mark.usefixtures("one_day")
def test_what_today_cost_is_told_beside_days_that_are_over(page: Client) -> None:
    spend(JANUARY, "3")
    spend_now("2")
    Agent.objects.update(max_daily_cost="8")

    for asked in (THREE_DAYS, {"range": "14d"}):
        today = figure(page, "/insights/cost/", "Cost today", asked)
        assert (today.value, today.about) == ("$2.00", "25% of $8.00")
    assert figure(page, "/insights/cost/", "Cost, ", THREE_DAYS).value == "$3.00"


@pytest.mark.usefixtures("one_day")
def test_days_that_are_over_ask_the_database_no_more_than_a_page_may(page: Client) -> None:
    spend_now("2")
    page.get("/insights/cost/", THREE_DAYS)
    with CaptureQueriesContext(connection) as captured:
        page.get("/insights/cost/", THREE_DAYS)

    assert len(captured) <= 12
