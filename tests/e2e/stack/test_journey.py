"""From a question to its effect: everything a browser shows came from another process."""

import json
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from approvals.models import Approval, Decision
from tests.conftest import call, calls, says
from tests.e2e.conftest import PASSWORD, live
from tests.e2e.stack.conftest import DECIDED, Desk, finished, refunds, taken

Browse = Callable[..., Page]
REFUND = calls(call("r", "refund", order="58213", amount=214.5, note="Sorry."), text="The kettle came broken.")
SCRIPT = [REFUND, says("It is refunded.")]


def test_a_request_appears_is_approved_with_one_key_runs_once_and_is_seen_by_who_started_it(
    browse: Browse, desk: Desk, sam: User, dana: User, complaints: list[str]
) -> None:
    danas = live(browse(dana, "/inbox/"))
    expect(danas.get_by_text("Nothing is waiting")).to_be_visible()
    sams = live(browse(sam, "/runs/new/"))
    sams.get_by_label("Message").fill("The kettle is broken.")
    sams.get_by_text("Scripted replies").click()
    sams.get_by_label("Replies as JSON").fill(json.dumps(SCRIPT))
    sams.get_by_role("button", name="Start the run").click()
    expect(sams).to_have_url(re.compile(r"/runs/[0-9a-f-]+/$"))

    # An empty queue shows new requests by itself.
    expect(danas.locator("#peek-title")).to_have_text("Refund $214.50 for order 58213")
    expect(sams.get_by_text("Stopped at step 1: Refund $214.50 for order 58213.")).to_be_visible()
    live(danas).keyboard.press("a")
    expect(danas).to_have_url(DECIDED)

    expect(sams.locator("#run")).to_contain_text("It is refunded.")
    approval = Approval.objects.get()
    finished(approval.run_id)
    assert refunds() == ["58213 214.50"]
    assert Decision.objects.get().user == dana
    assert complaints == []


def test_keys_alone_from_sign_in_to_the_effect(browse: Browse, desk: Desk, complaints: list[str]) -> None:
    approval = desk.asks(*SCRIPT)
    page = browse(None, "/inbox/")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("dana")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: urlsplit(url).path == "/inbox/")

    live(page).keyboard.press("Enter")
    page.wait_for_url(f"**/approvals/{approval.pk}/")
    live(page).keyboard.press("e")
    page.keyboard.type("184.50")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    page.keyboard.press("Control+Enter")

    expect(taken(page)).to_be_visible()
    finished(approval.run_id)
    assert refunds() == ["58213 184.50"]
    assert complaints == []


def test_without_script_one_signs_in_edits_decides_undoes_and_decides_again(browse: Browse, desk: Desk) -> None:
    approval = desk.asks(*SCRIPT)
    Approval.objects.update(hold_seconds=30)
    page = browse(None, "/inbox/", java_script_enabled=False)
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#queue .q-main").first.click()
    page.get_by_label("Amount", exact=True).fill("100")
    page.get_by_role("button", name="Check changes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Refund $100.00 for order 58213")
    page.get_by_role("button", name="Approve $100.00").click()
    expect(taken(page)).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Approve $100.00, edited")).to_be_visible()  # still as it was typed
    assert refunds() == []

    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("She has it back already.")
    Approval.objects.update(hold_seconds=0)
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()
    finished(approval.run_id)
    assert refunds() == []


def test_two_people_in_two_browsers_share_a_queue(browse: Browse, desk: Desk, dana: User, marco: User) -> None:
    first, second = desk.asks(*SCRIPT), desk.asks(*SCRIPT)
    danas, marcos = live(browse(dana, "/inbox/")), live(browse(marco, f"/approvals/{first.pk}/"))

    marcos.keyboard.press("a")
    expect(danas.locator(f"#apr-{first.pk}")).to_contain_text("Approved by Marco")
    danas.locator(f"#apr-{second.pk} .q-main").click()
    expect(danas.locator("#peek-id")).to_have_value(str(second.pk))
    expect(danas.locator("#peek")).not_to_have_attribute("aria-busy", "true")
    danas.get_by_role("button", name="Approve $214.50").click()
    expect(danas).to_have_url(DECIDED)

    finished(first.run_id)
    finished(second.run_id)
    assert sorted(Decision.objects.values_list("user__username", flat=True)) == ["dana", "marco"]
    assert refunds() == ["58213 214.50"] * 2


def test_what_was_typed_into_the_form_survives_a_decision_that_arrives_signed_out(
    browse: Browse, desk: Desk, dana: User
) -> None:
    approval = desk.asks(*SCRIPT)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.get_by_label("Amount", exact=True).fill("184.50")
    expect(page.get_by_role("button", name="Approve $184.50, edited")).to_be_visible()
    Session.objects.all().delete()

    page.get_by_role("button", name="Approve $184.50, edited").click()
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**/approvals/{approval.pk}/")
    assert not Decision.objects.exists()

    expect(page.get_by_label("Amount", exact=True)).to_have_value("184.50")
    page.get_by_role("button", name="Approve $184.50, edited").click()
    expect(taken(page)).to_be_visible()
    finished(approval.run_id)
    assert refunds() == ["58213 184.50"]
