"""A passkey of a real browser signs a decision: what is stored verifies, and after a change nothing is decided."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from fido2.utils import websafe_decode
from playwright.sync_api import Locator, Page, expect

from approvals import accepting, signatures
from approvals.models import Decision
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.looks import look, shot, violations
from tests.e2e.test_critical_browser import SIZES, add_passkey, come_back, long_ago, opened
from tests.passkeys import Passkey
from tests.rows import a_decision, take

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
SIGN = "Approve $214.50 with your passkey"


@pytest.fixture
def page(device: Callable[..., Page], dana: User) -> Page:
    """Dana's browser, with a passkey of hers on the device; she signed in an hour ago."""
    page = device("/login/?next=/settings/security/passkeys/")
    add_passkey(page)
    long_ago()
    return page


def decided(page: Page) -> Locator:
    return page.locator(".decide")


def test_a_passkey_signs_the_decision_and_the_signature_verifies(page: Page, complaints: list[str], sam: User) -> None:
    approval = make_waiting(sam, assurance_needed="signed")
    page.goto(f"/approvals/{approval.pk}/")
    dialog = opened(page)
    expect(dialog).to_contain_text("Your passkey signs this exact decision")
    expect(dialog.locator(".plain")).to_contain_text("$214.50")
    expect(dialog.get_by_role("button", name=SIGN)).to_be_focused()
    assert violations(page) == []
    shot(page, "before")
    assert not Decision.objects.exists()

    dialog.get_by_role("button", name=SIGN).click()

    expect(decided(page)).to_contain_text("Approved")
    expect(page.locator("#side")).to_contain_text("Dana Whitfield approved, signed with a passkey")
    shot(page, "done")
    kept = Decision.objects.get()
    assert (kept.type, kept.assurance) == ("approve", "signed")
    assert signatures.verify(kept)
    assert signatures.verify_all() == (1, None)
    assert kept.signature is not None
    assert "http://localhost" in websafe_decode(kept.signature["client_data"]).decode()
    assert complaints == []


def test_what_was_typed_into_the_form_is_what_is_signed(page: Page, complaints: list[str], sam: User) -> None:
    approval = make_waiting(sam, assurance_needed="signed")
    page.goto(f"/approvals/{approval.pk}/")
    page.get_by_label("Amount", exact=True).fill("184.50")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    page.get_by_role("button", name="Approve $184.50, edited").click()
    dialog = page.locator("#approve-dialog")
    dialog.get_by_role("button", name="Approve $184.50, edited with your passkey").click()

    expect(decided(page)).to_contain_text("Approved")
    kept = Decision.objects.get()
    assert kept.type == "edit"
    assert '"amount":184.5' in kept.arguments_text
    assert signatures.verify(kept)
    assert complaints == []


def test_a_request_that_changed_while_the_passkey_was_asked_is_not_decided(
    page: Page, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, assurance_needed="signed", approvals_needed=2)
    page.goto(f"/approvals/{approval.pk}/")
    page.get_by_label("Amount", exact=True).fill("184.50")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    # Somebody else decides while the finger is on the sensor.
    page.evaluate(
        """() => { const get = navigator.credentials.get.bind(navigator.credentials);
        navigator.credentials.get = async (asked) => {
            const shown = await get(asked); document.documentElement.dataset.touched = "";
            while (!window.goOn) await new Promise((done) => setTimeout(done, 20));
            return shown; }; }"""
    )
    page.get_by_role("button", name="Approve $184.50, edited").click()
    page.locator("#approve-dialog").get_by_role("button", name="with your passkey").click()
    expect(page.locator("html[data-touched]")).to_have_count(1)
    incoming = a_decision(approval, marco, assurance="")
    statement = signatures.statement_of(accepting.decision_of(approval, incoming, None), "n")
    take(approval, marco, assertion=Passkey().assertion(statement), id=incoming.id, assurance="")
    page.evaluate("() => { window.goOn = true; }")

    expect(page.get_by_role("alert").first).to_contain_text("This request changed while you were reading")
    expect(page.get_by_label("Amount", exact=True)).to_have_value("184.50")
    assert [decision.user for decision in Decision.objects.all()] == [marco]


