"""Days chosen for the figures: only these are counted, listed and linked to."""

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from agentapp.console.insights_parts import Card, Figure
from agentapp.insights import periods
from agentapp.insights.counting import hour_of
from agentapp.models import Agent, ModelFigures, ModelUse, RollUp, Span
from approvals.models import Approval
from tests.rows import a_request, a_run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_hour")]
DAY = timedelta(days=1)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
THREE_DAYS = {"range": "custom", "from": "2026-01-01", "to": "2026-01-03"}


@pytest.fixture
def page(client: Client, mia: User) -> Client:
    """A manager who looks at figures that are rolled up to a moment ago."""
    now = timezone.now()
    RollUp.objects.create(until=hour_of(now), looked_at=now)
    client.force_login(mia)
    return client


def spend(begin: datetime, cost: str, hours: int = 24) -> None:
    """Record this cost of one model for a whole day, or for an hour of it."""
    span = Span.DAY if hours == 24 else Span.HOUR
    ModelFigures.objects.create(span=span, at=begin, agent="support", model="m", replies=1, cost=Decimal(cost))


def figure(client: Client, path: str, name: str, asked: dict[str, str]) -> Figure:
    [found] = [one for one in client.get(path, asked).context["topic"].figures if one.name.startswith(name)]
    return found


def card(client: Client, path: str, slug: str, asked: dict[str, str]) -> Card:
    [found] = [one for one in client.get(path, asked).context["topic"].cards if one.slug == slug]
    return found


def spend_now(cost: str) -> None:
    """Record this cost of a reply outside of steps, made a moment ago."""
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


OCTOBER = datetime(2026, 10, 10, tzinfo=UTC)
ONE_DAY = {"range": "custom", "from": "2026-10-10", "to": "2026-10-10"}
ZONES = ("Europe/Berlin", "Asia/Kolkata", "America/New_York")


def asks(href: str) -> str:
    return parse_qs(urlsplit(href).query)["q"][0]


@pytest.mark.parametrize("zone", ZONES)
def test_costs_of_a_day_are_those_of_the_day_by_utc_in_any_zone(page: Client, settings: Any, zone: str) -> None:
    settings.TIME_ZONE = zone
    for number, cost in enumerate(("1", "2", "4"), start=-1):
        spend(OCTOBER + number * DAY, cost)

    cost = figure(page, "/insights/cost/", "Cost, ", ONE_DAY)
    assert (cost.value, cost.about) == ("$2.00", "$2.00 a day")
    between = "since:2026-10-10T00:00Z until:2026-10-11T00:00Z"
    assert asks(cost.href).endswith(between)
    days = card(page, "/insights/cost/", "cost-by-day", ONE_DAY).table
    assert [row[0] for row in days.rows] == ["2026-10-10"]
    assert [asks(href).partition(" ")[2] for href in days.links] == [between]
    assert page.get(cost.href).context["problems"] == []
    assert len(card(page, "/insights/cost/", "cost-by-day", {"range": "14d"}).table.rows) == 14
    named = page.get("/insights/cost-by-day.csv", ONE_DAY)["Content-Disposition"]
    assert "cost-by-day-2026-10-10-2026-10-10.csv" in named
    assert "Days and hours are in UTC." in page.get("/insights/cost/").content.decode()
    assert f"Days and hours are in {zone}." in page.get("/insights/").content.decode()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("path", ["/insights/", "/insights/cost/", "/insights/reliability/"])
def test_the_form_gives_back_the_days_that_were_typed(page: Client, settings: Any, path: str, zone: str) -> None:
    settings.TIME_ZONE = zone
    found = page.get(path, ONE_DAY).context
    assert (found["first"], found["last"]) == ("2026-10-10", "2026-10-10")


@pytest.mark.parametrize(("first", "words"), [(2, "1 Nov 2026 to 1 Nov 2026"), (1, "1 Nov 2026 to 1 Nov 2026")])
def test_a_day_that_has_begun_where_it_was_chosen_and_not_yet_by_utc_is_the_one_there_is(
    first: int, words: str
) -> None:
    now = datetime(2026, 11, 1, 20, tzinfo=UTC)  # nine in the morning of the second, in Auckland
    asked = {"range": "custom", "from": f"2026-11-0{first}", "to": "2026-11-02"}

    period = periods.read(asked, now, UTC)

    assert (period.key, period.words, period.end) == ("custom", words, now)
    assert periods.read({**asked, "from": "2026-11-03", "to": "2026-11-03"}, now, UTC).key == "14d"


@pytest.mark.parametrize(
    ("zone", "begin", "end", "words"),
    [
        ("Europe/Berlin", "2026-10-09T22:00Z", "2026-10-10T22:00Z", "since:2026-10-10 until:2026-10-10"),
        ("Asia/Kolkata", "2026-10-09T19:00Z", "2026-10-10T18:30Z", "since:2026-10-09T19:00Z until:2026-10-10"),
    ],
)
def test_nothing_before_or_behind_a_day_of_the_zone_is_counted_or_led_to(
    page: Client, settings: Any, zone: str, begin: str, end: str, words: str
) -> None:
    settings.TIME_ZONE = zone
    context = page.get("/insights/", ONE_DAY).context

    period = context["asked"].period
    assert (period.begin, period.end) == (datetime.fromisoformat(begin), datetime.fromisoformat(end))
    assert asks(context["topic"].figures[4].href).endswith(words)
    assert page.get(context["topic"].figures[4].href).context["problems"] == []


def test_a_day_that_began_a_moment_ago_is_shown_where_no_full_hour_of_it_has_begun() -> None:
    zone = ZoneInfo("Asia/Kolkata")
    found = periods.read(ONE_DAY, datetime(2026, 10, 9, 18, 45, tzinfo=UTC), zone)
    assert (found.key, found.days, found.begin == found.end) == ("custom", [OCTOBER.date()], True)


@pytest.mark.parametrize("path", ["/insights/", "/insights/cost/", "/insights/reliability/"])
@pytest.mark.parametrize(
    ("first", "last", "why"),
    [
        ("2026-01-03", "2026-01-01", "The range ends before it begins."),
        ("2024-01-01", "2025-06-01", "The range is longer than 366 days."),
        ("2099-01-01", "2099-01-02", "The range has not begun yet."),
        ("<b>", "2026-01-02", "A range needs two days, as in 2026-11-01 and 2026-11-14."),
    ],
)
def test_a_range_of_which_there_are_no_figures_is_said_and_stays_typed(
    page: Client, path: str, first: str, last: str, why: str
) -> None:
    html = page.get(path, {"range": "custom", "from": first, "to": last}).content.decode()

    assert f"There are no figures for that range.</strong> {why} These are for the last 14 days." in html
    assert f'name="from" value="{escape(first)}"' in html
    assert f'name="to" value="{last}"' in html
    assert f'<span class="t-bad" id="range-e">{why}</span>' in html
    assert "There are no figures" not in page.get(path, THREE_DAYS).content.decode()
    assert "There are no figures" not in page.get(path).content.decode()
