"""The audit trail in a real browser: keys, a row that opens in place, the notice of new events, and the layout."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals import ledger
from approvals.models import Approval, Event
from tests.agentapp.console.conftest import EVIDENCE, REFUND, make_waiting
from tests.e2e.conftest import live
from tests.e2e.looks import look
from tests.rows import take

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [(1440, 900), (390, 844), (320, 700)]


def history(sam: User, dana: User, marco: User) -> Approval:
    """One request was changed, one rejected, one waits; and people came and went."""
    changed = take(make_waiting(sam, evidence=EVIDENCE), dana, "edit", arguments={**REFUND, "amount": 184.5},
                   message="Shipping not confirmed by carrier, see 3.2.")  # fmt: skip
    take(make_waiting(sam, evidence=EVIDENCE), marco, "reject", message="Ask first.")
    make_waiting(sam)
    with ledger.transaction():
        for user in (sam, dana, marco):
            ledger.record(ledger.CONFIGURATION, "signin.succeeded", {"by": ["passkey"]}, ledger.actor_of(user))
        data = {"table": "approvals.Rule", "key": "1", "name": "refunds-over-limit", "before": {"version": 4},
                "after": {"version": 5}}  # fmt: skip
        ledger.record(ledger.CONFIGURATION, "configuration.changed", data, ledger.actor_of(sam))
        said = {"scope": "tool", "name": "carrier_lookup", "trigger": "6 errors in 60 s"}
        ledger.record(ledger.CONFIGURATION, "breaker.opened", said)
    return changed


def test_every_page_of_the_trail_is_accessible_and_keeps_the_policy_at_every_width(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, mia: User
) -> None:
    changed = history(sam, dana, marco)
    event = Event.objects.get(approval_id=changed.pk, type="approval.approved")
    paths = {
        "/audit/": "audit", "/audit/?q=did:decided": "decisions", "/audit/?q=did:signed-out": "nothing",
        "/audit/?q=tol:pay": "wrong", f"/audit/events/{event.pk}/": "event",
        f"/audit/approvals/{changed.pk}/as-seen/": "as-seen", "/audit/views/?q=risk:high": "views",
        "/audit/choices/did/?q=risk:high": "choices",
    }  # fmt: skip
    page = browse(mia, "/audit/")
    wrong: dict[str, list[str]] = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for path, name in paths.items():
            page.goto(path)
            if name == "audit":
                page.locator(f"[data-event='{event.pk}']").click()
                expect(page.locator("tr.detail")).to_be_visible()
            look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_it_is_walked_searched_and_opened_by_keys(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, mia: User
) -> None:
    history(sam, dana, marco)
    page = browse(mia, "/runs/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/audit/")
    page.keyboard.press("/")
    page.keyboard.type("did:decided who:dana,marco")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/?q=did%3Adecided+who%3Adana%2Cmarco")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("main").focus()
    page.keyboard.press("j")
    expect(page.locator(".rowlink").first).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(".rowlink").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("tr.detail")).to_contain_text("Shipping not confirmed by carrier")
    expect(page.locator(".rowlink").last).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(page.locator("tr.detail")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator("tr.detail")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("tr.detail")).to_have_count(0)
    assert complaints == []


def test_one_row_is_open_at_a_time(browse: Browse, sam: User, dana: User, marco: User, mia: User) -> None:
    history(sam, dana, marco)
    page = browse(mia, "/audit/?q=did:decided")
    page.locator(".rowlink").nth(0).click()
    expect(page.locator("tr.detail")).to_have_count(1)
    page.locator(".rowlink").nth(1).click()
    expect(page.locator("tr.is-open")).to_have_count(1)
    expect(page.locator("tr.detail")).to_have_count(1)
    expect(page.locator("tbody tr").nth(1)).to_have_class("is-open")


def test_new_events_wait_behind_a_line_and_not_while_a_row_is_open(
    browse: Browse, sam: User, dana: User, marco: User, mia: User
) -> None:
    history(sam, dana, marco)
    page = live(browse(mia, "/audit/"))
    shown = page.locator("tbody tr").count()
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "signout", {"user": "sam"}, ledger.actor_of(sam))
    expect(page.locator(".news")).to_contain_text("1 new event")
    assert page.locator("tbody tr").count() == shown
    page.locator(".rowlink").first.click()
    expect(page.locator("tr.detail")).to_be_visible()
    expect(page.locator(".news")).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator(".news").click()
    expect(page.locator("tbody tr").first).to_contain_text("Signed out")


def test_a_chip_writes_the_line(browse: Browse, sam: User, dana: User, marco: User, mia: User) -> None:
    history(sam, dana, marco)
    page = browse(mia, "/audit/?q=risk:high,medium,low,critical")
    page.locator("summary", has_text="Who").click()
    choices = page.locator("details[open] .menu-list")
    expect(choices.get_by_role("link", name="Dana Whitfield")).to_be_visible()
    expect(choices.get_by_role("link", name="Choose on a page")).to_have_count(0)
    choices.get_by_role("link", name="Dana Whitfield").click()
    page.wait_for_url("**who%3Adana")
    expect(page.get_by_role("textbox", name="Search the audit trail")).to_have_value(
        "risk:high,medium,low,critical who:dana"
    )
    expect(page.locator("summary.on", has_text="dana")).to_be_visible()


def test_what_matches_is_counted_behind_the_page_also_without_script(browse: Browse, mia: User) -> None:
    with ledger.transaction():
        for _ in range(70):
            ledger.record(ledger.CONFIGURATION, "signout", {"user": "mia"}, ledger.actor_of(mia))
    page = browse(mia, "/audit/?q=did:signed-out")
    expect(page.get_by_role("navigation", name="Pages")).to_contain_text("70 events match.")
    expect(page.locator("#export-count")).to_have_text("70")

    plain = browse(mia, "/audit/?q=did:signed-out", java_script_enabled=False)
    expect(plain.get_by_role("navigation", name="Pages")).to_contain_text("Many events match.")
    plain.get_by_role("link", name="Count them").click()
    expect(plain.get_by_role("navigation", name="Pages")).to_contain_text("70 events match.")


def test_without_script_a_row_leads_to_its_page(browse: Browse, sam: User, dana: User, marco: User, mia: User) -> None:
    history(sam, dana, marco)
    page = browse(mia, "/audit/?q=did:decided%20who:dana", java_script_enabled=False)
    page.locator(".rowlink").first.click()
    page.wait_for_url("**/audit/events/**")
    page.get_by_role("link", name="As seen").click()
    expect(page.get_by_text("This matches the digest in the record.")).to_be_visible()
