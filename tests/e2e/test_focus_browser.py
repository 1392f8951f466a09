"""Focus mode in a real browser, when something comes between."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, Route, expect

from agentapp import actions
from approvals.models import Decision
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import intercept, live, rested

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]


def focused(browse: Browse, user: User) -> tuple[Page, list[Route]]:
    """Focus mode after a first decision: the next request is shown, and the request to claim it is held back."""
    page, held = browse(user, "/inbox/"), list[Route]()
    with page.expect_response("**/upcoming/"):
        live(page).keyboard.press("f")
    intercept(page, "**/inbox/focus/next/", lambda route: held.append(route), times=1)
    with page.expect_request("**/inbox/focus/next/"):
        live(page).keyboard.press("a")
    expect(page.locator("#focus")).to_have_class(re.compile("is-coming"))
    return rested(page), held


@pytest.mark.parametrize("alone", [False, True], ids=["following", "alone"])
def test_who_is_signed_out_in_focus_mode_has_their_request_back_and_decides_it_once_signed_in(
    browse: Browse, sam: User, dana: User, alone: bool
) -> None:
    approval = make_waiting(sam, title="First", risk="low", expires_seconds=600)
    if not alone:
        make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page = browse(dana, "/inbox/")
    with page.expect_response("**/upcoming/"):
        live(page).keyboard.press("f")
    sessions, cookies = list(Session.objects.all()), page.context.cookies()

    def sign_out(route: Route) -> None:
        Session.objects.all().delete()
        route.continue_()

    intercept(page, "**/decide/", sign_out, times=1)
    page.get_by_label("Amount", exact=True).fill("184.50")
    page.locator("main").focus()
    live(page).keyboard.press("a")

    dialog = page.get_by_role("dialog", name="You are signed out")
    expect(dialog).to_be_visible()
    assert not Decision.objects.exists()
    Session.objects.bulk_create(sessions)
    page.context.add_cookies(cookies)
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#focus")).to_have_attribute("data-approval-id", str(approval.pk))
    expect(page.get_by_label("Amount", exact=True)).to_have_value("184.50")
    with page.expect_response("**/inbox/focus/next/"):
        live(page).keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is waiting" if alone else "Next")
    assert Decision.objects.get().approval == approval


@pytest.mark.parametrize("width", [1440, 1100, 1000, 740, 390, 320])
def test_what_was_decided_covers_nothing_that_decides_the_next(
    browse: Browse, sam: User, dana: User, width: int
) -> None:
    make_waiting(sam, title="First", risk="low", expires_seconds=600)
    make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page = browse(dana, "/inbox/", width)
    with page.expect_response("**/upcoming/"):
        live(page).keyboard.press("f")
    with page.expect_response("**/inbox/focus/next/"):
        live(page).keyboard.press("a")

    toast, bar = page.locator(".toast"), page.locator("#focus .decide")
    expect(page.locator("#focus:not(.is-coming) h1")).to_have_text("Next")
    expect(toast).to_contain_text("First")
    above, below = toast.bounding_box(), bar.bounding_box()
    assert above is not None
    assert below is not None
    is_beside = above["x"] >= below["x"] + below["width"]
    assert is_beside or above["y"] + above["height"] <= below["y"]


def test_a_next_request_that_cannot_be_loaded_leaves_the_decision_and_is_asked_for_again(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam, title="First", risk="low", expires_seconds=600)
    make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page = browse(dana, "/inbox/")
    with page.expect_response("**/upcoming/"):
        live(page).keyboard.press("f")
    intercept(page, "**/inbox/focus/next/", lambda route: route.abort(), times=1)
    live(page).keyboard.press("a")

    alert = page.locator("#focus [role=alert]")
    expect(alert).to_contain_text("Your decision was taken. The next request could not be loaded.")
    assert Decision.objects.get().approval == approval
    alert.get_by_role("button", name="Try again").click()
    expect(alert).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("Next")
    expect(page.locator(".toast")).to_contain_text(approval.title)
    live(page).keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is waiting")


def test_what_is_typed_into_the_next_request_before_it_is_claimed_is_part_of_the_decision(
    browse: Browse, sam: User, dana: User
) -> None:
    make_waiting(sam, title="First", risk="low", expires_seconds=600)
    following = make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page, held = focused(browse, dana)
    page.keyboard.press("e")
    page.keyboard.type("184.50")
    amount = page.get_by_label("Amount", exact=True)
    expect(amount).to_have_value("184.50")

    held.pop().continue_()

    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_enabled()
    expect(amount).to_have_value("184.50")
    expect(amount).to_be_focused()
    page.keyboard.press("Escape")
    live(page).keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is waiting")
    following.refresh_from_db()
    assert (following.state, following.decisions.get().type) == ("approved", "edit")


def test_what_is_typed_into_a_request_that_somebody_else_took_is_not_in_the_one_that_comes(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    made = [make_waiting(sam, title=f"Request {n}", risk="low", expires_seconds=600 + n) for n in range(3)]
    page, held = focused(browse, dana)
    page.keyboard.press("e")
    page.keyboard.type("184.50")
    actions.claim_request(made[1].pk, marco)

    held.pop().continue_()

    expect(page.get_by_role("heading", level=1)).to_have_text("Request 2")
    expect(page.get_by_label("Amount", exact=True)).to_have_value("214.50")
    expect(page.get_by_role("button", name="Approve $214.50")).to_be_enabled()
