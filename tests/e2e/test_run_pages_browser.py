"""The run pages in a real browser: looks, keys, what moves by itself, and pages without JavaScript."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from playwright.sync_api import Route as Held

from agentapp.messages import ToolResult
from agentapp.models import Route, Run
from tests.agentapp.run_builder import RunBuilder, make_agent, make_tool, proposal, told_run
from tests.e2e.conftest import intercept, live
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390")]


def waiting_run(starter: User) -> RunBuilder:
    run = RunBuilder(starter)
    (read,) = run.step("I look.", proposal(make_tool("get_order"), {"order_id": 1001}))
    run.answer(read, ToolResult(data={"customer": {"name": "Ana", "orders": list(range(30))}}))
    run.ask(*run.step("I propose.", proposal(make_tool("refund_payment", "irreversible"), {"amount": "49.00"})))
    return run


def failed_run(starter: User) -> RunBuilder:
    run = RunBuilder(starter)
    (read,) = run.step("", proposal(make_tool("get_order"), {"order_id": 1}))
    run.answer(read, ToolResult(status="fatal_error", reason="tool_failure", message="The shop is closed."), attempts=3)
    run.finish("failed", "error", "The model did not answer.")
    return run


def unknown_run(starter: User, decider: User) -> RunBuilder:
    run = RunBuilder(starter)
    (call,) = run.step("", proposal(make_tool("refund_payment", "irreversible")))
    run.use(call, run.decide(run.ask(call)[0], decider))
    run.lose(call)
    return run


@pytest.mark.parametrize("size", SIZES)
def test_every_run_page_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], sam: User, dana: User, size: tuple[int, int]
) -> None:
    waiting, done, failed = waiting_run(sam), told_run(sam, dana, 3), failed_run(sam)
    unknown, queued = unknown_run(sam, dana), RunBuilder(sam, "Queued.")
    paths = [
        "/runs/",
        "/runs/?state=failed",
        "/runs/?state=stopped",
        f"/runs/{waiting.id}/",
        f"/runs/{waiting.id}/?step=0",
        f"/runs/{waiting.id}/?step=1",
        f"/runs/{waiting.id}/?step=1&call=0",
        f"/runs/{waiting.id}/?view=conversation",
        f"/runs/{waiting.id}/?view=events",
        f"/runs/{waiting.id}/cancel/",
        f"/runs/{done.id}/?step=4&call=0",
        f"/runs/{done.id}/cancel/",
        f"/runs/{failed.id}/",
        f"/runs/{unknown.id}/",
        f"/runs/{queued.id}/",
        "/runs/new/",
    ]
    page = browse(sam, "/runs/", *size)
    wrong: dict[str, list[str]] = {}
    for path in paths:
        page.goto(path)
        look(page, path, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_click_shows_a_row_beside_the_timeline_and_back_returns(browse: Browse, sam: User, dana: User) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/"))
    page.evaluate("window.sameDocument = true")
    page.locator("#row-1-0").click()
    expect(page.locator("#ins-t")).to_have_text("get_order")
    expect(page.locator("#row-1-0")).to_have_attribute("aria-current", "true")
    expect(page).to_have_url(re.compile(r"\?step=1&call=0$"))
    assert page.evaluate("window.sameDocument")
    page.locator("#row-2").click()
    expect(page.locator("#ins-t")).to_have_text("I propose a refund.")
    page.go_back()
    expect(page.locator("#ins-t")).to_have_text("get_order")


def test_on_a_phone_a_row_is_a_page_of_its_own(browse: Browse, sam: User, dana: User) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/", 390, 844))
    expect(page.locator("#inspector")).to_be_hidden()
    page.locator("#row-1-0").click()
    expect(page.locator("#ins-t")).to_be_visible()
    expect(page.locator("#row-1")).to_be_hidden()
    page.locator("a:visible", has_text="Timeline").click()
    expect(page.locator("#row-1")).to_be_visible()


def test_a_refresh_that_was_asked_for_before_a_click_does_not_take_back_what_was_chosen(
    browse: Browse, sam: User, dana: User
) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/", 390, 844))
    held: list[Held] = []
    intercept(page, re.compile(r"/runs/[0-9a-f-]+/(\?upto=\d+)?$"), lambda route: held.append(route))
    with page.expect_request(re.compile(r"upto=")) as asked:
        page.evaluate("htmx.trigger(document.body, 'run-changed')")
    with page.expect_response(re.compile(r"step=1&call=0&upto=")):  # what it would have shown is requested again
        page.locator("#row-1-0").click()
    assert asked.value.failure is not None  # given up by the page
    assert held
    expect(page.locator("#ins-t")).to_have_text("get_order")
    expect(page.locator("#ins-t")).to_be_visible()
    expect(page.locator("#row-1")).to_be_hidden()


@pytest.mark.parametrize(
    ("chosen", "asked", "shown"),
    [
        ("#inspector .tabs >> text=Raw", "tab=raw", '#inspector [aria-current="page"] >> text=Raw'),
        ("[data-act=next-match]", "step=1&call=0", '#row-1-0[aria-current="true"]'),
    ],
)
def test_nor_does_it_take_back_a_tab_or_a_match_that_was_gone_to(
    browse: Browse, sam: User, dana: User, chosen: str, asked: str, shown: str
) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/?step=2&call=0&q=get_order"))
    held: list[Held] = []
    intercept(page, re.compile(r"step=2&call=0&q=get_order&upto="), lambda route: held.append(route))
    with page.expect_request(re.compile(r"upto=")) as refresh:
        page.evaluate("htmx.trigger(document.body, 'run-changed')")
    with page.expect_response(re.compile(rf"{asked}.*&upto=")):
        page.locator(chosen).click()
    assert refresh.value.failure is not None
    assert held
    expect(page.locator(shown)).to_be_visible()


def test_a_refresh_while_a_row_has_not_come_yet_waits_for_it(browse: Browse, sam: User, dana: User) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/", 390, 844))
    held: list[Held] = []
    intercept(page, re.compile(r"step=1&call=0$"), lambda route: held.append(route))
    refreshes: list[str] = []
    page.on("request", lambda request: refreshes.append(request.url) if "upto=" in request.url else None)
    with page.expect_request(re.compile(r"step=1&call=0$")):
        page.locator("#row-1-0").click()
    page.evaluate("htmx.trigger(document.body, 'run-changed')")
    page.wait_for_timeout(400)  # a refresh comes 250 ms after its cause
    assert refreshes == []
    with page.expect_response(re.compile(r"step=1&call=0&upto=")):
        held[0].continue_()
    expect(page.locator("#ins-t")).to_have_text("get_order")
    expect(page.locator("#row-1")).to_be_hidden()


def test_j_and_k_walk_through_the_rows(browse: Browse, sam: User, dana: User) -> None:
    page = live(browse(sam, f"/runs/{told_run(sam, dana).id}/?step=1"))
    page.keyboard.press("j")
    expect(page.locator("#ins-t")).to_have_text("get_order")
    expect(page.locator("#row-1-0")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("#ins-t")).to_have_text("I propose a refund.")
    page.keyboard.press("k")
    expect(page.locator("#ins-t")).to_have_text("get_order")


def test_steps_appear_by_themselves_and_what_was_chosen_and_opened_stays(browse: Browse, sam: User) -> None:
    run = RunBuilder(sam)
    (read,) = run.step("I look.", proposal(make_tool("get_order")))
    run.answer(read, ToolResult(data={"a": {"deep": {"deeper": {"order": 58213}}}}))
    page = live(browse(sam, f"/runs/{run.id}/?step=1&call=0"))
    page.locator("summary", has_text="deeper").click()
    expect(page.get_by_text("58213")).to_be_visible()
    run.step("I have thought again.")
    expect(page.locator("#row-2")).to_be_visible()
    expect(page.locator("#row-1-0")).to_have_attribute("aria-current", "true")
    expect(page.get_by_text("58213")).to_be_visible()
    run.finish(answer="Done.")
    expect(page.locator(".runhead .badge")).to_have_text("Succeeded")


def test_rows_change_in_place_and_new_runs_wait_behind_a_line(browse: Browse, sam: User, mia: User) -> None:
    run = RunBuilder(sam, "The first.")
    page = live(browse(mia, "/runs/"))
    glyph = page.locator(f"#run-{run.id} .st")
    expect(glyph).to_have_attribute("aria-label", "Queued")
    run.claim()
    expect(glyph).to_have_attribute("aria-label", "Running")
    second = RunBuilder(sam, "The second.")
    expect(page.locator(".news")).to_have_text(re.compile("1 new run"))
    expect(page.locator(f"#run-{second.id}")).to_have_count(0)
    page.locator(".news").click()
    expect(page.locator(f"#run-{second.id}")).to_be_visible()


def test_choosing_an_agent_offers_its_routes_and_keeps_what_was_written(browse: Browse, sam: User) -> None:
    make_agent()
    Route.objects.create(agent=make_agent("research"), name="deep")
    page = live(browse(sam, "/runs/new/"))
    page.get_by_label("Message").fill("Find it out.")
    page.get_by_label("research").check()
    expect(page.locator("#route option")).to_have_count(3)  # none, refunds, deep
    page.get_by_label("Route").select_option("deep")
    page.get_by_text("The same as a command").click()
    expect(page.locator("pre.code")).to_contain_text('"route": "deep"')
    expect(page.locator("pre.code")).to_contain_text("Find it out.")
    page.get_by_label("support").check()
    expect(page.locator("#route option")).to_have_count(2)
    expect(page.get_by_label("Message")).to_have_value("Find it out.")


def test_a_run_is_started_read_and_cancelled_without_script(browse: Browse, sam: User) -> None:
    make_agent()
    page = browse(sam, "/runs/new/", java_script_enabled=False)
    page.get_by_label("Message").fill("Where is my order?")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator("h1")).to_have_text("Where is my order?")
    run = Run.objects.get()
    page.locator("#row-0").click()
    expect(page).to_have_url(re.compile(r"\?step=0$"))
    page.get_by_role("link", name="Cancel").first.click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".runhead .badge")).to_have_text("Cancelled")
    run.refresh_from_db()
    assert run.state == Run.State.CANCELLED
