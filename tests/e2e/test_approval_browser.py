"""The page of one request in a real browser: asking, who else is looking, and the four races."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import actions
from approvals import decisions, ledger
from approvals.models import Approval, Decision, Question
from approvals.snapshots import unseen
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import kept, live
from tests.e2e.looks import look, shot, violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390")]
EXPLANATION = (
    "Ana paid $214.50 and received a cracked kettle. It was delivered on 2026-11-17. She was promised $300.00 by phone."
)


def answered(question: Question, text: str) -> None:
    with ledger.transaction():
        assert decisions.answer(question.pk, text)


@pytest.mark.parametrize("size", SIZES)
def test_every_state_is_accessible_and_stays_in_its_width(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, size: tuple[int, int]
) -> None:
    values: dict[str, Any] = {
        "condition": "args.amount > 100.0",
        "rule_values": ({"name": "args.amount", "value": 214.5},),
    }
    plain = make_waiting(sam, risk="high", explanation=EXPLANATION, secret_fields=["note"], **values)
    asked = make_waiting(sam, explanation=EXPLANATION)
    answered(
        actions.ask_agent(asked.pk, "Was a replacement offered?", dana), "No. Order 58213 was paid; nothing says so."
    )
    actions.ask_agent(asked.pk, "Is there a photo?", marco)
    critical = make_waiting(sam, risk="critical", approvals_needed=2)
    blind = make_waiting(sam, snapshot_text=unseen("ConnectionError: the order system does not answer"))
    width, height = size
    page = browse(dana, "/reauthenticate/", width, height)
    paths = {
        "page": f"/approvals/{plain.pk}/",
        "asked": f"/approvals/{asked.pk}/",
        "ask": f"/approvals/{plain.pk}/?do=ask",
        "critical": f"/approvals/{critical.pk}/?do=approve",
        "unseen": f"/approvals/{blind.pk}/",
        "reauthenticate": "/reauthenticate/",
    }
    wrong: dict[str, list[str]] = {}
    for name, path in paths.items():
        page.goto(path)
        look(page, name, wrong)
        if width < 500:
            page.set_viewport_size({"width": 320, "height": 700})
            look(page, name, wrong)
            page.set_viewport_size({"width": width, "height": height})

    assert wrong == {}
    assert complaints == []


def test_a_question_and_its_answer_appear_without_a_reload_and_what_was_typed_stays(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam)
    other = live(browse(marco, f"/approvals/{approval.pk}/"))
    other.get_by_label("Message to customer").fill("Typed and not sent.")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.get_by_role("link", name="Ask the agent").click()
    page.get_by_label("Your question").fill("Was a replacement offered? <hx-partial>")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(other.locator("#evidence")).to_contain_text("Was a replacement offered? <hx-partial>")
    expect(page.locator("#side")).to_contain_text("The clock is paused")
    live(page)
    answered(Question.objects.get(), "No. She paid $214.50.")

    for looking in (page, other):
        expect(looking.locator("#evidence")).to_contain_text("No. She paid $214.50")
        expect(looking.locator("#evidence .badge.model").first).to_be_visible()
    expect(page.locator("#side")).to_contain_text("Expires in")
    expect(other.get_by_label("Message to customer")).to_have_value("Typed and not sent.")
    assert complaints == []


def test_people_who_look_at_the_same_request_see_each_other(browse: Browse, sam: User, dana: User, marco: User) -> None:
    approval = make_waiting(sam)
    other = live(browse(marco, f"/approvals/{approval.pk}/"))
    other.get_by_label("Message to customer").fill("Almost")
    expect(other.locator("#request .was")).to_be_visible()
    other.reload()  # a reload starts afresh: viewing
    live(other)
    page = browse(dana, f"/approvals/{approval.pk}/")
    expect(page.locator("#presence")).to_contain_text("Marco Reyes is also viewing")


def test_what_was_typed_is_there_again_after_a_look_at_the_next_request(
    browse: Browse, complaints: list[str], sam: User, dana: User
) -> None:
    first, second = make_waiting(sam, expires_seconds=600), make_waiting(sam, expires_seconds=700)
    page = live(browse(dana, f"/approvals/{first.pk}/"))
    amount = page.get_by_role("textbox", name="Amount")
    amount.fill("184.50")
    expect(page.locator("#request .was")).to_contain_text("214.50")
    amount.press("Escape")

    page.keyboard.press("j")
    page.wait_for_url(f"**/approvals/{second.pk}/")
    expect(amount).to_have_value("214.50")
    page.keyboard.press("k")
    page.wait_for_url(f"**/approvals/{first.pk}/")

    expect(amount).to_have_value("184.50")
    expect(page.locator("#request h1")).to_have_text("Refund $184.50 for order 58213")
    page.reload()
    expect(amount).to_have_value("214.50")
    assert complaints == []


def test_what_stands_in_the_closed_menu_has_its_keys(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press("?")
    expect(page.locator("#keys dd", has_text="Claim or release")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    expect(page.locator(".bar .badge", has_text="Claimed by you")).to_be_visible()
    live(page).keyboard.press("h")
    page.wait_for_url("**/hand-over/")
    anew = browse(dana, f"/approvals/{approval.pk}/")
    live(anew).keyboard.press("s")

    anew.wait_for_url("**/snooze/")


# --- The four races ----------------------------------------------------------------------------


def test_race_a_double_press_is_one_decision(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.evaluate("const b = document.querySelector('[data-act=approve]'); b.click(); b.click();")
    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    assert Decision.objects.count() == 1


def test_race_decided_elsewhere_between_render_and_post(browse: Browse, sam: User, dana: User, marco: User) -> None:
    approval = make_waiting(sam, risk="low")
    context: dict[str, Any] = {"java_script_enabled": False}
    page = browse(dana, f"/approvals/{approval.pk}/", **context)
    first = browse(marco, f"/approvals/{approval.pk}/", **context)
    first.get_by_role("button", name="Approve $214.50").click()
    page.get_by_role("button", name="Approve $214.50").click()
    expect(page.get_by_role("heading", name="Marco Reyes already decided this")).to_be_visible()
    assert Decision.objects.get().user == marco


def test_race_arguments_changed_between_render_and_post(browse: Browse, sam: User, dana: User, marco: User) -> None:
    approval = make_waiting(sam, risk="low", approvals_needed=2)
    page = browse(dana, f"/approvals/{approval.pk}/", java_script_enabled=False)
    edited = approval.arguments_text.replace("214.5", "184.5")
    new = actions.NewDecision(
        id=approval.pk, type="edit", version=1, action_digest=approval.action_digest, arguments_text=edited
    )
    actions.decide(approval.pk, new, marco)
    page.get_by_role("button", name="Approve $214.50 as 1 of 2").click()
    expect(page.get_by_role("alert").first).to_contain_text("This request changed while you were reading.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Refund $184.50 for order 58213")
    assert Decision.objects.get().user == marco
    page.get_by_role("button", name="Approve $184.50, edited as 2 of 2").click()
    approval.refresh_from_db()
    assert (approval.state, approval.decisions.count()) == (Approval.State.APPROVED, 2)


def test_what_nobody_typed_is_not_brought_back_over_what_somebody_else_changed(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="low", approvals_needed=2)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.evaluate("document.getElementById('live').remove()")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    edited = approval.arguments_text.replace("214.5", "184.5")
    new = actions.NewDecision(
        id=approval.pk, type="edit", version=1, action_digest=approval.action_digest, arguments_text=edited
    )
    actions.decide(approval.pk, new, marco)
    page.get_by_role("button", name="Approve $214.50 as 1 of 2").click()
    expect(page.get_by_role("alert").first).to_contain_text("This request changed while you were reading.")
    assert kept(page) == []
    assert [url for url in asked if url.endswith("/draft/")] == []
    expect(page.get_by_label("Amount", exact=True)).to_have_value("184.50")
    page.get_by_role("button", name="Approve $184.50, edited as 2 of 2").click()
    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    assert approval.decisions.count() == 2


def test_a_rejection_of_what_somebody_else_changed_comes_back_as_it_was_sent(
    browse: Browse, sam: User, dana: User, marco: User
) -> None:
    approval = make_waiting(sam, risk="low", approvals_needed=2)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.evaluate("document.getElementById('live').remove()")
    edited = approval.arguments_text.replace("214.5", "184.5")
    new = actions.NewDecision(
        id=approval.pk, type="edit", version=1, action_digest=approval.action_digest, arguments_text=edited
    )
    actions.decide(approval.pk, new, marco)
    dialog = page.locator("#reject-dialog")
    page.get_by_role("link", name="Reject").click()
    dialog.get_by_text("Not allowed").click()
    dialog.get_by_label("Tell the agent why").fill("See policy 4.")
    dialog.get_by_label("Also stop the run").check()
    dialog.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("alert").first).to_contain_text("This request changed while you were reading.")
    page.get_by_role("link", name="Reject").click()
    expect(dialog.get_by_label("Not allowed")).to_be_checked()
    expect(dialog.get_by_label("Tell the agent why")).to_have_value("See policy 4.")
    expect(dialog.get_by_label("Also stop the run")).to_be_checked()
    dialog.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("Rejected. The agent is told in")).to_be_visible()
    sent = Decision.objects.get(user=dana)
    assert (sent.message, sent.stop_run) == ("Not allowed. See policy 4.", True)


def test_race_undo_at_the_moment_the_worker_takes_it(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low", hold_seconds=30)
    page = browse(dana, f"/approvals/{approval.pk}/", java_script_enabled=False)
    page.get_by_role("button", name="Approve $214.50").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    Approval.objects.filter(pk=approval.pk).update(runs_at=timezone.now())
    approval.refresh_from_db()
    with ledger.transaction():
        assert decisions.consume(approval)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("alert").first).to_contain_text("It has already taken effect and cannot be undone.")
    approval.refresh_from_db()
    assert (approval.state, approval.decisions.get().undone_at) == (Approval.State.USED, None)


@pytest.mark.parametrize("width", [720, 900, 1087])
def test_between_phone_and_desk_the_request_is_one_column_over_a_bar_that_stays(
    browse: Browse, sam: User, dana: User, width: int
) -> None:
    approval = make_waiting(sam, risk="low", explanation=EXPLANATION)
    page = browse(dana, f"/approvals/{approval.pk}/", width, 800)
    bar, side = page.locator("#request > .decide"), page.locator("#side")

    def foot() -> float:
        return float(bar.evaluate("(bar) => innerHeight - bar.getBoundingClientRect().bottom"))

    shot(page, "narrow")
    readable = page.locator(".two").evaluate("(two) => two.clientHeight")
    assert readable > 600
    assert page.locator("#request > .stack").evaluate("(stack) => stack.scrollHeight <= stack.clientHeight + 1")
    assert 0 <= foot() < 20
    side.get_by_role("heading", name="History").scroll_into_view_if_needed()
    expect(side.get_by_role("heading", name="History")).to_be_in_viewport()
    shot(page, "narrow end")
    assert 0 <= foot() < 20
    assert violations(page) == []


def test_a_comment_that_was_said_leaves_its_box_empty_and_its_reader_in_focus_mode(
    browse: Browse, complaints: list[str], sam: User, dana: User
) -> None:
    make_waiting(sam)
    page = live(browse(dana, "/inbox/"))
    page.get_by_role("button", name="Focus mode").click()
    expect(page.get_by_role("button", name="Skip")).to_be_visible()  # the inbox has such a box too
    box, said = page.get_by_label("Your comment"), page.locator("#comments .comments li")
    box.fill("Begun, and")  # perhaps before the page's scripts are there
    page.wait_for_load_state()
    page.reload()
    expect(box).to_have_value("Begun, and")
    box.fill("Look at the receipt.")
    page.get_by_role("button", name="Comment").click()

    expect(said).to_have_count(1)
    expect(page.get_by_role("button", name="Skip")).to_be_visible()
    expect(box).to_have_value("")
    assert complaints == []
