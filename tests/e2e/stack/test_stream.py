"""What can happen to the live stream of a real server: the page says so, decides nothing stale, and recovers."""

import re
import signal
from collections.abc import Callable

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Locator, Page, Route, expect

from agentapp.models import Run
from approvals import ledger
from approvals.models import Approval, Event
from tests.conftest import call, calls, says
from tests.e2e.conftest import PASSWORD, live
from tests.e2e.stack.conftest import DECIDED, Desk, Stack, finished, refunds, taken
from tests.e2e.test_stream_browser import hide
from tests.processes import until

Browse = Callable[..., Page]
SCRIPT = [calls(call("r", "refund", order="58213", amount=214.5)), says("Done.")]


def pill(page: Page) -> Locator:
    return page.locator(".bar [data-live-words]")


def timed(browse: Browse, user: User, path: str) -> Page:
    """A page whose clock a test can speed up: each reconnection waits longer, up to a minute."""
    page = browse(user, "/healthz/")
    page.clock.install()
    page.goto(path)
    expect(page.locator("[data-live-words]:visible").first).to_have_text("Live")
    return page


def heals(page: Page) -> None:
    """Advance its clock by less than a connection may take at a time."""

    def is_live() -> bool:
        page.clock.run_for(5000)
        try:
            expect(page.locator("[data-live-words]:visible").first).to_have_text("Live", timeout=500)
        except AssertionError:
            return False
        return True

    until(is_live, "the page to be live again")


def approve(page: Page) -> Locator:
    return page.get_by_role("button", name="Approve")


def test_the_stream_opens_whichever_script_arrives_late(browse: Browse, desk: Desk, dana: User) -> None:
    desk.asks(*SCRIPT)
    page = browse(dana, "/inbox/")
    scripts = page.eval_on_selector_all("script[src]", "all => all.map((one) => one.src)")
    assert len(scripts) > 4

    def delay(route: Route) -> None:
        page.wait_for_timeout(100)
        route.continue_()

    for late in [*[[script] for script in scripts], scripts]:
        for script in late:
            page.route(script, delay)
        page.goto("/inbox/")
        expect(pill(page), f"after {late}").to_have_text("Live")
        expect(approve(page)).to_be_enabled()
        page.unroute_all(behavior="wait")


def test_after_a_deploy_the_page_is_live_again_and_has_what_it_missed(
    browse: Browse, stack: Stack, desk: Desk, dana: User, complaints: list[str]
) -> None:
    desk.asks(*SCRIPT)
    page = timed(browse, dana, "/inbox/")
    # Asked while the web server is down: the worker goes on without it.
    run = desk.start(*SCRIPT)
    stack.stop()
    page.clock.run_for(4000)
    expect(pill(page)).to_contain_text("Reconnecting, last update")
    expect(approve(page)).to_be_disabled()
    until(lambda: Approval.objects.filter(run_id=run.pk).exists(), "the worker to ask")
    stack.start()

    heals(page)
    expect(page.locator("#news")).to_contain_text("1 new request")
    expect(approve(page)).to_be_enabled()
    live(page).keyboard.press("a")
    expect(page).to_have_url(DECIDED)
    assert not [words for words in complaints if "Content Security Policy" in words]


def test_a_server_that_says_503_for_a_minute_is_asked_until_it_answers(
    browse: Browse, stack: Stack, desk: Desk, dana: User
) -> None:
    """The 503 is a real one; the minute passes on the page's clock."""
    desk.asks(*SCRIPT)
    page = timed(browse, dana, "/inbox/")

    stack.stop()
    with stack.busy():
        with page.expect_response(lambda answer: "/live/" in answer.url and answer.status == 503):
            page.clock.run_for(20_000)
        expect(pill(page)).to_contain_text("Reconnecting, last update")
        expect(approve(page)).to_be_disabled()
        page.clock.run_for(60_000)
        expect(pill(page)).to_contain_text("Offline since")
        expect(approve(page)).to_be_disabled()
        expect(page.get_by_text("Busy")).to_have_count(0)
    stack.start()

    heals(page)
    expect(approve(page)).to_be_enabled()


