"""The four races between people, pages and the worker: each has exactly one outcome, and everybody is told which."""

import threading
from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from approvals.models import Approval, Decision, Rule
from tests.conftest import call, calls, says
from tests.e2e.conftest import live
from tests.e2e.stack.conftest import Desk, finished, refunds, state_of, taken

Browse = Callable[..., Page]
SCRIPT = [calls(call("r", "refund", order="58213", amount=214.5)), says("Done.")]


def test_a_pressed_twice_decides_once_and_runs_once(browse: Browse, desk: Desk, dana: User) -> None:
    approval = desk.asks(*SCRIPT)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press("a")
    page.keyboard.press("a")

    expect(taken(page)).to_be_visible()
    finished(approval.run_id)
    assert (Decision.objects.count(), refunds()) == (1, ["58213 214.50"])


def test_the_same_press_sent_four_times_at_once_decides_once_and_runs_once(
    browse: Browse, desk: Desk, dana: User
) -> None:
    """As if a browser repeated a request, or a tab was duplicated."""
    approval = desk.asks(*SCRIPT)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    statuses = page.evaluate(
        """async () => {
          const form = document.getElementById("decide"), body = new URLSearchParams(new FormData(form));
          body.set("type", "approve");
          const send = () => fetch(form.action, { method: "POST", body });
          return (await Promise.all([send(), send(), send(), send()])).map((answer) => answer.status);
        }"""
    )

    assert statuses == [200] * 4
    finished(approval.run_id)
    assert (Decision.objects.count(), refunds()) == (1, ["58213 214.50"])


def test_two_people_decide_at_once_and_the_second_is_told_who_and_what(
    browse: Browse, desk: Desk, dana: User, marco: User
) -> None:
    approval = desk.asks(*SCRIPT)
    danas, marcos = (live(browse(user, f"/approvals/{approval.pk}/")) for user in (dana, marco))
    for page in (danas, marcos):
        # Neither page hears of the other's decision before sending its own.
        page.evaluate("document.getElementById('live').remove(); document.getElementById('news').remove()")

    danas.evaluate("document.querySelector('[data-act=approve]').click()")
    marcos.evaluate("document.querySelector('[data-act=approve]').click()")
    for page in (danas, marcos):
        expect(taken(page)).to_be_visible()

    decision = Decision.objects.get()
    loser, winner = (marcos, "Dana Whitfield") if decision.user == dana else (danas, "Marco Reyes")
    expect(loser.locator("#conflict-title")).to_have_text(f"{winner} already decided this")
    expect(loser.locator("#conflict")).to_contain_text("Your decision was not recorded.")
    finished(approval.run_id)
    assert refunds() == ["58213 214.50"]


def test_decided_elsewhere_between_render_and_post(browse: Browse, desk: Desk, dana: User, marco: User) -> None:
    approval = desk.asks(*SCRIPT)
    danas, marcos = (browse(user, f"/approvals/{approval.pk}/", java_script_enabled=False) for user in (dana, marco))
    marcos.get_by_role("link", name="Reject").click()
    marcos.get_by_label("Tell the agent why").fill("It was paid back yesterday.")
    marcos.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(marcos.get_by_text("Dana")).to_have_count(0)

    danas.get_by_role("button", name="Approve $214.50").click()

    expect(danas.get_by_role("heading", name="Marco Reyes already decided this")).to_be_visible()
    finished(approval.run_id)
    assert (Decision.objects.get().user, refunds()) == (marco, [])


def test_arguments_changed_between_render_and_post(browse: Browse, desk: Desk, dana: User, marco: User) -> None:
    Rule.objects.update(approvals_needed=2)
    approval = desk.asks(*SCRIPT)
    danas = live(browse(dana, f"/approvals/{approval.pk}/"))
    danas.evaluate("document.getElementById('live').remove()")
    marcos = live(browse(marco, f"/approvals/{approval.pk}/"))
    marcos.get_by_label("Amount", exact=True).fill("184.50")
    marcos.get_by_role("button", name="Approve $184.50, edited as 1 of 2").click()
    expect(marcos.get_by_text("This request needs another person too.")).to_be_visible()

    danas.keyboard.press("a")
    expect(danas.get_by_role("alert").first).to_contain_text("This request changed while you were reading.")
    expect(danas.get_by_role("heading", level=1)).to_have_text("Refund $184.50 for order 58213")
    assert Decision.objects.get().user == marco
    assert (state_of(approval.run_id), refunds()) == ("waiting", [])

    danas.get_by_role("button", name="Approve $184.50, edited as 2 of 2").click()
    expect(taken(danas)).to_be_visible()
    finished(approval.run_id)
    assert refunds() == ["58213 184.50"]


def test_undo_at_the_moment_the_worker_takes_it(browse: Browse, desk: Desk, dana: User) -> None:
    """Aimed at the end of the hold, ever closer from both sides: each time it is undone or has run, never both."""
    hold, offset, step = 2, 0.0, 0.4
    outcomes: dict[str, bool] = {}
    page = browse(dana, "/inbox/", java_script_enabled=False)
    for order in map("A{}".format, range(20)):
        both = len(set(outcomes.values())) == 2
        if len(outcomes) >= (5 if both else 12):
            break
        Rule.objects.update(hold_seconds=hold)
        approval = desk.asks(calls(call("r", "refund", order=order, amount=5)), says("Done."))
        page.goto(f"/approvals/{approval.pk}/")
        page.get_by_role("button", name="Approve $5.00").click()
        expect(taken(page)).to_be_visible()
        undo = page.get_by_role("button", name="Undo")
        if not undo.is_visible():
            hold *= 2  # it was over before this machine had shown it
            continue
        approval.refresh_from_db()
        assert approval.runs_at is not None
        aim = approval.runs_at + timedelta(seconds=offset)
        threading.Event().wait(max(0.0, (aim - timezone.now()).total_seconds()))
        undo.click()
        too_late = page.get_by_role("alert").filter(has_text="cannot be undone")
        expect(page.get_by_role("button", name="Approve $5.00").or_(too_late)).to_be_visible()
        undone = not too_late.is_visible()
        outcomes[order] = undone
        offset, step = offset + (step if undone else -step), step / 1.5 if both else step

        approval.refresh_from_db()
        decision = approval.decisions.get()
        assert (decision.undone_at is not None) == undone
        if undone:
            assert approval.state == Approval.State.PENDING
        else:
            finished(approval.run_id)
    assert set(outcomes.values()) == {True, False}
    # What was undone stays undone, while the others have run, once each.
    assert [item for item in refunds() if item.split()[0] in outcomes] == [
        f"{order} 5.00" for order, undone in outcomes.items() if not undone
    ]
