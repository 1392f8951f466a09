"""The console in a real browser: looks, keys, races, and a page without JavaScript."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp.models import ToolExecution
from approvals.models import Approval, Decision
from tests.agentapp.console.conftest import make_unknown, make_waiting
from tests.e2e.conftest import PASSWORD, live, rested
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390")]


@pytest.mark.parametrize("size", SIZES)
def test_every_page_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], sam: User, dana: User, size: tuple[int, int]
) -> None:
    approval = make_waiting(sam, risk="high", expires_seconds=400)
    make_waiting(sam, risk="critical", approvals_needed=2, expires_seconds=4000)
    unknown = make_unknown(sam)
    width, height = size
    pages = {
        "/inbox/": dana,
        "/inbox/?view=decided": dana,
        "/inbox/?q=nothing": dana,
        f"/approvals/{approval.pk}/": dana,
        f"/approvals/{approval.pk}/?do=reject": dana,
        f"/approvals/{approval.pk}/?view=json": dana,
        f"/outcomes/{unknown.pk}/": dana,
    }
    wrong: dict[str, list[str]] = {}
    page = browse(None, "/login/", width, height)
    look(page, "/login/", wrong)
    page = browse(dana, "/inbox/", width, height)
    for path in pages:
        page.goto(path)
        look(page, path, wrong)

    assert wrong == {}
    assert complaints == []


def test_one_key_approves_a_low_risk_request(browse: Browse, sam: User, dana: User) -> None:
    first = make_waiting(sam, risk="low", expires_seconds=600)
    second = make_waiting(sam, risk="low", expires_seconds=700, title="The next one")
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("a")

    expect(page.locator(".toast")).to_contain_text("Approved")
    expect(page.locator("#peek-title")).to_have_text("The next one")
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == (Approval.State.APPROVED, Approval.State.PENDING)


def test_a_second_press_does_not_decide_the_next_request_unseen(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, risk="low", expires_seconds=600)
    second = make_waiting(sam, risk="low", expires_seconds=700, title="The next one")
    page = live(browse(dana, "/inbox/"))

    page.add_init_script("performance.now = ((at) => () => at)(performance.now())")
    page.keyboard.press("a")
    page.keyboard.press("a")
    expect(page.locator("#peek-title")).to_have_text("The next one")
    page.keyboard.press("a")

    page.wait_for_timeout(300)
    expect(page.locator("#peek-title")).to_have_text("The next one")
    second.refresh_from_db()
    assert second.state == Approval.State.PENDING


def test_escape_takes_the_first_of_two_keys_back(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Confirm refund of $214.50")).to_be_focused()

    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Approve $214.50")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.get_by_role("button", name="Confirm refund of $214.50")).to_be_visible()
    assert not Decision.objects.exists()


def test_what_was_armed_before_an_edit_says_nothing_of_what_is_armed_after_it(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.clock.install()
    page.get_by_role("button", name="Approve $214.50").click()
    expect(page.get_by_role("button", name="Confirm refund of $214.50")).to_be_visible()
    page.get_by_label("Amount", exact=True).fill("184.50")
    edited = page.get_by_role("button", name="Approve $184.50, edited")
    expect(edited).to_be_visible()
    page.clock.fast_forward(3000)
    edited.click()

    page.clock.fast_forward(3000)

    expect(page.get_by_role("button", name="Confirm refund of $184.50")).to_be_visible()
    page.clock.fast_forward(3500)
    expect(edited).to_be_visible()
    assert not Decision.objects.exists()


def test_a_high_risk_takes_two_keys(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Confirm refund of $214.50")).to_be_focused()
    assert not Decision.objects.exists()
    rested(page).keyboard.press("Enter")

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED


@pytest.mark.parametrize("address", ["/inbox/", "/approvals/{}/"])
def test_without_script_a_high_risk_takes_a_page_that_names_the_act(
    browse: Browse, sam: User, dana: User, address: str
) -> None:
    approval = make_waiting(sam, risk="high")
    page = browse(dana, address.format(approval.pk), java_script_enabled=False)

    page.get_by_role("button", name="Approve $214.50").click()
    expect(page.get_by_role("heading", name="Refund $214.50 for order 58213?")).to_be_visible()
    assert not Decision.objects.exists()
    page.get_by_role("link", name="Back", exact=True).click()
    expect(page.get_by_role("heading", name="Refund $214.50 for order 58213", exact=True)).to_be_visible()
    page.get_by_role("button", name="Approve $214.50").click()
    page.get_by_role("button", name="Confirm refund of $214.50").click()

    expect(page.get_by_role("button", name="Undo").first).to_be_visible()
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED


@pytest.mark.parametrize("address", ["/inbox/", "/approvals/{}/"])
def test_a_second_a_confirms_nothing_and_the_cap_says_what_does(
    browse: Browse, sam: User, dana: User, address: str
) -> None:
    approval = make_waiting(sam, risk="high")
    page = live(browse(dana, address.format(approval.pk)))
    approve = page.get_by_role("button", name="Approve $214.50")
    cap = page.locator(".decide [data-arms] .kbd")
    named = "(e) => [e.textContent, getComputedStyle(e).fontSize, getComputedStyle(e, '::after').content]"
    assert cap.evaluate(named)[0] == "A"
    assert cap.evaluate(named)[2] == "none"

    page.keyboard.press("a")
    armed = page.get_by_role("button", name="Confirm refund of $214.50")
    expect(armed).to_be_focused()
    assert cap.evaluate(named)[1:] == ["0px", '"Enter"']
    page.keyboard.press("Tab")
    page.keyboard.press("a")
    page.keyboard.press("a")
    expect(armed).to_be_focused()
    page.wait_for_timeout(300)
    assert not Decision.objects.exists()

    page.keyboard.press("Escape")
    expect(approve).to_be_focused()
    assert cap.evaluate(named)[2] == "none"
    page.keyboard.press("a")
    rested(page).keyboard.press("Enter")
    expect(page.get_by_text(re.compile("Approved"))).not_to_have_count(0)
    assert Decision.objects.count() == 1


@pytest.mark.parametrize("address", ["/inbox/", "/approvals/{}/"])
def test_at_a_desk_the_bar_is_one_row_and_a_menu_has_the_rest(
    browse: Browse, sam: User, dana: User, address: str
) -> None:
    approval = make_waiting(sam, button="email to Priya Nair")
    page = live(browse(dana, address.format(approval.pk), viewport={"width": 1440, "height": 900}))
    bar = page.locator(".decide")
    assert bar.bounding_box()["height"] < 60  # type: ignore[index]
    fine = bar.locator(".fine")
    assert fine.bounding_box()["height"] < 25  # type: ignore[index]

    page.locator("details.menu:visible > summary[aria-label^=More]").first.click()
    page.get_by_role("link", name="Respond").click()
    expect(page.locator("#respond-dialog")).to_be_visible()


def test_what_cannot_be_changed_any_more_does_not_look_as_if_it_could(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, hold_seconds=60)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    colours = "(e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).borderTopColor]"
    amount, note = page.locator(".affix:has([name='arg.amount'])"), page.locator("[name='arg.note']")
    before = note.evaluate(colours)
    assert amount.evaluate(colours) == before

    page.keyboard.press("a")
    expect(page.get_by_text("Approved. Runs in")).to_be_visible()

    assert amount.evaluate(colours) == note.evaluate(colours) != before


def test_three_keys_reject_with_a_reason(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press("r")
    expect(page.locator("#reject-dialog")).to_be_visible()
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")

    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()
    assert Decision.objects.get().message == "Not allowed"


def test_editing_a_field_shows_its_effect_and_runs_what_is_shown(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press("e")
    expect(page.get_by_label("Amount", exact=True)).to_be_focused()
    page.keyboard.type("184.50")

    expect(page.get_by_role("heading", level=1)).to_have_text("Refund $184.50 for order 58213")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    expect(page.get_by_label("Amount", exact=True)).to_be_focused()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_label("Amount", exact=True)).to_have_value("214.50")
    page.get_by_label("Amount", exact=True).fill("100")
    expect(page.get_by_role("button", name="Approve $100.00, edited")).to_be_visible()
    page.keyboard.press("Control+Enter")

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    approval.refresh_from_db()
    assert '"amount":100' in approval.final_arguments_text


def test_undo_is_one_key_while_it_is_held(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low", hold_seconds=30)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.keyboard.press("a")
    expect(page.get_by_text("Approved. Runs in")).to_be_visible()

    live(page).keyboard.press("z")

    expect(page.get_by_role("button", name="Approve $214.50")).to_be_visible()
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING


def test_two_people_decide_at_once_and_the_second_is_told_who_and_what(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="low")
    address = f"/approvals/{approval.pk}/"
    # Both look at the same time; neither page hears of the other's decision before sending its own.
    danas = browse(dana, address)
    marcos = browse(marco, address)
    for page in (danas, marcos):
        live(page).evaluate("document.getElementById('live').remove(); document.getElementById('news').remove()")

    danas.evaluate("document.querySelector('[data-act=approve]').click()")
    marcos.evaluate("document.querySelector('[data-act=approve]').click()")
    expect(danas.get_by_text("Approved. Runs in").or_(danas.locator("#conflict"))).to_be_visible()
    expect(marcos.get_by_text("Approved. Runs in").or_(marcos.locator("#conflict"))).to_be_visible()

    decision = Decision.objects.get()
    loser = marcos if decision.user == dana else danas
    winner = "Dana Whitfield" if decision.user == dana else "Marco Reyes"
    expect(loser.locator("#conflict-title")).to_have_text(f"{winner} already decided this")
    expect(loser.locator("#conflict")).to_contain_text(f"{winner} already approved it. Your decision was not recorded.")


def test_a_decision_elsewhere_is_seen_without_moving_the_queue(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    first = make_waiting(sam, title="First", expires_seconds=600)
    make_waiting(sam, title="Second", expires_seconds=700)
    danas = live(browse(dana, "/inbox/"))
    marcos = live(browse(marco, f"/approvals/{first.pk}/"))

    marcos.keyboard.press("a")

    expect(danas.locator(f"#apr-{first.pk}")).to_contain_text("Approved by Marco")
    expect(danas.locator("#queue .q-title")).to_have_text(["First", "Second"])
    expect(danas).to_have_title(re.compile(r"^\(1\) Inbox"))


def test_new_requests_wait_behind_a_count_until_asked_for(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, title="First", expires_seconds=600)
    page = live(browse(dana, "/inbox/"))

    make_waiting(sam, title="Newer", expires_seconds=60)

    expect(page.locator("#news")).to_contain_text("1 new request")
    expect(page.locator("#queue .q-title")).to_have_text(["First"])
    expect(page).to_have_title(re.compile(r"^\(2\) Inbox"))
    page.keyboard.press(".")
    expect(page.locator("#queue .q-title")).to_have_text(["Newer", "First"])


def test_typed_text_survives_what_others_do(browse: Browse, sam: User, dana: User, marco: User) -> None:
    approval = make_waiting(sam, risk="low")
    danas = live(browse(dana, f"/approvals/{approval.pk}/"))
    danas.get_by_label("Message to customer").fill("A careful text.")
    expect(danas.get_by_role("button", name="Approve $214.50, edited")).to_be_visible()
    marcos = live(browse(marco, f"/approvals/{approval.pk}/"))

    marcos.keyboard.press("a")

    expect(danas.get_by_text("Marco Reyes has decided this.")).to_be_visible()
    expect(danas.get_by_label("Message to customer")).to_have_value("A careful text.")


def test_a_request_whose_decision_is_taken_back_can_be_decided_by_those_who_read_it(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="low", hold_seconds=600)
    danas = live(browse(dana, f"/approvals/{approval.pk}/"))
    approve = danas.get_by_role("button", name="Approve $214.50")
    marcos = live(browse(marco, f"/approvals/{approval.pk}/"))
    marcos.keyboard.press("a")
    expect(danas.get_by_text("Marco Reyes has decided this.")).to_be_visible()
    expect(approve).to_be_disabled()

    marcos.get_by_role("button", name="Undo").first.click()

    expect(danas.get_by_text("This request changed while you were reading.")).to_be_visible()
    expect(danas.get_by_text("Marco Reyes has decided this.")).to_have_count(0)
    danas.get_by_role("link", name="Show changes").click()
    expect(approve).to_be_enabled()
    approve.click()
    expect(danas.get_by_role("button", name="Undo").first).to_be_visible()
    approval.refresh_from_db()
    assert approval.state == "approved"


def test_keys_move_through_the_queue_and_rest_while_typing(browse: Browse, sam: User, dana: User) -> None:
    for number in range(3):
        make_waiting(sam, title=f"Request {number}", expires_seconds=600 + number)
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Request 1")
    rested(page)
    page.keyboard.press("k")
    expect(page.locator("#peek-title")).to_have_text("Request 0")
    rested(page)
    page.keyboard.press("/")
    page.keyboard.type("aaa")
    expect(page.get_by_placeholder("Find")).to_have_value("aaa")
    assert not Decision.objects.exists()


def test_the_sheet_names_only_keys_that_work_here(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam)
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("?")

    expect(page.locator("#keys dt")).to_have_text(
        ["A", "E", "R", "Q", "T", "C", "H", "S", "F", "O", "/", "1–9", "CtrlK", "?", "GI", "GR", "GT", "GS", "X"]
    )


def test_without_the_server_decisions_are_disabled_and_say_why(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam)
    page = live(browse(dana, "/inbox/"))

    page.context.set_offline(True)

    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    expect(page.locator(".bar [data-live-words]")).to_contain_text("Decisions are disabled.")
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_a_browser_without_a_network_that_reaches_the_server_all_the_same_decides(
    browse: Browse, sam: User, dana: User
) -> None:
    """As on a laptop in a train that also runs the server."""
    make_waiting(sam)
    page = live(browse(dana, "/inbox/"))
    page.evaluate("Object.defineProperty(navigator, 'onLine', { value: false })")

    with page.expect_response("**/counts/**"):
        page.evaluate("dispatchEvent(new Event('offline'))")

    expect(page.locator(".bar [data-live-words]")).to_contain_text("Live")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_who_is_signed_out_elsewhere_cannot_decide_and_asks_only_once(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam)
    page = live(browse(dana, "/inbox/"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)

    page.context.clear_cookies()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange')); htmx.trigger('#live', 'session.expired')")

    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    page.wait_for_timeout(1500)
    assert len(asked) <= 1


def test_a_phone_opens_the_request_and_decides_with_a_tap(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = browse(dana, "/inbox/", 390, 844, is_mobile=True)

    page.locator("#queue .q-main").first.tap()
    page.wait_for_url(f"**/approvals/{approval.pk}/")
    page.get_by_role("button", name="Approve $214.50").tap()

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()


def test_without_script_one_signs_in_reads_edits_and_decides(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="high")
    page = browse(None, "/login/", java_script_enabled=False)
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#queue .q-main").first.click()

    page.get_by_label("Amount", exact=True).fill("100")
    page.get_by_role("button", name="Check changes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Refund $100.00 for order 58213")
    page.get_by_role("link", name="Reject").click()
    expect(page.locator("#reject-dialog")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Confirm refund of $214.50").click()

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING


def test_an_unknown_outcome_is_resolved_from_the_inbox(browse: Browse, sam: User, dana: User) -> None:
    execution = make_unknown(sam)
    page = live(browse(dana, "/inbox/"))

    page.get_by_label("How do you know?").fill("The refund is in Stripe.")
    page.get_by_role("button", name="It happened").click()

    expect(page.get_by_text("Nothing is waiting")).to_be_visible()
    execution.refresh_from_db()
    assert execution.state == ToolExecution.State.FINISHED


def test_a_request_that_runs_out_of_time_says_so(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now())

    page.keyboard.press("a")

    expect(page.locator("#conflict")).to_contain_text("Time ran out before this decision")
