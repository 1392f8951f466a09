"""Insights in a browser: every tab at every size, the keys, and what a hidden tab does not request."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp.insights import catch_up
from agentapp.models import Agent, Breaker
from tests.e2e.conftest import rested
from tests.e2e.looks import look, violations
from tests.traffic import generate

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
TABS = ("/insights/", "/insights/cost/", "/insights/reliability/")


@pytest.fixture
def traffic(mia: User, dana: User, marco: User) -> None:
    """Two weeks of traffic, with an open breaker."""
    now = timezone.now()
    team = Group.objects.create(name="payments")
    generate(now - timedelta(days=20), now, 400, [dana, marco, mia], [team], calls=2).write()
    Agent.objects.update(max_daily_cost="0.40")
    Breaker.objects.create(
        scope="tool", key="carrier_lookup", state="open", opened_at=now - timedelta(seconds=20), failures=6,
        last_error="retryable_error: The carrier does not answer.",
    )  # fmt: skip
    Breaker.objects.create(scope="tool", key="score_fraud", failures=1, last_error="timed_out: Too slow.")
    catch_up(most=timedelta(days=60))


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_every_tab_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], mia: User, traffic: None, size: Any
) -> None:
    page = browse(mia, "/insights/", *size)
    wrong: dict[str, list[str]] = {}
    for path in (*TABS, "/insights/?range=24h&team=payments"):
        page.goto(path)
        page.evaluate("for (const table of document.querySelectorAll('#card-waiting details')) table.open = true")
        look(page, path, wrong, full_page=True)
    assert wrong == {}
    assert complaints == []


def test_pages_without_any_figure_say_what_will_be_there(browse: Browse, complaints: list[str], mia: User) -> None:
    page = browse(mia, "/insights/")
    for path, words in zip(
        TABS, ("No request was decided", "Nothing has cost anything", "No call of a tool"), strict=True
    ):
        page.goto(path)
        expect(page.locator("#figures")).to_contain_text(words)
        assert violations(page) == []
    assert complaints == []


def test_a_digit_chooses_the_range(browse: Browse, mia: User) -> None:
    page = browse(mia, "/insights/cost/")
    for key, words in (("1", "24 h"), ("3", "90 days"), ("2", "14 days")):
        rested(page)
        page.keyboard.press(key)
        expect(page.locator(".segment [aria-current=true]")).to_have_text(words)


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_what_the_menus_hold_stays_on_the_screen(
    browse: Browse, mia: User, traffic: None, width: int
) -> None:
    page = browse(mia, "/insights/?range=custom&from=2026-11-10&to=2026-11-01", width, 844)
    for menu in page.locator(".insights-bar details.menu").all():
        if menu.get_attribute("open") is None:
            menu.locator("summary").click()
        box = menu.locator(".menu-list").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        menu.locator("summary").click()


def test_why_a_range_was_not_taken_is_said_in_the_colour_of_what_is_wrong(browse: Browse, mia: User) -> None:
    page = browse(mia, "/insights/?range=custom&from=2026-11-10&to=2026-11-01")
    wrong = page.locator(".callout.bad .icon").first.evaluate("icon => getComputedStyle(icon).color")
    expect(page.locator("#range-e")).to_have_css("color", wrong)


def test_figures_come_again_by_themselves_and_not_in_a_hidden_tab(browse: Browse, mia: User) -> None:
    page = browse(mia, "/insights/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/insights/" in request.url else None)
    page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
                if (ctx.sourceElement.id === "figures") setTimeout(done);
            });
            htmx.trigger("#figures", "seen");
        })"""
    )
    expect(page.locator("#figures .kpi-l").first).to_have_text("Waiting now")
    before = len(asked)
    page.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})")
    page.evaluate("htmx.trigger('#figures', 'seen')")
    page.evaluate("delete document.hidden")
    with page.expect_response(lambda response: response.url.endswith("/insights/")):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert len(asked) == before + 1


def test_who_may_resets_a_breaker_with_a_reason(browse: Browse, mia: User, traffic: None) -> None:
    page = browse(mia, "/insights/reliability/")
    row = page.locator(".breakers li", has_text="carrier_lookup")
    row.locator("summary").click()
    row.get_by_label("Why carrier_lookup is reset").fill("The carrier says the outage is over.")
    row.get_by_role("button", name="Reset").click()
    expect(page.locator("#figures")).to_contain_text("The breaker of carrier_lookup is closed")
    expect(row.locator(".badge")).to_have_text("Closed")
