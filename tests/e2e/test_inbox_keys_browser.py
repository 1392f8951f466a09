"""Deciding in the inbox by key, alone and with others around: how few keys, and never the wrong request."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import actions
from approvals import claims
from approvals.models import Approval, Claim, Decision
from tests.agentapp.console.conftest import make_unknown, make_waiting
from tests.e2e.conftest import intercept, live, rested
from tests.rows import take

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]


@pytest.mark.parametrize(
    ("risk", "keys", "state"),
    [
        ("low", ["a"], "approved"),
        ("medium", ["a"], "approved"),
        ("high", ["a", "Enter"], "approved"),
        ("medium", ["r", "1", "Control+Enter"], "rejected"),
    ],
)
def test_so_many_keys_and_not_one_more_decide_from_the_open_inbox(
    browse: Browse, sam: User, dana: User, risk: str, keys: list[str], state: str
) -> None:
    approval = make_waiting(sam, risk=risk, expires_seconds=600)
    page = live(browse(dana, "/inbox/"))

    for key in keys[:-1]:
        page.keyboard.press(key)
        rested(page)  # time to have read what is being confirmed
        assert not Decision.objects.exists()
    page.keyboard.press(keys[-1])

    expect(page.locator(".toast")).to_contain_text("Approved" if state == "approved" else "Rejected")
    approval.refresh_from_db()
    assert approval.state == state


def test_decided_elsewhere_between_seeing_and_pressing(browse: Browse, sam: User, dana: User, marco: User) -> None:
    approval, following = make_waiting(sam, expires_seconds=600), make_waiting(sam, expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    # Marco's decision is not heard of before Dana's is sent.
    page.evaluate("document.getElementById('live').remove()")
    new = actions.NewDecision(following.pk, "reject", approval.version, approval.action_digest, message="No.")
    actions.decide(approval.pk, new, marco)

    page.keyboard.press("a")

    expect(page.locator("#conflict-title")).to_have_text("Marco Reyes already decided this")
    expect(page.locator("#conflict")).to_contain_text("Your decision was not recorded.")
    following.refresh_from_db()
    assert (Decision.objects.count(), following.state) == (1, Approval.State.PENDING)


def test_a_claim_is_seen_by_the_other_at_once_and_asks_before_deciding(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="low", expires_seconds=600)
    danas, marcos = live(browse(dana, "/inbox/")), live(browse(marco, "/inbox/"))

    danas.keyboard.press("c")
    expect(danas.locator(".peek-bar")).to_contain_text("Claimed by you")
    expect(danas.locator("#tabs")).to_contain_text("Mine 1")
    expect(marcos.locator(".peek-bar")).to_contain_text("Claimed by Dana Whitfield")
    expect(marcos.locator(f"#apr-{approval.pk} .q-holder")).to_be_visible()

    live(marcos).keyboard.press("a")
    assert not Decision.objects.exists()
    marcos.get_by_role("link", name="Decide anyway").click()
    expect(marcos.get_by_role("button", name="Approve $214.50")).to_be_visible()
    live(marcos).keyboard.press("a")

    expect(marcos.locator(".toast")).to_contain_text("Approved")
    expect(danas.locator(f"#apr-{approval.pk}")).to_contain_text("Approved by Marco")


@pytest.mark.parametrize("by", ["key", "click"])
def test_edit_leads_into_the_first_field_and_what_is_typed_there_decides_nothing(
    browse: Browse, sam: User, dana: User, by: str
) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, "/inbox/"))

    if by == "key":
        page.keyboard.press("e")
    else:
        page.locator("#peek [data-act=edit]").click()
    page.wait_for_url("**/approvals/*/**")
    live(page)
    page.keyboard.type("184.50 a")

    amount = page.get_by_role("textbox", name="Amount")
    expect(amount).to_be_focused()
    expect(amount).to_have_value("184.50 a")
    approval.refresh_from_db()
    assert approval.state == "pending"
    assert not Decision.objects.exists()


def test_c_releases_what_it_claimed(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("c")
    expect(page.locator(".peek-bar")).to_contain_text("Claimed by you")
    live(page).keyboard.press("c")

    expect(page.get_by_role("button", name="Claim", exact=True)).to_be_visible()
    assert claims.of(approval.pk) is None


def test_closing_the_page_gives_back_and_going_on_within_the_console_does_not(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("c")
    expect(page.locator(".peek-bar")).to_contain_text("Claimed by you")
    page.get_by_role("link", name="Open").click()
    page.wait_for_url("**/approvals/**")
    assert Claim.objects.get().approval == approval

    page.goto("/inbox/")
    live(page)
    page.goto("about:blank")
    other = browse(dana, "/inbox/?view=free")
    expect(other.locator("#queue .q")).to_have_count(1)


def test_closing_the_page_of_a_request_gives_it_back(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.keyboard.press("c")
    expect(page.locator(".bar .badge", has_text="Claimed by you")).to_be_visible()
    # A press counts for five seconds as the start of a move within the console, so let that time pass.
    page.reload()
    with page.expect_request("**/release/"):
        page.evaluate("const now = Date.now; Date.now = () => now() + 6000; dispatchEvent(new Event('pagehide'))")

    expect(browse(dana, "/inbox/?view=free").locator("#queue .q")).to_have_count(1)


def test_handing_over_and_putting_off_are_dialogs_that_a_key_opens(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    first, second = make_waiting(sam, expires_seconds=5000), make_waiting(sam, expires_seconds=6000, title="The next")
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("h")
    expect(page.get_by_role("dialog", name="Hand over")).to_be_visible()
    page.get_by_label("To", exact=True).select_option("Marco Reyes")
    page.get_by_label("Note").fill("You know her.")
    page.get_by_role("button", name="Hand over").click()
    expect(page.locator("#peek-title")).to_have_text("The next")
    live(page).keyboard.press("s")
    page.get_by_role("button", name="15 minutes").click()

    expect(page.locator("#queue .q")).to_have_count(1)
    assert Claim.objects.get().user == marco
    assert second.snoozes.get().user == dana
    assert first.snoozes.count() == 0


def test_rows_are_passed_as_quickly_as_one_presses_and_none_is_decided_unseen(
    browse: Browse, sam: User, dana: User
) -> None:
    for number in range(5):
        make_waiting(sam, title=f"Request {number}", risk="low", expires_seconds=600 + number)
    page = live(browse(dana, "/inbox/"))
    # A request has been shown for less than a moment, however slow the machine.
    page.evaluate("const at = performance.now(); performance.now = () => at")

    for key in ("j", "j", "ArrowDown", "j", "k"):
        page.keyboard.press(key)
    expect(page.locator("#queue [aria-current]")).to_contain_text("Request 3")
    expect(page.locator("#peek-title")).to_have_text("Request 3")
    page.keyboard.press("a")
    page.keyboard.press("j")

    expect(page.locator("#peek-title")).to_have_text("Request 4")
    assert not Decision.objects.exists()


def test_selecting_by_key_and_deciding_together(browse: Browse, sam: User, dana: User, complaints: list[str]) -> None:
    for number in range(3):
        make_waiting(sam, title=f"Credit {number}", risk="low", effect_class="reversible", expires_seconds=600 + number)
    make_waiting(sam, title="Risky", risk="high", effect_class="reversible", expires_seconds=900)
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("x")
    expect(page.locator("#batch-bar")).to_contain_text("1 selected, all low risk, all refund_payment")
    page.keyboard.press("Shift+J")
    expect(page.locator("#batch-bar")).to_contain_text("2 selected")
    expect(page.locator("#peek-title")).to_have_text("Credit 1")
    page.locator("#queue .q-check", has_text="Select").last.click()
    expect(page.locator("#batch-bar")).to_contain_text("1 is high risk: decide it on its own.")
    page.keyboard.press("Escape")
    expect(page.locator("#batch-bar")).not_to_contain_text("selected")
    live(page).keyboard.press("x")
    live(page).keyboard.press("Shift+K")
    expect(page.locator("#batch-bar")).to_contain_text("2 selected")
    live(page).keyboard.press("b")
    page.get_by_role("button", name="Approve 2").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    assert Decision.objects.count() == 2
    assert complaints == []


def test_z_takes_a_batch_back_and_what_came_of_it_is_no_older_than_the_calls(
    browse: Browse, sam: User, dana: User, complaints: list[str]
) -> None:
    made = [make_waiting(sam, risk="low", effect_class="reversible", expires_seconds=600 + n) for n in range(2)]
    page = live(browse(dana, "/inbox/"))

    def decide() -> None:
        page.keyboard.press("x")
        page.keyboard.press("Shift+J")
        expect(page.locator("#batch-bar")).to_contain_text("2 selected")
        live(page).keyboard.press("b")
        page.get_by_role("button", name="Approve 2").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
        live(page)

    decide()
    page.keyboard.press("?")
    expect(page.locator("#keys dd", has_text="Undo my last decision")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("z")
    expect(page.locator("#results")).to_contain_text("Taken back by you.")
    assert not Decision.objects.filter(undone_at__isnull=True).exists()

    page.goto("/inbox/")
    live(page)
    decide()
    expect(page.get_by_role("button", name="Undo all 2")).to_be_visible()
    Approval.objects.filter(pk__in=[one.pk for one in made]).update(runs_at=timezone.now())
    make_waiting(sam)
    expect(page.locator("#results")).to_contain_text("Runs in a moment.")
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert complaints == []


def test_what_was_typed_and_ticked_about_one_request_is_not_in_the_dialog_of_the_next(
    browse: Browse, sam: User, dana: User
) -> None:
    for number in range(2):
        make_waiting(sam, title=f"Request {number}", expires_seconds=600 + number)
    page = live(browse(dana, "/inbox/"))
    why, stops = page.get_by_label("Tell the agent why"), page.get_by_label("Also stop the run")
    page.keyboard.press("r")
    page.keyboard.press("1")
    why.fill("About the first.")
    stops.check()
    page.keyboard.press("Escape")

    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Request 1")
    live(page).keyboard.press("r")

    expect(why).to_have_value("")
    expect(stops).not_to_be_checked()
    expect(page.locator("#reject-dialog [name=reason]").last).to_be_checked()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(page.locator("#peek-title")).to_have_text("Request 0")
    live(page).keyboard.press("r")
    expect(why).to_have_value("About the first.")


def test_what_was_found_out_about_one_call_is_not_in_the_form_of_the_next(
    browse: Browse, sam: User, dana: User
) -> None:
    calls = [make_unknown(sam) for _ in range(2)]
    page = live(browse(dana, "/inbox/"))
    page.locator(f"#out-{calls[0].pk} .q-main").click()
    form = page.locator("#peek form:has(#note)")
    expect(form).to_have_attribute("action", f"/outcomes/{calls[0].pk}/")
    page.get_by_label("How do you know?").fill("The first is in the log.")

    page.locator(f"#out-{calls[1].pk} .q-main").click()

    expect(form).to_have_attribute("action", f"/outcomes/{calls[1].pk}/")
    expect(page.get_by_label("How do you know?")).to_have_value("")


def test_what_somebody_else_has_found_out_ends_the_form_in_the_preview(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User
) -> None:
    calls = [make_unknown(sam) for _ in range(2)]
    page = live(browse(dana, "/inbox/"))
    page.locator(f"#out-{calls[0].pk} .q-main").click()
    form = page.locator("#peek form:has(#note)")
    expect(form).to_have_attribute("action", f"/outcomes/{calls[0].pk}/")
    note = page.get_by_label("How do you know?")
    note.fill("It is in")
    actions.resolve_outcome(calls[1].pk, "happened", "I looked.", marco)
    expect(page.locator(f"#out-{calls[1].pk}")).to_have_count(0)
    live(page)
    expect(note).to_be_focused()
    note.press_sequentially(" the log.")
    expect(note).to_have_value("It is in the log.")

    actions.resolve_outcome(calls[0].pk, "happened", "I saw it.", marco)

    expect(page.locator("#peek")).to_contain_text("Somebody has found out. I saw it.")
    expect(page.get_by_role("button", name="It happened")).to_have_count(0)
    assert complaints == []


def test_what_others_decide_leaves_the_selection_and_its_count(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    made = [make_waiting(sam, title=f"Credit {n}", risk="low", effect_class="reversible", expires_seconds=600 + n)
            for n in range(3)]  # fmt: skip
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("x")
    page.keyboard.press("Shift+J")
    page.keyboard.press("Shift+J")
    expect(page.locator("#batch-bar")).to_contain_text("3 selected")

    new = actions.NewDecision(made[2].pk, "reject", made[0].version, made[0].action_digest, message="No.")
    actions.decide(made[0].pk, new, marco)

    expect(page.locator("#batch-bar")).to_contain_text("2 selected, all low risk")
    expect(page.get_by_role("button", name="Review 2")).to_be_visible()


def test_focus_mode_shows_the_next_before_it_is_asked_for(
    browse: Browse, sam: User, dana: User, complaints: list[str]
) -> None:
    made = [make_waiting(sam, title=f"Request {n}", risk="low", expires_seconds=600 + n) for n in range(3)]
    page = live(browse(dana, "/inbox/"))

    with page.expect_response("**/upcoming/"):
        page.keyboard.press("f")
    expect(page.get_by_role("heading", level=1)).to_have_text("Request 0")
    with page.expect_response("**/inbox/focus/next/"):
        live(page).keyboard.press("a")
        expect(page.get_by_role("heading", level=1)).to_have_text("Request 1")
    expect(page.locator(".toast")).to_contain_text("Approved")
    page.wait_for_url(f"**/inbox/focus/{made[1].pk}/")
    live(page).keyboard.press("s")
    expect(page.get_by_role("heading", level=1)).to_have_text("Request 2")
    live(page).keyboard.press("a")

    expect(page.get_by_role("heading", level=1)).to_contain_text("Done for now")
    assert [Approval.objects.get(pk=row.pk).state for row in made] == ["approved", "pending", "approved"]
    assert claims.of(made[1].pk) is None
    assert complaints == []


def test_focus_mode_replaces_what_somebody_else_took_meanwhile(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    made = [make_waiting(sam, title=f"Request {n}", risk="low", expires_seconds=600 + n) for n in range(3)]
    page = browse(dana, "/inbox/")
    with page.expect_response("**/upcoming/"):
        live(page).keyboard.press("f")
    actions.claim_request(made[1].pk, marco)

    live(page).keyboard.press("a")

    expect(page.get_by_role("heading", level=1)).to_have_text("Request 2")
    page.wait_for_url(f"**/inbox/focus/{made[2].pk}/")
    assert Claim.objects.get(approval=made[1]).user == marco


def test_an_empty_list_takes_in_what_comes_by_itself(browse: Browse, sam: User, dana: User) -> None:
    page = live(browse(dana, "/inbox/"))
    expect(page.get_by_text("Nothing is waiting")).to_be_visible()

    make_waiting(sam, title="The first of the day")

    expect(page.locator("#queue .q-title")).to_have_text(["The first of the day"])
    expect(page.locator("#peek-title")).to_have_text("The first of the day")


def test_a_dot_shows_the_new_ones_and_leaves_what_is_read(browse: Browse, sam: User, dana: User) -> None:
    for number in range(3):
        make_waiting(sam, title=f"Request {number}", expires_seconds=600 + number)
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Request 1")
    make_waiting(sam, title="Newer", expires_seconds=300)
    expect(page.locator("#news")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Request 2")

    live(page).keyboard.press(".")

    expect(page.locator("#queue .q-title").first).to_have_text("Newer")
    expect(page.locator("#peek-title")).to_have_text("Request 2")


def hidden_inbox(browse: Browse, user: User) -> Page:
    """The inbox in a hidden tab of a browser that may notify; it records its notifications."""
    page = browse(user, "/inbox/")
    page.add_init_script(
        """window.told = [];
        window.Notification = class { constructor(title, options) {
            this.tag = options.tag;
            told.push([title, options.body, options.tag]); document.body.dataset.told = told.map((each) => each[2]); }
          close() { document.body.dataset.closed = `${document.body.dataset.closed ?? ""} ${this.tag}`.trim(); }
          static permission = "granted"; static requestPermission() {} };
        Object.defineProperty(document, "hidden", { get: () => true });"""
    )
    with page.expect_response("**/inbox/notices/"):
        page.reload()
    return page


def test_a_hidden_inbox_tells_once_of_each_request_sums_up_many_and_takes_back_what_was_decided(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    page = hidden_inbox(browse, dana)
    live(page)

    first = make_waiting(sam, title="Refund to Ana", risk="high", expires_seconds=380)
    expect(page.locator("body")).to_have_attribute("data-told", str(first.pk))
    for number in range(3):
        make_waiting(sam, title=f"Another {number}")
    expect(page.locator("body")).to_have_attribute("data-told", re.compile(r",many$"))

    told = page.evaluate("told")
    assert told[0][0] == "High-risk refund payment is waiting"
    assert told[0][2] == str(first.pk)
    assert "Ana" not in str(told)
    assert [tag for _, _, tag in told].count(str(first.pk)) == 1

    # Decided elsewhere: its notification goes, the one about all requests stays.
    assert page.locator("body").get_attribute("data-closed") is None
    take(first, marco)
    expect(page.locator("body")).to_have_attribute("data-closed", str(first.pk))


def test_a_hidden_inbox_tells_by_itself_that_a_request_of_mine_is_due_soon(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam, expires_seconds=3600)
    page = hidden_inbox(browse, dana)
    page.clock.install()
    with page.expect_response("**/inbox/notices/"):
        page.reload()
    live(page)
    with page.expect_response("**/inbox/notices/"):
        actions.claim_request(approval.pk, dana)
    # Without the stream, no event makes the page look.
    intercept(page, "**/live/**", lambda route: route.abort())
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() + timedelta(minutes=10))
    page.clock.run_for(30_000)

    expect(page.locator("body")).to_have_attribute("data-told", f"due_soon-{approval.pk}")


def test_permission_is_asked_for_by_a_button_only_and_once(browse: Browse, dana: User) -> None:
    page = browse(dana, "/inbox/")
    page.add_init_script(
        """window.asked = 0; window.Notification = class { static permission = "default";
        static requestPermission() { asked++; } };"""
    )
    page.reload()
    assert page.evaluate("asked") == 0

    page.get_by_role("button", name="Allow notifications").click()

    assert page.evaluate("asked") == 1
    page.reload()
    expect(page.get_by_role("button", name="Allow notifications")).to_be_hidden()


def test_what_is_armed_stays_so_while_others_come_in_and_not_when_it_has_changed(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="high", approvals_needed=2, expires_seconds=600)
    page = live(browse(dana, "/inbox/"))
    page.clock.install()
    page.clock.pause_at(timezone.now() + timedelta(seconds=5))
    page.keyboard.press("a")
    armed = page.locator("#peek [data-arms][value=confirm]")
    expect(armed).to_be_focused()

    make_waiting(sam, title="Another")
    page.clock.run_for(1500)
    expect(page.locator("#news")).to_be_visible()
    page.clock.run_for(1500)
    expect(armed).to_have_text(re.compile("Confirm refund of"))

    take(approval, marco)
    page.clock.run_for(6000)  # nobody has confirmed it
    page.clock.resume()
    expect(page.get_by_role("button", name="Approve $214.50 as 2 of 2")).to_be_visible()
    expect(armed).to_have_count(0)
    assert Decision.objects.get().user == marco


def test_without_script_one_claims_filters_batches_and_focuses(browse: Browse, sam: User, dana: User) -> None:
    for number in range(2):
        make_waiting(sam, title=f"Credit {number}", risk="low", effect_class="reversible", expires_seconds=600 + number)
    page = browse(dana, "/inbox/", java_script_enabled=False)

    page.get_by_role("button", name="Claim").click()
    expect(page.locator(".peek-bar")).to_contain_text("Claimed by you")
    page.get_by_role("link", name="Filter").click()
    page.get_by_label("Risk").select_option("Low")
    page.get_by_role("button", name="Show these").click()
    expect(page.locator("#queue [name=pick]")).to_have_count(2)
    for box in page.locator("#queue [name=pick]").all():
        box.check()
    page.get_by_role("button", name="Review selected").click()
    page.get_by_role("button", name="Approve 2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    make_waiting(sam, title="One more")
    page.goto("/inbox/")
    page.get_by_role("button", name="Focus mode").click()
    page.get_by_role("button", name="Approve $214.50").click()
    page.get_by_role("button", name="Show the next request").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is waiting")
    assert Decision.objects.count() == 3
