"""Where the figures of insights lead: the audit trail understands each link and finds what was counted."""

import csv
import html
import io
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from agentapp.audit import finding
from agentapp.audit.query import parse
from agentapp.console import insights_reliability as reliability
from agentapp.console.insights_links import rows, within
from agentapp.console.insights_parts import Figure
from agentapp.insights import periods
from agentapp.insights.periods import Period
from agentapp.insights.reading import Calls
from agentapp.models import ToolExecution
from approvals.models import Decision
from tests import opened

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_hour")]
NOW = datetime(2026, 10, 20, 13, 24, 9, tzinfo=UTC)
TABS = ("/insights/", "/insights/cost/", "/insights/reliability/")


@pytest.fixture
def past(client: Client) -> Client:
    """The demo shop with a past, and a manager who looks at it."""
    opened.open_shop()
    call_command("load_traffic", runs=120, days=12, verbosity=0)
    call_command("back_fill_insights", verbosity=0)
    client.force_login(User.objects.get(username="ada"))
    return client


def links(client: Client, path: str) -> set[str]:
    page = html.unescape(client.get(path).content.decode())
    return {href for href in re.findall(r'href="(/audit/[^"]*)"', page) if "?" in href}


def test_every_link_asks_what_the_trail_understands(past: Client) -> None:
    followed = {href for tab in TABS for key in ("24h", "14d", "90d") for href in links(past, f"{tab}?range={key}")}

    words = {term.word for href in followed for term in parse(parse_qs(urlsplit(href).query)["q"][0]).terms}
    assert words >= {"did", "since", "until", "who", "tool", "risk", "agent", "seen"}
    for href in sorted(followed):
        response = past.get(href)
        assert response.status_code == 200, href
        assert response.context["problems"] == [], href
        assert "Nothing was searched for" not in response.content.decode(), href


def test_a_link_finds_as_many_calls_as_its_figure_counted(past: Client) -> None:
    table = past.get("/insights/errors.csv", {"range": "90d"}).content.decode("utf-8-sig")
    counted = {row["Tool"]: (int(row["Calls"]), int(row["Failed"])) for row in csv.DictReader(io.StringIO(table))}
    since = (timezone.now() - timedelta(days=100)).date().isoformat()

    def found(did: str, tool: str) -> int:
        return int(past.get(f"{rows(did=did.split(), tool=tool, since=since)}&count=yes").context["count"].number)

    assert sum(failed for _, failed in counted.values()) > 0
    assert {tool: (found("ran failed", tool), found("failed", tool)) for tool in counted} == counted


def count(client: Client, href: str) -> int:
    """How many rows are behind a link."""
    return int(client.get(f"{href}&count=yes").context["count"].number)


def figure(client: Client, path: str, name: str) -> Figure:
    [found] = [one for one in client.get(path).context["topic"].figures if one.name == name]
    return found


@pytest.fixture
def looked_at(past: Client) -> Client:
    """Every third decision came a second and a half after the request was first shown."""
    for at, decision in enumerate(Decision.objects.order_by("decided_at")):
        if at % 3 == 0:
            decision.shown_at = decision.decided_at - timedelta(seconds=1.5)
            decision.save()
    call_command("back_fill_insights", verbosity=0)
    return past


@pytest.mark.parametrize("key", ["24h", "14d", "90d"])
def test_behind_quick_decisions_stand_exactly_these(looked_at: Client, key: str) -> None:
    fast = figure(looked_at, f"/insights/?range={key}", "Fast, high risk")
    assert fast.value in ("0", "–", "—") or count(looked_at, fast.href) == int(fast.value)
    assert key != "90d" or int(fast.value) > 3


def test_behind_a_persons_quick_approvals_stand_exactly_these(looked_at: Client) -> None:
    [quick] = [c for c in looked_at.get("/insights/?range=90d").context["topic"].cards if c.slug == "quick-approvals"]
    counted = [int(str(row[2])) for row in quick.table.rows]
    assert sum(counted) > 5
    assert [count(looked_at, href) for href in quick.table.links] == counted
    assert {bar.href for bar in quick.bars} <= set(quick.table.links)


def test_behind_the_tools_over_the_limit_stand_the_failed_calls_of_exactly_these(past: Client) -> None:
    done = ToolExecution.objects.filter(name="get_order", result_status="ok", attempts__gt=0)
    assert done.exists()
    over = figure(past, "/insights/reliability/?range=90d", "Tools over the limit")
    table = past.get("/insights/errors.csv", {"range": "90d"}).content.decode("utf-8-sig")
    bad = {r["Tool"]: int(r["Failed"]) for r in csv.DictReader(io.StringIO(table)) if float(r["Error rate"]) > 0.05}

    assert int(over.value) == len(bad) > 0
    line = parse(parse_qs(urlsplit(over.href).query)["q"][0])
    assert set(finding.find(line, User.objects.get(username="ada")).values_list("tool", flat=True)) == set(bad)
    assert count(past, over.href) == sum(bad.values())


def test_more_tools_than_a_line_can_name_are_in_the_table_and_none_lead_nowhere() -> None:
    period = Period("14d", NOW - timedelta(days=14), NOW, "14 days")

    def led_to(number: int) -> str:
        found = {f"tool_{at}": Calls(calls=10, failed=5) for at in range(number)}
        [over] = [one for one in reliability.figures(found, {}, [], period) if one.name == "Tools over the limit"]
        return over.href

    assert led_to(0) == ""
    assert "tool_1" in led_to(2)
    assert led_to(21) == "#card-errors"


def test_the_last_day_begins_for_a_link_with_the_hour_that_its_figures_begin_with() -> None:
    period = periods.read({"range": "24h"}, NOW, UTC)
    assert period.begin == datetime(2026, 10, 19, 13, tzinfo=UTC)
    assert within(period) == {"since": "2026-10-19T13:00Z"}
