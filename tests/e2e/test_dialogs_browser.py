"""Leaving a dialog without doing anything: it closes only if that was meant, and leaves one where one was."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import live
from tests.e2e.looks import violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
AT = "/approvals/{}/"


def test_selecting_a_text_out_over_the_edge_of_a_dialog_leaves_it_open(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, AT.format(approval.pk)))
    page.keyboard.press("r")
    why = page.get_by_label("Tell the agent why")
    why.fill("Late.")
    box = why.bounding_box()
    assert box is not None

    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(10, 10)
    page.mouse.up()
    expect(why).to_be_visible()
    page.mouse.click(10, 10)
    expect(why).to_be_hidden()


@pytest.mark.parametrize("way", ["Escape", "Cancel"])
@pytest.mark.parametrize(("key", "name"), [("h", "Hand over"), ("s", "Snooze")])
def test_who_does_not_hand_over_or_put_off_is_back_at_the_request(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, key: str, name: str, way: str
) -> None:
    approval = make_waiting(sam, expires_seconds=5000)
    page = live(browse(dana, AT.format(approval.pk)))

    page.keyboard.press(key)
    dialog = page.get_by_role("dialog", name=name)
    expect(dialog).to_be_visible()
    live(page)
    assert violations(page) == []
    if way == "Escape":
        page.keyboard.press("Escape")
    else:
        dialog.get_by_role("link", name="Cancel").click()

    page.wait_for_url(f"**/approvals/{approval.pk}/")
    expect(page.get_by_role("button", name="Approve $214.50")).to_be_visible()
    assert complaints == []


@pytest.mark.parametrize(("key", "name"), [("h", "Hand over"), ("s", "Snooze")])
def test_a_dialog_that_is_closed_in_the_inbox_gives_the_focus_back(
    browse: Browse, sam: User, dana: User, marco: User, key: str, name: str
) -> None:
    for number in range(3):
        make_waiting(sam, title=f"Request {number}", expires_seconds=5000 + number)
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Request 2")
    live(page).keyboard.press(key)
    dialog = page.get_by_role("dialog", name=name)
    expect(dialog).to_be_visible()
    expect(dialog.locator("select:focus, button:focus")).to_have_count(1)

    page.keyboard.press("Escape")

    expect(dialog).to_be_hidden()
    expect(page.locator(".q-main", has_text="Request 2")).to_be_focused()
