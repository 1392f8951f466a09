"""The inbox in a real browser: how few keys a decision takes, what moves and what stays, batches, focus mode."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import actions, preferences
from agentapp.console import queue
from approvals.models import Approval
from tests.agentapp.console.conftest import REFUND, make_waiting
from tests.e2e.conftest import intercept, live
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390"), pytest.param((320, 640), id="320")]


def too_wide(page: Page) -> bool:
    """Whether the page scrolls sideways, or part of it is cut off at the edge."""
    parts = "[document.documentElement, document.querySelector('main'), ...document.querySelectorAll('main .stack')]"
    return bool(page.evaluate(f"{parts}.some((part) => part.scrollWidth > Math.max(part.clientWidth, 1) + 1)"))


def look_whole(page: Page, name: str, wrong: dict[str, list[str]]) -> None:
    look(page, name, wrong)
    if too_wide(page):
        wrong[f"{name}, cut off"] = ["at the edge"]


def make_queue(sam: User, marco: User, dana: User) -> list[Approval]:
    """A typical queue: some claimed, one handed over, one with a question, several alike."""
    made = [
        make_waiting(sam, title="Refund $214.50 to Ana Pereira", risk="high", expires_seconds=380),
        make_waiting(sam, title="Delete all data of customer 40117", risk="critical", expires_seconds=700),
        make_waiting(sam, title="Send reply to Jon Okafor about order 58190", expires_seconds=2300),
        make_waiting(sam, title="Issue $15.00 store credit to Lena Fischer", risk="low", effect_class="reversible",
                     expires_seconds=2600),
        make_waiting(sam, title="Issue $20.00 store credit to Jo Park", risk="low", effect_class="reversible",
                     arguments={"order_id": "58214", "amount": 20.0, "reason": "changed_mind"}, expires_seconds=2700),
        make_waiting(sam, title="Resend 3 invoices to Halden Freight", expires_seconds=9000),
    ]  # fmt: skip
    actions.claim_request(made[1].pk, marco)
    actions.hand_over(made[5].pk, dana, "You know the customer.", marco)
    Approval.objects.filter(pk=made[2].pk).update(state="asked")
    return made


@pytest.mark.parametrize("size", SIZES)
def test_every_state_is_accessible_and_keeps_the_policy(
    browse: Browse,
    complaints: list[str],
    sam: User,
    dana: User,
    marco: User,
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preferences.save_view(dana, "inbox", "High risk", "?risk=high")
    preferences.save_view(dana, "inbox", "My decisions", "?view=decided&by=dana")
    made = make_queue(sam, marco, dana)
    width, height = size
    alike = f"pick={made[3].pk}&pick={made[4].pk}"
    states = {
        "inbox": "/inbox/",
        "mine": "/inbox/?view=mine",
        "filtered-empty": "/inbox/?q=nothing&risk=low",
        "claimed": f"/inbox/?id={made[1].pk}",
        "handed": f"/inbox/?id={made[5].pk}",
        "decided": "/inbox/?view=decided",
        "filters": "/inbox/filters/?risk=low",
        "views": "/inbox/views/?risk=low",
        "hand-over": f"/approvals/{made[0].pk}/hand-over/?next=inbox",
        "snooze": f"/approvals/{made[0].pk}/snooze/?next=inbox",
        "batch": f"/inbox/batch/?{alike}",
        "batch-refused": f"/inbox/batch/?{alike}&pick={made[0].pk}",
        "focus": "/inbox/focus/",
    }
    page = browse(dana, "/inbox/", width, height, is_mobile=width < 500)
    wrong: dict[str, list[str]] = {}
    for name, path in states.items():
        page.goto(path)
        if name == "inbox":
            live(page)
            if width > 500:
                page.keyboard.press("x")
                expect(page.locator("#batch-bar")).to_contain_text("1 selected")
        look_whole(page, name, wrong)

    page.goto("/inbox/")
    page.get_by_role("link", name="Filter").click()
    expect(page.get_by_label("Policy")).to_be_visible()
    look_whole(page, "filter-panel", wrong)
    page.get_by_role("button", name="Focus mode").click()
    expect(page.get_by_role("button", name="Skip")).to_be_visible()
    look_whole(page, "focus-one", wrong)
    monkeypatch.setattr(queue, "STORM", 2)
    page.goto("/inbox/")
    expect(page.get_by_text("6 requests are waiting.")).to_be_visible()
    look_whole(page, "storm", wrong)
    long = {**REFUND, "note": "We are very sorry for the trouble with your kettle. " * 10}
    several = [make_waiting(sam, arguments=long, risk="low", effect_class="reversible") for _ in range(2)]
    page.goto("/inbox/batch/?" + "&".join(f"pick={one.pk}" for one in several))
    expect(page.get_by_text("These can only be rejected together.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve 2")).to_have_count(0)
    look_whole(page, "batch-unseen", wrong)

    assert wrong == {}
    # Chromium itself reports the page that refuses a batch, as expected here.
    assert [words for words in complaints if "422" not in words] == []


def test_on_a_phone_what_is_selected_stays_in_sight_however_long_the_queue(
    browse: Browse, sam: User, dana: User
) -> None:
    for number in range(20):
        make_waiting(sam, title=f"Issue store credit {number}", risk="low", effect_class="reversible")
    page = browse(dana, "/inbox/", 390, 844)
    page.get_by_text("Select", exact=True).click()
    for box in page.locator("[name=pick]").all()[:2]:
        box.check()

    expect(page.get_by_role("button", name="Review 2")).to_be_in_viewport(ratio=1)


def test_a_claim_that_gets_no_answer_leaves_decisions_as_they_were(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, risk="low")
    page = live(browse(dana, "/inbox/"))
    intercept(page, "**/claim/", lambda route: route.fulfill(status=503, body=""))

    with page.expect_response("**/claim/"):
        page.get_by_role("button", name="Claim").click()

    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    page.keyboard.press("a")
    expect(page.locator(".toast")).to_contain_text("Approved")
