"""The page of a plan in a browser: people read call by call what they approve, and later what became of each."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import Approval
from tests.conftest import Clerk, calls, says
from tests.e2e.looks import look
from tests.plans import ANN, BOB, EVE, a_plan, approved_plan, let_plan, made, refund

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.fixture
def planning(clerk: Clerk, offer: Any, settings: Any) -> Clerk:
    offer(refund)
    let_plan(clerk, settings)
    return clerk


@pytest.fixture
def asked(planning: Clerk) -> Approval:
    run = planning.run(a_plan(ANN, BOB, EVE, purpose="Refund Ann and Bob."), says("done"), input="Two refunds")
    return planning.open(run)[0]


@pytest.fixture
def under_way(planning: Clerk, dana: User) -> Approval:
    """One of its calls has been made; the next waits for a person since it differs."""
    other = calls(made("b", BOB, amount=70))
    return approved_plan(planning, dana, [ANN, BOB, EVE], calls(made("a", ANN)), other)[1]


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_every_page_of_a_plan_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], marco: User, asked: Approval, under_way: Approval, size: Any
) -> None:
    page = browse(marco, "/inbox/", *size)
    wrong: dict[str, list[str]] = {}
    paths = {"plan": f"/approvals/{asked.pk}/", "under-way": f"/approvals/{under_way.pk}/"}
    paths["peek"] = f"/inbox/?id={asked.pk}"
    for name, path in paths.items():
        page.goto(path)
        look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_plan_is_read_call_by_call_and_approved_as_a_whole(browse: Browse, marco: User, asked: Approval) -> None:
    page = browse(marco, f"/approvals/{asked.pk}/")
    expect(page.get_by_role("heading", name="Carry out 3 calls as one plan")).to_be_visible()
    lines = page.get_by_role("list", name="The calls of the plan, in their order").get_by_role("listitem")
    expect(lines).to_have_count(3)
    expect(lines.nth(0)).to_contain_text("The agent will refund $5.00 to Ann (ann).")
    expect(lines.nth(0).locator("dt").filter(has_text="Amount")).to_have_text("Amount")
    expect(page.get_by_role("button", name="End the plan")).to_have_count(0)
    page.get_by_role("button", name="Approve 3 calls").click()
    expect(page.get_by_role("button", name="Approve 3 calls")).to_have_count(0)
    asked.refresh_from_db()
    assert asked.state == "approved"


def test_what_is_left_of_a_plan_is_ended_with_a_reason(browse: Browse, marco: User, under_way: Approval) -> None:
    page = browse(marco, f"/approvals/{under_way.pk}/")
    lines = page.get_by_role("list", name="The calls of the plan, in their order").get_by_role("listitem")
    expect(lines.nth(0)).to_contain_text("Made")
    expect(lines.nth(0).get_by_role("link", name="See the call 1")).to_be_visible()
    expect(lines.nth(1)).to_contain_text("Not made yet")
    page.get_by_label("Why the rest of this plan ends").fill("Bob has his money.")
    page.get_by_role("button", name="End the plan").click()
    expect(lines.nth(1)).to_contain_text("Ended: Bob has his money.")
    expect(page.get_by_role("button", name="End the plan")).to_have_count(0)
