"""The dialog that approves critical calls: a passkey in place, a sign-in in a tab, five minutes, no JavaScript."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Locator, Page, expect

from approvals.models import Decision
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import PASSWORD, live
from tests.e2e.looks import look, violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390"), pytest.param((320, 700), id="320")]
NEEDED = "Still needed: confirm that it is you."


def opened(page: Page) -> Locator:
    """The dialog, opened with a key on a page that hears the stream."""
    live(page)
    page.keyboard.press("a")
    dialog = page.locator("#approve-dialog")
    expect(dialog).to_be_visible()
    return dialog


def come_back(page: Page) -> None:
    """What a browser tells a page whose tab is selected again; a browser without windows says nothing itself."""
    page.bring_to_front()
    page.evaluate("dispatchEvent(new Event('focus'))")


def long_ago() -> None:
    """Make every sign-in so far an hour older."""
    store = import_module(configured.SESSION_ENGINE).SessionStore
    for key in Session.objects.values_list("session_key", flat=True):
        session = store(key)
        for record in session["account_authentication_methods"]:
            record["at"] -= 3600
        session.save()


def add_passkey(page: Page) -> None:
    """Sign in, and save a passkey on the device."""
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in with password").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Use password").click()
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()


def test_a_passkey_is_shown_in_the_dialog_and_what_was_typed_stays(
    device: Callable[..., Page], complaints: list[str], sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = device("/login/?next=/settings/security/passkeys/")
    add_passkey(page)
    long_ago()
    page.goto(f"/approvals/{approval.pk}/")
    dialog = opened(page)
    word, approve = dialog.get_by_label("Type $214.50 to confirm"), dialog.get_by_role("button", name="Approve $214.50")
    expect(word).to_be_focused()
    word.fill("$214.50")
    expect(dialog.get_by_role("status")).to_contain_text(NEEDED)
    expect(approve).to_be_disabled()
    assert violations(page) == []
    here = page.url

    dialog.get_by_role("button", name="Use passkey").click()

    expect(dialog.get_by_role("status")).to_contain_text("Signed in again just now. This is valid for another 4:5")
    expect(approve).to_be_enabled()
    expect(word).to_be_focused()
    expect(word).to_have_value("$214.50")
    assert page.url == here
    assert violations(page) == []
    assert not Decision.objects.exists()
    word.press("Enter")
    expect(page.locator(".decide")).to_contain_text("You have approved. This request needs another person too.")
    assert Decision.objects.get().assurance == "passkey"
    assert complaints == []


def test_a_passkey_that_is_not_shown_shuts_no_other_way(
    device: Callable[..., Page], sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = device("/login/?next=/settings/security/passkeys/")
    add_passkey(page)
    long_ago()
    page.goto(f"/approvals/{approval.pk}/")
    page.evaluate(
        "() => { navigator.credentials.get = async () => { throw new DOMException('', 'NotAllowedError'); }; }"
    )
    dialog = opened(page)

    dialog.get_by_role("button", name="Use passkey").click()

    expect(dialog.get_by_role("alert")).to_contain_text("No passkey was used. Try again, or sign in again.")
    come_back(page)
    expect(dialog.get_by_role("button", name="Use passkey")).to_be_enabled()
    expect(dialog.get_by_role("alert")).to_contain_text("No passkey was used.")
    expect(dialog.get_by_role("button", name="Approve $214.50")).to_be_disabled()


def test_a_sign_in_in_another_tab_is_noticed_on_coming_back(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = browse(dana, f"/approvals/{approval.pk}/")
    dialog = opened(page)
    word, approve = dialog.get_by_label("Type $214.50 to confirm"), dialog.get_by_role("button", name="Approve $214.50")
    word.fill("$214.50")
    expect(dialog.get_by_role("button", name="Use passkey")).to_have_count(0)
    with page.context.expect_page() as beside:
        dialog.get_by_role("link", name="Sign in again").click()
    renewing = beside.value
    renewing.get_by_label("Password").fill(PASSWORD)
    renewing.get_by_label("Password").press("Enter")
    expect(renewing.get_by_text("Close this tab and continue where you were")).to_be_visible()
    renewing.close()

    come_back(page)

    expect(dialog.get_by_role("status")).to_contain_text("Signed in again")
    expect(word).to_have_value("$214.50")
    expect(word).to_be_focused()
    approve.click()
    expect(page.locator(".decide")).to_contain_text("You have approved. This request needs another person too.")
    assert Decision.objects.get().assurance == "password"
    assert complaints == []


def test_when_the_five_minutes_run_out_the_dialog_says_so_and_goes_on(
    browse: Browse, complaints: list[str], settings: Any, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = browse(dana, f"/reauthenticate/?next=/approvals/{approval.pk}/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    dialog = opened(page)
    word, approve = dialog.get_by_label("Type $214.50 to confirm"), dialog.get_by_role("button", name="Approve $214.50")
    word.fill("$214.50")
    expect(approve).to_be_enabled()

    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 4
    come_back(page)

    expect(dialog.get_by_role("status")).to_contain_text("The five minutes are up. Nothing was decided.")
    expect(approve).to_be_disabled()
    expect(word).to_have_value("$214.50")
    page.keyboard.press("Control+Enter")
    word.press("Enter")
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
    come_back(page)
    expect(approve).to_be_enabled()
    assert not Decision.objects.exists()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".decide")).to_contain_text("You have approved. This request needs another person too.")
    assert complaints == []


def test_focus_mode_has_the_same_dialog(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User
) -> None:
    make_waiting(sam, risk="critical", approvals_needed=2)
    page = browse(dana, "/inbox/")
    page.get_by_role("button", name="Focus mode").click()
    expect(page.get_by_role("button", name="Skip")).to_be_visible()
    dialog = opened(page)
    expect(dialog.get_by_role("button", name="Approve $214.50")).to_be_disabled()
    with page.context.expect_page() as beside:
        dialog.get_by_role("link", name="Sign in again").click()
    beside.value.get_by_label("Password").fill(PASSWORD)
    beside.value.get_by_label("Password").press("Enter")
    expect(beside.value.get_by_text("Close this tab")).to_be_visible()
    come_back(page)
    dialog.get_by_label("Type $214.50 to confirm").fill("$214.50")
    dialog.get_by_role("button", name="Approve $214.50").click()
    expect(page.locator("#focus, .empty").first).to_be_visible()
    expect(dialog).to_be_hidden()
    assert Decision.objects.get().assurance == "password"
    assert complaints == []


def test_without_script_one_comes_back_to_the_open_dialog_and_types_the_word_again(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = browse(dana, f"/approvals/{approval.pk}/?do=approve", java_script_enabled=False)
    dialog = page.locator("#approve-dialog")
    expect(dialog.get_by_role("status").locator("noscript")).to_be_visible()
    dialog.get_by_role("link", name="Sign in again").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Use password").click()

    expect(page).to_have_url(re.compile(r"/\?do=approve$"))
    expect(dialog.get_by_role("status")).to_contain_text("Signed in again")
    dialog.get_by_label("Type $214.50 to confirm").fill("$214.50")
    dialog.get_by_role("button", name="Approve $214.50").click()
    expect(page.locator(".decide")).to_contain_text("You have approved. This request needs another person too.")


@pytest.mark.parametrize("size", SIZES)
def test_the_dialog_is_accessible_and_stays_in_its_width_in_both_states(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, size: tuple[int, int]
) -> None:
    approval = make_waiting(sam, risk="critical", approvals_needed=2)
    page = browse(dana, f"/approvals/{approval.pk}/?do=approve", *size)
    wrong: dict[str, list[str]] = {}
    for state, words in (("needed", NEEDED), ("assured", "Signed in again")):
        expect(page.locator("#assurance [role=status]")).to_contain_text(words)
        look(page, state, wrong)
        if state == "needed":
            page.goto(f"/reauthenticate/?next=/approvals/{approval.pk}/%3Fdo%3Dapprove")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Use password").click()

    assert wrong == {}
    assert complaints == []