def test_a_first_connection_that_is_refused_is_made_again(browse: Browse, stack: Stack, desk: Desk, dana: User) -> None:
    approval = desk.asks(*SCRIPT)
    page = browse(dana, "/healthz/")
    page.clock.install()
    refused: list[str] = []
    page.on("requestfailed", lambda request: refused.append(request.failure or ""))

    def after_the_end(route: Route) -> None:
        if not refused:
            stack.stop(signal.SIGKILL)
        route.continue_()

    page.route("**/live/**", after_the_end)
    with page.expect_event("requestfailed", lambda request: request.failure == "net::ERR_CONNECTION_REFUSED"):
        page.goto(f"/approvals/{approval.pk}/")
        page.clock.run_for(6000)
    expect(pill(page)).to_contain_text("Reconnecting")
    # As without JavaScript: a page that never had a stream leaves it to the server to refuse.
    expect(approve(page)).to_be_enabled()
    stack.start()

    heals(page)
    live(page).keyboard.press("a")
    expect(taken(page)).to_be_visible()
    finished(approval.run_id)


def test_a_session_that_has_ended_stops_the_stream_and_what_was_typed_is_kept(
    browse: Browse, desk: Desk, dana: User
) -> None:
    """The whole way: signed out while typing a reason, signed in in another tab, sent."""
    approval = desk.asks(*SCRIPT)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("A careful reason.")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)

    Session.objects.all().delete()
    # An existing stream is checked again each minute; a new one at once.
    page.context.set_offline(True)
    page.context.set_offline(False)
    dialog = page.get_by_role("dialog", name="You are signed out")
    expect(dialog).to_be_visible()
    expect(pill(page)).to_have_text("Signed out. Sign in again to decide.")
    with page.expect_popup() as opened:
        dialog.get_by_role("link", name="Sign in").click()
    tab = opened.value
    tab.get_by_label("Name").fill("dana")
    tab.get_by_label("Password").fill(PASSWORD)
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="You are signed in, Dana Whitfield")).to_be_visible()
    assert len(asked) <= 2
    tab.close()
    page.bring_to_front()
    # Unless the page, back in front, has gone on by itself already.
    page.evaluate("document.querySelector('#signed-out[open] [data-again]')?.click()")

    expect(pill(page)).to_have_text("Live")
    expect(page.get_by_label("Tell the agent why")).to_have_value("A careful reason.")
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()
    finished(approval.run_id)
    assert refunds() == []


def test_a_page_that_was_hidden_for_an_hour_is_current_when_it_is_looked_at(
    browse: Browse, stack: Stack, desk: Desk, dana: User, marco: User
) -> None:
    """The hour passes on the page's clock; the server it was connected to is gone meanwhile."""
    approval = desk.asks(*SCRIPT)
    page = timed(browse, dana, "/inbox/")
    hide(page, True)
    stack.stop(signal.SIGKILL)
    page.clock.fast_forward(3_600_000)
    stack.start()
    marcos = live(browse(marco, f"/approvals/{approval.pk}/"))
    marcos.keyboard.press("a")
    expect(taken(marcos)).to_be_visible()

    hide(page, False)

    heals(page)
    expect(page.locator(f"#apr-{approval.pk}")).to_contain_text("Approved by Marco")
    finished(approval.run_id)


def test_a_thousand_and_one_missed_events_are_caught_up_with_in_a_few_requests(
    browse: Browse, stack: Stack, desk: Desk, dana: User, sam: User
) -> None:
    approval = desk.asks(*SCRIPT)
    run = Run.objects.get(pk=approval.run_id)
    page = timed(browse, dana, "/inbox/")
    runs_page = timed(browse, sam, f"/runs/{run.pk}/?view=events")
    stack.stop(signal.SIGKILL)
    before = Event.objects.count()
    for number in range(1001):
        with ledger.transaction():
            Run.objects.select_for_update().get(pk=run.pk)
            ledger.record(ledger.run_chain(run.pk), "run.noted", {"number": number})
    assert Event.objects.count() - before == 1001
    asked: list[str] = []
    for one in (page, runs_page):
        # Only what it shows: the requests it makes by the clock grow with the time it takes to be live again.
        shows = re.compile(r"/(inbox|runs)/")
        one.on("response", lambda answer: asked.append(answer.url) if answer.ok and shows.search(answer.url) else None)
    stack.start()

    heals(page)
    heals(runs_page)
    count = Event.objects.filter(chain=ledger.run_chain(run.pk)).count()
    expect(runs_page.get_by_role("link", name="Events")).to_contain_text(f"{count:,}")
    assert len(asked) < 25, asked
    live(page).keyboard.press("a")
    expect(page).to_have_url(DECIDED)
    expect(runs_page.locator("#run .badge", has_text="Succeeded")).to_be_visible()
    finished(run.pk)
    assert refunds() == ["58213 214.50"]