def test_focus_mode_signs_too(page: Page, complaints: list[str], sam: User) -> None:
    make_waiting(sam, assurance_needed="signed")
    page.goto("/inbox/")
    page.get_by_role("button", name="Focus mode").click()
    expect(page.get_by_role("button", name="Skip")).to_be_visible()
    opened(page).get_by_role("button", name=SIGN).click()
    expect(page.locator(".empty, h1").first).to_be_visible()
    expect(page.locator("#approve-dialog")).to_have_count(0)
    assert signatures.verify(Decision.objects.get())
    assert complaints == []


def test_a_passkey_that_is_not_given_decides_nothing_and_can_be_asked_again(page: Page, sam: User) -> None:
    approval = make_waiting(sam, assurance_needed="signed")
    page.goto(f"/approvals/{approval.pk}/")
    page.evaluate(
        """() => { const get = navigator.credentials.get.bind(navigator.credentials); let first = true;
        navigator.credentials.get = async (asked) => {
            if (first) { first = false; throw new DOMException("", "NotAllowedError"); } return get(asked); }; }"""
    )
    dialog = opened(page)
    button = dialog.get_by_role("button", name=SIGN)
    button.click()
    expect(dialog.get_by_role("alert")).to_contain_text("No passkey was used.")
    assert not Decision.objects.exists()
    button.click()
    expect(decided(page)).to_contain_text("Approved")
    assert signatures.verify(Decision.objects.get())


def test_where_a_browser_has_no_passkeys_nothing_is_offered_that_cannot_work(
    browse: Browse, sam: User, dana: User
) -> None:
    Passkey().keep_for(dana)
    approval = make_waiting(sam, assurance_needed="signed")
    page = browse(dana, f"/approvals/{approval.pk}/")  # reached by an IP address
    dialog = opened(page)
    expect(dialog).to_contain_text("This browser cannot use passkeys at this address.")
    expect(dialog.get_by_role("button", name="with your passkey")).to_have_count(0)
    bare = browse(dana, f"/approvals/{approval.pk}/?do=approve", java_script_enabled=False)
    expect(bare.locator("#approve-dialog noscript")).to_be_visible()
    expect(bare.get_by_role("button", name="with your passkey")).to_have_count(0)


def test_a_passkey_shown_in_place_is_enough_where_one_is_asked_and_a_password_is_not(
    page: Page, complaints: list[str], sam: User
) -> None:
    approval = make_waiting(sam, assurance_needed="passkey", risk="high")
    page.goto(f"/approvals/{approval.pk}/")
    dialog = opened(page)
    approve = dialog.get_by_role("button", name="Approve $214.50")
    expect(dialog.get_by_role("status")).to_contain_text("Still needed: your passkey.")
    expect(approve).to_be_disabled()
    dialog.get_by_role("button", name="Use passkey").click()
    expect(dialog.get_by_role("status")).to_contain_text(
        "Confirmed with a passkey just now. This is valid for another 4:5"
    )
    approve.click()
    expect(decided(page)).to_contain_text("Approved")
    assert Decision.objects.get().assurance == "passkey"
    assert complaints == []


@pytest.mark.parametrize("size", SIZES)
def test_the_dialog_is_accessible_and_stays_in_its_width(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, size: tuple[int, int]
) -> None:
    levels = {"signed": "Your passkey signs", "passkey": "Still needed", "totp": "Still needed"}
    Passkey().keep_for(dana)
    wrong: dict[str, list[str]] = {}
    for level, words in levels.items():
        for who in (dana, marco):
            approval = make_waiting(sam, assurance_needed=level, risk="high")
            page = browse(who, f"/approvals/{approval.pk}/?do=approve", *size)
            state = f"{level}-{'with' if who == dana else 'without'}"
            expect(page.locator("#assurance [role=status]")).to_contain_text(words if who == dana else "You have n")
            come_back(page)
            look(page, state, wrong)
            page.context.close()
    assert wrong == {}
    assert complaints == []
