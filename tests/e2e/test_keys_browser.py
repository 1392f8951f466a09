"""What a key or a press means where: it decides what was meant, and typing in a text field only types."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect

from approvals.models import Comment, Decision
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import intercept, live, rested
from tests.e2e.looks import violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
AT = "/approvals/{}/"
# From here on, everything counts as just shown, however slow the machine.
STILL = "() => { const at = performance.now(); performance.now = () => at; }"


def armed(page: Page) -> Locator:
    return page.get_by_role("button", name="Confirm refund of $214.50")


# --- Ctrl+Enter --------------------------------------------------------------------------------


@pytest.mark.parametrize("focus", [False, True], ids=["page", "focus mode"])
def test_ctrl_enter_in_the_box_of_comments_says_what_is_written_there(
    browse: Browse, sam: User, dana: User, marco: User, focus: bool
) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, "/inbox/" if focus else AT.format(approval.pk)))
    if focus:
        page.keyboard.press("f")
        expect(page.get_by_role("button", name="Skip")).to_be_visible()
        live(page)
    page.get_by_label("Your comment").fill("Is this the right customer?")
    page.keyboard.press("Control+Enter")

    expect(page.locator("#comments .comments li")).to_contain_text("Is this the right customer?")
    assert Comment.objects.get().approval == approval
    assert not Decision.objects.exists()


def test_ctrl_enter_in_what_belongs_to_no_decision_decides_nothing(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, risk="low")
    page = live(browse(dana, "/inbox/"))
    decided: list[str] = []
    page.on("request", lambda request: decided.append(request.url) if request.url.endswith("/decide/") else None)

    page.keyboard.press("/")
    expect(page.locator("[data-act=find]")).to_be_focused()
    page.keyboard.press("Control+Enter")
    page.get_by_role("link", name="Filter").click()
    page.get_by_label("Risk").focus()
    page.keyboard.press("Control+Enter")

    page.wait_for_timeout(300)
    assert decided == []
    assert not Decision.objects.exists()


def test_a_next_request_that_comes_late_takes_no_key_that_was_meant_for_the_last(
    browse: Browse, sam: User, dana: User
) -> None:
    first = make_waiting(sam, title="First", risk="low", expires_seconds=600)
    make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page = browse(dana, "/inbox/")
    intercept(page, re.compile("upcoming"), lambda route: route.abort())
    live(page).keyboard.press("f")
    expect(page.get_by_role("heading", level=1)).to_have_text("First")
    amount = page.get_by_label("Amount", exact=True)
    live(page).keyboard.press("e")
    expect(amount).to_be_focused()
    page.keyboard.type("184.50")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    live(page).evaluate(STILL)

    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Next")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.type("9")
    expect(amount).to_have_value("214.50")
    amount.focus()
    page.keyboard.press("Control+Enter")

    page.wait_for_timeout(300)
    expect(page.get_by_role("heading", level=1)).to_have_text("Next")
    assert Decision.objects.get().approval == first


# --- High risk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/inbox/", AT])
@pytest.mark.parametrize("how", ["double click", "two clicks at once", "held"])
def test_one_act_is_never_both_presses_of_a_high_risk(
    browse: Browse, sam: User, dana: User, address: str, how: str
) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, address.format(approval.pk)))
    approve = page.get_by_role("button", name="Approve $214.50")

    if how == "double click":
        approve.dblclick()
    elif how == "two clicks at once":
        approve.evaluate("(button) => { button.click(); button.click(); }")
    else:
        approve.focus()
        page.keyboard.down("Enter")
        rested(page)
        page.keyboard.down("Enter")
        page.keyboard.down("Enter")
        page.keyboard.up("Enter")
    expect(armed(page)).to_be_focused()
    rested(page)
    assert not Decision.objects.exists()

    if how == "held":
        page.keyboard.press("Enter")
    else:
        armed(page).click()
    expect(page.get_by_text(re.compile("Approved")).first).to_be_visible()
    assert Decision.objects.get().approval == approval


def test_the_key_that_leads_on_is_held_past_a_high_risk(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, AT.format(approval.pk)))
    approve = page.get_by_role("button", name="Approve $214.50")
    approve.focus()
    page.keyboard.down("Tab")
    approve.focus()
    page.keyboard.down("Tab")
    expect(approve).not_to_be_focused()
    page.keyboard.up("Tab")


# --- Focus mode --------------------------------------------------------------------------------


def in_focus_mode(browse: Browse, dana: User) -> Page:
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("f")
    expect(page.get_by_role("button", name="Skip")).to_be_visible()
    return live(page)


def test_what_was_chosen_otherwise_is_restored_in_focus_mode_too(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, risk="low")
    page = in_focus_mode(browse, dana)
    chosen = page.locator("#decide input[type=radio]:checked")
    was = chosen.get_attribute("value")
    page.locator("#decide input[type=radio]:not(:checked)").first.check()
    expect(page.get_by_role("button", name="Approve $214.50, edited")).to_be_visible()

    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("button", name="Approve $214.50", exact=True)).to_be_visible()
    expect(chosen).to_have_value(str(was))


def test_after_a_rejection_the_focus_is_on_the_next_request(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, title="First", risk="low", expires_seconds=600)
    make_waiting(sam, title="Next", risk="low", expires_seconds=700)
    page = in_focus_mode(browse, dana)
    with page.expect_response(re.compile("upcoming")):
        page.reload()
    live(page).keyboard.press("r")
    page.get_by_label("Tell the agent why").fill("Not hers.")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Next")
    expect(page.locator("main")).to_be_focused()


# --- Texts, and where single keys are off ------------------------------------------------------


def test_a_reason_may_begin_with_a_digit(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, AT.format(approval.pk)))
    reasons = page.locator("#reject-dialog [name=reason]")

    page.keyboard.press("r")
    expect(reasons.last).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("2")
    expect(reasons.nth(1)).to_be_focused()
    expect(reasons.nth(1)).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("3 parcels were late")

    expect(page.get_by_label("Tell the agent why")).to_have_value("3 parcels were late")
    expect(reasons.nth(1)).to_be_checked()
    assert violations(page) == []
    page.keyboard.press("Control+Enter")
    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()
    assert Decision.objects.get().message == "Not allowed. 3 parcels were late"


def test_where_single_keys_are_off_none_extends_the_selection(browse: Browse, sam: User, dana: User) -> None:
    for number in range(2):
        make_waiting(sam, title=f"Request {number}", expires_seconds=600 + number)
    page = live(browse(dana, "/inbox/"))
    page.evaluate("document.body.dataset.singleKeys = 'off'")

    page.keyboard.press("Shift+J")

    expect(page.locator("#queue :checked")).to_have_count(0)


def test_a_digit_leads_to_the_evidence_of_that_number(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, AT.format(approval.pk)))

    page.keyboard.press("2")
    expect(page.locator("[data-evidence='2']")).to_be_focused()
    page.keyboard.press("9")
    expect(page.locator("[data-evidence='2']")).to_be_focused()
