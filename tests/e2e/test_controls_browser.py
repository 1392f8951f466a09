"""What stops runs, as people see it: paused, out of budget, held by a switch, asked by another agent."""

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import actions, breakers
from agentapp.breakers import Thing
from agentapp.models import Agent, Run
from agentapp.models.runs import MOST_WORKERS_LOST
from approvals import ledger
from tests.agentapp.console.conftest import make_waiting
from tests.conftest import Clerk, call, calls, says
from tests.e2e.conftest import live
from tests.e2e.looks import look, violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.fixture
def held(clerk: Clerk, ada: User) -> dict[str, Run]:
    """One run each that is paused, out of budget, cut short, and held by a kill switch; and an open breaker."""
    Agent.objects.update(max_cost=Decimal("0.01"), on_budget="ask")
    dear = clerk.run({**calls(call("c", "look_up", what="x")), "usage": {"cost": 0.01}}, says("done"))
    Agent.objects.update(max_cost=None, max_iterations=1)
    partial = clerk.run(calls(call("c", "look_up", what="x")), says("As far as I got."))
    paused = clerk.start(says("done"), input="Paused on purpose")
    actions.pause_run(paused.pk, clerk.starter)
    lost = clerk.start(says("done"), input="Too much for any worker")
    Run.objects.filter(pk=lost.pk).update(workers_lost=MOST_WORKERS_LOST)
    actions.pause_run(lost.pk, clerk.starter)
    switched = clerk.start(says("done"), input="Held by a switch")
    actions.engage_switch("agent", "clerk", "It writes to the wrong people.", ada)
    clerk.drive(switched)
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(Thing("tool", "send"), "The line is dead.")
    return {"budget": dear, "partial": partial, "paused": paused, "lost": lost, "switched": switched}


@pytest.mark.parametrize("address", ["/approvals/{}/", "/inbox/"])
def test_a_request_that_is_being_read_says_what_has_been_stopped_since(
    browse: Browse, complaints: list[str], sam: User, dana: User, mia: User, address: str
) -> None:
    approval = make_waiting(sam, hold_seconds=5)
    page = live(browse(dana, address.format(approval.pk)))
    bar = page.locator(".decide .fine")
    expect(bar).to_contain_text("5 s")

    switch = actions.engage_switch("all", "", "It pays twice.", mia)

    expect(page.get_by_text("Everything was stopped by Mia Manager: It pays twice.")).to_be_visible()
    expect(bar).to_have_text("Everything was stopped by Mia Manager. Runs only when that is released")
    assert violations(page) == []
    actions.release_switch(switch.pk, mia)
    expect(bar).to_contain_text("5 s")
    expect(page.get_by_text("It pays twice.")).to_have_count(0)
    assert complaints == []


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_every_page_about_what_is_stopped_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], ada: User, held: dict[str, Run], size: tuple[int, int]
) -> None:
    page = browse(ada, "/runs/", *size)
    paths = {"switches": "/switches/", "list": "/runs/?state=paused"}
    paths |= {name: f"/runs/{run.pk}/" for name, run in held.items()}
    wrong: dict[str, list[str]] = {}
    for name, path in paths.items():
        page.goto(path)
        look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_run_is_resumed_and_a_switch_released_by_buttons_alone(
    browse: Browse, ada: User, held: dict[str, Run]
) -> None:
    page = browse(ada, f"/runs/{held['paused'].pk}/")
    page.get_by_role("button", name="Resume").first.click()
    expect(page.get_by_role("button", name="Pause").first).to_be_visible()
    page.goto("/switches/")
    page.get_by_role("button", name="Release").first.click()
    expect(page.get_by_role("button", name="Release")).to_have_count(0)
    page.get_by_label(re.compile("^Why .* is reset$")).first.fill("It answers again.")
    page.get_by_role("button", name="Reset").first.click()
    expect(page.get_by_role("button", name="Reset")).to_have_count(0)
