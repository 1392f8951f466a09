"""What people see of the current item if their system forces its own colours."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import live
from tests.e2e.looks import shot, violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]

MARKS = """(all) => {
  const probe = document.createElement("i");
  probe.style.color = "Highlight";
  document.body.append(probe);
  const wanted = getComputedStyle(probe).color;
  return Object.fromEntries(all.map(([selector, part, property]) => {
    const found = [...document.querySelectorAll(selector)].find((one) => one.checkVisibility());
    return [selector, found ? getComputedStyle(found, part)[property] === wanted : null];
  }));
}"""


def test_in_forced_colours_one_sees_what_is_current(browse: Browse, sam: User, dana: User, ada: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, "/inbox/", forced_colors="active"))
    side, foot = "borderInlineStartColor", "borderBlockEndColor"
    seen = page.evaluate(
        MARKS,
        [
            [".q.is-current", "::before", "backgroundColor"],
            [".tabs [aria-current]", None, foot],
            [".tabs a:not([aria-current])", None, foot],
            [".nav [aria-current]", None, side],
        ],
    )
    assert seen.pop(".tabs a:not([aria-current])") is False
    shot(page, "inbox")
    page.goto(f"/approvals/{approval.pk}/")
    live(page).keyboard.press("r")
    expect(page.locator("#reject-dialog")).to_be_visible()
    shot(page, "reject")
    seen |= page.evaluate(MARKS, [[".segment [aria-current]", None, foot], [".pick:has(:checked)", None, foot]])
    assert [selector for selector, is_seen in seen.items() if not is_seen] == []
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/runs/")
    assert page.evaluate(MARKS, [[".tabbar [aria-current]", None, foot]]) == {".tabbar [aria-current]": True}
    page = browse(ada, "/admin/", forced_colors="active")
    assert page.evaluate(MARKS, [[".console-nav [aria-current]", None, foot]]) == {".console-nav [aria-current]": True}
