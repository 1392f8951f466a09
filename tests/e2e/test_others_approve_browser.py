"""A person who had a hand in a high-risk call's arguments reads that others approve it, and may change it again."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.agentapp.console.conftest import make_waiting
from tests.e2e.looks import violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
WHY = "You changed these arguments, so somebody else must approve them."


@pytest.fixture
def changed_by_dana(sam: User, dana: User) -> Any:
    return make_waiting(sam, risk="high", editor_id=dana.pk)


@pytest.mark.parametrize("width", [1440, 390])
def test_they_are_offered_to_approve_what_they_change_further_and_nothing_before(
    browse: Browse, changed_by_dana: Any, dana: User, complaints: list[str], width: int
) -> None:
    page = browse(dana, f"/approvals/{changed_by_dana.pk}/", width=width)
    bar = page.locator(".decide")
    expect(page.locator(".callout", has_text="Somebody else approves them.")).to_be_visible()
    expect(bar.get_by_text(WHY)).to_be_visible(visible=width > 500)  # a phone's bar has no room for the text above
    expect(bar.get_by_role("link", name="Reject")).to_be_visible()
    expect(bar.get_by_role("button", name="Approve")).to_have_count(0)
    assert violations(page) == []
    page.locator("[name='arg.amount']").fill("12.00")
    expect(bar.get_by_role("button", name="Approve")).to_be_visible()
    assert complaints == []


def test_without_script_they_look_at_their_change_first(browse: Browse, changed_by_dana: Any, dana: User) -> None:
    page = browse(dana, f"/approvals/{changed_by_dana.pk}/", java_script_enabled=False)
    page.locator("[name='arg.amount']").fill("12.00")
    page.get_by_role("button", name="Review your change").click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Confirm refund of $12.00").click()
    expect(page.get_by_text("1 change by you")).to_have_count(0)
    changed_by_dana.refresh_from_db()
    assert changed_by_dana.is_edited
    assert changed_by_dana.state == "pending"
