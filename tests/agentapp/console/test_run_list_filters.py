"""The filters of the list of runs, and how it looks with thousands of them."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp.console.counting import MOST_COUNTED
from agentapp.messages import ToolResult
from agentapp.models import Run
from tests.agentapp.long_runs import many_runs
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal, told_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def titles(client: Client, query: str) -> set[str]:
    response = client.get(f"/runs/{query}")
    assert response.status_code == 200
    return {line.run.title for line in response.context["rows"]}


@pytest.fixture
def three(sam: User, dana: User) -> None:
    """One run got its refund, one failed at a tool, one has not begun."""
    refunded = told_run(sam, dana)
    Run.objects.filter(pk=refunded.id).update(title="refunded", created_at=timezone.now() - timedelta(days=2))
    broken = RunBuilder(sam, "broken")
    (call,) = broken.step("", proposal(make_tool("get_stock")), cost="3")
    broken.answer(call, ToolResult(status="fatal_error", reason="tool_failure", message="The stock list is gone."))
    broken.finish("failed", "error", "Nothing worked.")
    RunBuilder(sam, "queued")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?tool=get_stock", {"broken"}),
        ("?tool=nothing", set()),
        ("?approval=1", {"refunded"}),
        ("?error=stock list", {"broken"}),
        ("?error=nothing WORKED", {"broken"}),
        ("?cost=2.5", {"broken"}),
        ("?cost=2,50", {"broken"}),
        ("?cost=$ 1,000.00", set()),
        ("?cost=1.000,00 $", set()),
        ("?cost=1e3", set()),
        ("?cost=cheap", {"refunded", "broken", "queued"}),
        ("?since=24h", {"broken", "queued"}),
        ("?since=ages", {"refunded", "broken", "queued"}),
        ("?ongoing=1", {"queued"}),
        ("?ongoing=1&tool=get_stock", set()),
    ],
)
def test_each_filter_keeps_what_it_says(mias: Client, three: None, query: str, found: set[str]) -> None:
    assert titles(mias, query) == found


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("$1,000", "1,000 can be read as 1000 and as 1.000. Enter the one you mean."),
        ("cheap", "Enter a number, like 184.50."),
        ("-1", "Enter an amount from 0 to 999,999,999."),
        ("9999999999", "Enter an amount from 0 to 999,999,999."),
    ],
)
def test_a_cost_that_cannot_be_read_stays_where_it_was_typed_and_says_why(
    mias: Client, three: None, typed: str, says: str
) -> None:
    page = mias.get("/runs/", {"cost": typed, "tool": "get_stock"}).content.decode()

    assert says in page
    assert f'value="{typed}"' in page
    assert 'id="more-filters" open' in page
    assert "Cost over</span>" not in page
    assert titles(mias, f"?cost={typed}") == {"refunded", "broken", "queued"}


def test_what_is_said_of_a_cost_is_not_asked_for_by_an_address(mias: Client, three: None) -> None:
    page = mias.get("/runs/?cost_problem=Beware.&cost_typed=Beware.").content.decode()

    assert "f-cost-e" not in page
    assert 'value="Beware."' not in page


def test_a_filter_is_taken_off_alone(mias: Client, three: None) -> None:
    page = mias.get("/runs/?tool=get_stock&since=24h").content.decode()
    assert 'href="/runs/?since=24h"' in page
    assert 'href="/runs/?tool=get_stock"' in page


def test_the_last_active_come_first_when_asked_for(mias: Client, sam: User) -> None:
    runs = many_runs(sam, 60)
    Run.objects.filter(pk=runs[0].pk).update(updated_at=timezone.now() + timedelta(minutes=1))
    first = mias.get("/runs/?sort=activity").context
    assert first["rows"][0].run.title == "Run 0"

    following = mias.get("/runs/", {"sort": "activity", "from": str(first["page"].older)}).context["rows"]

    assert following
    assert {row.run.pk for row in following}.isdisjoint(row.run.pk for row in first["rows"])
    assert len(following) + len(first["rows"]) == 60


def test_five_thousand_runs_take_twelve_queries(
    mias: Client, sam: User, dana: User, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    many_runs(sam, 5000)
    for _ in range(5):
        told_run(sam, dana)
    for query in ("", "?sort=activity", "?state=succeeded&tool=get_order&approval=1&since=7d", "?error=x"):
        with django_assert_max_num_queries(12):
            mias.get(f"/runs/{query}")


def test_the_last_steps_of_a_run_are_drawn_in_a_few_paths(mias: Client, sam: User, dana: User) -> None:
    told_run(sam, dana, steps=40)
    page = mias.get("/runs/").content.decode()
    drawing = page.split('class="mini"')[1].split("</svg>")[0]
    assert 1 <= drawing.count("<path") <= 4
    assert 'class="f-model"' in drawing


def test_a_run_is_cancelled_from_the_list_by_those_who_may(client: Client, sam: User, mia: User) -> None:
    run = RunBuilder(sam)
    link = f'data-twice href="/runs/{run.id}/cancel/"'
    client.force_login(sam)
    assert link in client.get("/runs/").content.decode()
    client.force_login(mia)
    assert link not in client.get("/runs/").content.decode()


def test_a_run_is_put_aside_and_let_go_on_from_the_list_by_those_who_may(client: Client, sam: User, dana: User) -> None:
    run = RunBuilder(sam, "Where is it?")
    client.force_login(sam)
    assert "Pause Where is it?" in client.get("/runs/").content.decode()
    client.post(f"/runs/{run.id}/pause/")
    page = client.get("/runs/").content.decode()
    assert "Resume Where is it?" in page
    assert "Pause Where is it?" not in page
    client.force_login(dana)
    page = client.get("/runs/").content.decode()
    assert not re.search("(Pause|Resume|Retry) Where is it", page.replace('<span class="vh">', ""))


def test_a_failed_run_is_tried_again_from_the_list_by_those_who_may_start_runs(client: Client, sam: User) -> None:
    run = RunBuilder(sam, "Where is it?")
    client.force_login(sam)
    again = f'form="act" formaction="/runs/{run.id}/again/"'
    assert again not in client.get("/runs/").content.decode()
    run.claim()
    run.finish("failed", "error", "Broken.")
    page = client.get("/runs/").content.decode()
    assert again in page
    key = page.split('name="request_key" value="')[1].split('"')[0]
    for _ in range(2):
        client.post(f"/runs/{run.id}/again/", {"request_key": key})
    assert Run.objects.get(retry_of=run.id).input == "Where is it?"


def test_no_more_runs_are_counted_than_anybody_reads(mias: Client, sam: User) -> None:
    many_runs(sam, MOST_COUNTED + 5)
    page = mias.get("/runs/").content.decode()
    shown = dict(re.findall(r'(\w+) <span class="n">([^<]*)</span>', page))
    assert shown["Succeeded"] == "999+"
    assert shown["Failed"] == "0"
