"""Undoing in the inbox what was just decided there: the request is back in the list, as it was, and selected."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import Approval
from tests.agentapp.console.conftest import REFUND, make_waiting
from tests.e2e.conftest import live
from tests.e2e.looks import violations
from tests.rows import take

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
LESS = {**REFUND, "amount": 184.5}


@pytest.fixture
def queue(sam: User) -> tuple[Approval, Approval]:
    """Two pending requests, the first due first."""
    first, second = (make_waiting(sam, hold_seconds=60, expires_seconds=600 + more) for more in (0, 100))
    return first, second


def chosen(page: Page, approval: Approval) -> None:
    """The request is in the list; it is the one shown, and keys decide about it."""
    expect(page.locator(f"#apr-{approval.pk} .q-main")).to_have_attribute("aria-current", "true")
    expect(page.locator("#queue [aria-current=true]")).to_have_count(1)
    expect(page.locator("#peek")).to_contain_text(approval.reference)


@pytest.mark.parametrize("by", ["key", "click"])
def test_it_is_in_the_list_again_and_what_keys_go_on_with(
    browse: Browse, queue: tuple[Approval, Approval], dana: User, complaints: list[str], by: str
) -> None:
    first, second = queue
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("a")
    toast = page.locator(".toast")
    expect(toast).to_contain_text("Approved")
    chosen(page, second)
    live(page)
    if by == "key":
        page.keyboard.press("z")
    else:
        toast.get_by_role("button", name="Undo").click()

    page.wait_for_url(f"**/inbox/?id={first.pk}")
    chosen(page, first)
    expect(toast).to_have_count(0)
    first.refresh_from_db()
    assert first.state == "pending"
    # Keys act on the request that came back: no field, and nothing of another request, has the focus.
    at = page.evaluate("(document.activeElement.closest('[id]') ?? document.body).id")
    assert at in ("", "main", "queue", "peek", f"apr-{first.pk}")
    assert violations(page) == []
    live(page).keyboard.press("r")
    expect(page.get_by_role("dialog")).to_contain_text("Reject")
    assert complaints == []


def test_what_somebody_else_changed_waits_as_they_changed_it(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, hold_seconds=60, expires_seconds=600, approvals_needed=2)
    take(approval, marco, "edit", arguments=LESS)
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("a")
    toast = page.locator(".toast")
    expect(toast).to_contain_text("Approved")
    live(page)
    toast.get_by_role("button", name="Undo").click()

    page.wait_for_url(f"**/inbox/?id={approval.pk}")
    chosen(page, approval)
    expect(page.locator("#peek")).to_contain_text("Marco Reyes changed what the agent proposed.")
    expect(page.locator("#peek")).to_contain_text("$184.50")
    approval.refresh_from_db()
    assert (approval.state, approval.is_edited) == ("pending", True)


def test_what_one_has_changed_oneself_is_typed_again_where_it_can_be_changed_further(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam, hold_seconds=60, expires_seconds=600)
    take(approval, dana, "edit", arguments=LESS)
    page = live(browse(dana, f"/inbox/?decided={approval.pk}"))
    page.locator(".toast").get_by_role("button", name="Undo").click()

    page.wait_for_url(f"**/approvals/{approval.pk}/?again=*")
    expect(page.get_by_role("textbox", name="Amount")).to_have_value("184.50")
    approval.refresh_from_db()
    assert (approval.state, approval.is_edited) == ("pending", False)
