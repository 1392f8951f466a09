"""A long run in a real browser: keys, folding, finding, rows that follow, and the layout."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp.messages import ToolResult
from agentapp.models import Run, Step
from approvals.models import Approval
from tests.agentapp.long_runs import a_long_run
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal
from tests.e2e.conftest import live, rested
from tests.e2e.looks import look, violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [(1440, 900), (390, 844), (320, 700)]


def waiting_run(starter: User) -> RunBuilder:
    """It looked twice, one look failed, and has waited for nine minutes."""
    run = RunBuilder(starter, "Refund for order 58213")
    run.step("Read and plan", seconds=2)
    calls = [proposal(make_tool(name), {"order_id": 58213}) for name in ("get_order", "get_customer", "score_fraud")]
    good, other, bad = run.step("Assess eligibility", *calls, seconds=3)
    run.answer(good, ToolResult(data={"order_id": 58213, "customer": {"id": 40117, "verified": True}}))
    run.answer(other, ToolResult(data={"name": "Ana Pereira"}))
    run.answer(bad, ToolResult(status="fatal_error", reason="tool_failure", message="Out of order."), attempts=2)
    refund = proposal(make_tool("refund_payment", "irreversible"), {"amount": "214.50"})
    run.ask(*run.step("Decide on refund", refund, seconds=3), title="refund $214.50 to Ana Pereira")
    began = timezone.now() - timedelta(minutes=9)
    Run.objects.filter(pk=run.id).update(created_at=began - timedelta(seconds=9))
    for step in Step.objects.filter(run=run.id):
        start = began - timedelta(seconds=9 - 3 * step.number + 3)
        Step.objects.filter(pk=step.pk).update(started_at=start, finished_at=start + timedelta(seconds=2))
        for at, call in enumerate(step.executions.filter(started_at__isnull=False)):
            begun = start + timedelta(seconds=2)
            step.executions.filter(pk=call.pk).update(
                started_at=begun, finished_at=begun + timedelta(seconds=0.3 * at + 0.3)
            )
    Approval.objects.filter(run_id=run.id).update(created_at=began)
    return run


def test_trace_and_list_are_accessible_and_keep_the_policy_at_every_width(
    browse: Browse, complaints: list[str], sam: User
) -> None:
    waiting, done = waiting_run(sam), a_long_run(sam, 120, last_calls=30)
    queries = {"": "run", "?waits=open": "unfolded", "?view=costs": "costs", "?step=2&q=58213": "find"}
    paths = {f"/runs/{waiting.id}/{query}": name for query, name in queries.items()}
    paths |= {f"/runs/{waiting.id}/?step=2&tab=messages": "messages", f"/runs/{waiting.id}/?step=2&call=2": "call"}
    paths |= {f"/runs/{waiting.id}/?step=2&call=0&tab=raw": "raw", f"/runs/{done.pk}/?first=110": "long"}
    paths |= {"/runs/": "list", "/runs/?tool=get_order&sort=activity&since=7d": "filtered"}
    page = browse(sam, "/runs/")
    wrong: dict[str, list[str]] = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for path, name in paths.items():
            page.goto(path)
            look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_long_run_is_walked_folded_and_searched_by_keys(browse: Browse, complaints: list[str], sam: User) -> None:
    run = a_long_run(sam, 2000)
    page = browse(sam, f"/runs/{run.pk}/?step=1")
    live(page)
    assert page.evaluate("document.querySelectorAll('*').length") < 1500

    page.keyboard.press("j")
    expect(page.locator("#ins-t")).to_have_text("get_order")
    expect(page.locator("#row-1-0")).to_have_attribute("aria-current", "true")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#row-1-0")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#row-1-0")).to_be_visible()

    page.locator(".trace").evaluate("trace => trace.scrollTo(0, trace.scrollHeight)")
    expect(page.locator("#row-120")).to_be_attached()
    expect(page.locator("#row-1")).to_be_attached()

    page.keyboard.press("e")
    expect(page.locator("#row-100-0")).to_have_attribute("aria-current", "true")

    page.keyboard.press("/")
    page.keyboard.type("needle-19")
    page.keyboard.press("Enter")
    expect(page.locator(".run-find .num")).to_have_text(re.compile("111 found"))
    rested(page)
    page.keyboard.press("Escape")
    page.locator("body").press("n")
    expect(page.locator("#row-19-0")).to_have_attribute("aria-current", "true")
    expect(page.locator("#row-19-0")).to_have_class(re.compile("hit"))
    page.locator("body").press("n")
    expect(page.locator("#row-190-0")).to_have_attribute("aria-current", "true")
    page.locator("body").press("Shift+N")
    expect(page.locator("#row-19-0")).to_have_attribute("aria-current", "true")
    assert complaints == []


def test_waits_unfold_and_more_rows_come_without_script(browse: Browse, sam: User) -> None:
    page = browse(sam, f"/runs/{waiting_run(sam).id}/", java_script_enabled=False)
    expect(page.locator(".tr-head")).to_contain_text("+9 min")
    page.get_by_role("link", name="Waits folded").click()
    expect(page.locator(".tr-head")).not_to_contain_text("+9 min")
    page.get_by_role("link", name="Fold waits").click()
    expect(page.locator(".tr-head")).to_contain_text("+9 min")
    page.goto(f"/runs/{a_long_run(sam, 200).pk}/")
    page.get_by_role("link", name="Show more").click()
    expect(page.locator("#row-100")).to_be_visible()


def test_a_run_is_cancelled_in_the_list_by_a_second_click(browse: Browse, sam: User) -> None:
    run = RunBuilder(sam, "Never mind.")
    page = live(browse(sam, "/runs/"))
    cancel = page.locator("[data-twice]")
    page.clock.install()
    page.clock.pause_at(timezone.now() + timedelta(seconds=5))
    cancel.click()
    expect(cancel).to_contain_text("Really cancel")
    assert Run.objects.get(pk=run.id).state == Run.State.QUEUED
    cancel.click()
    page.clock.resume()
    expect(page.locator(f"#run-{run.id} .st")).to_have_attribute("aria-label", "Cancelled")


def test_a_run_is_paused_and_resumed_in_the_list_which_says_what_was_refused(browse: Browse, ada: User) -> None:
    run = RunBuilder(ada, "Wait a moment.")
    page = live(browse(ada, "/runs/"))

    page.get_by_role("button", name="Pause Wait a moment.").click()
    page.get_by_role("button", name="Resume Wait a moment.").click()
    expect(page.get_by_role("button", name="Pause Wait a moment.")).to_be_visible()
    # The page is not told, nor is it still fetching what it was told before.
    live(page).evaluate("document.getElementById('live').remove()")
    ended = {"state": Run.State.CANCELLED, "stop_reason": "cancelled", "finished_at": timezone.now()}
    Run.objects.filter(pk=run.id).update(**ended)
    page.get_by_role("button", name="Pause Wait a moment.").click()

    expect(page.locator("#runs [role=alert]")).to_contain_text("has ended")
    assert violations(page) == []
    page.goto(f"/runs/{RunBuilder(ada, 'Another run.').id}/")
    expect(page.locator(".toast")).to_have_count(0)
