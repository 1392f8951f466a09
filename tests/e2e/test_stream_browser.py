"""Everything that can happen to the live stream: the page says so, decides nothing stale, and recovers."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, Route, expect

from agentapp import live as streams
from agentapp import release
from approvals.models import Approval, Decision
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import PASSWORD, Serving, intercept, kept, live
from tests.processes import until

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SCRIPTS = ["live.js", "dialog.js", "keys.js", "countdown.js", "htmx-"]


def pill(page: Page) -> object:
    return expect(page.locator(".bar [data-live-words]"))


def hide(page: Page, is_hidden: bool) -> None:
    """What a browser reports when another tab comes to the front."""
    page.evaluate(
        """is => {
          Object.defineProperty(document, "hidden", { value: is, configurable: true });
          document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
        }""",
        is_hidden,
    )


@pytest.mark.parametrize("late", SCRIPTS)
def test_the_stream_opens_whichever_script_arrives_late(browse: Browse, sam: User, dana: User, late: str) -> None:
    make_waiting(sam)
    page = browse(dana, "/healthz/")

    def delay(route: Route) -> None:
        page.wait_for_timeout(100)
        route.continue_()

    page.route(f"**/{late}*", delay)
    page.goto("/inbox/")

    pill(page).to_have_text("Live")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_after_a_restart_the_page_is_live_again_and_has_what_it_missed(
    browse: Browse, serving: Serving, sam: User, dana: User
) -> None:
    make_waiting(sam, title="First", expires_seconds=600)
    page = browse(dana, "/inbox/")
    pill(page).to_have_text("Live")

    serving.stop()
    pill(page).to_contain_text("Reconnecting, last update")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    make_waiting(sam, title="While it was away", expires_seconds=60)
    serving.start()

    pill(page).to_have_text("Live")
    expect(page.locator("#news")).to_contain_text("1 new request")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_a_server_that_answers_503_for_a_while_is_asked_again(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam)
    page = browse(dana, "/inbox/")
    pill(page).to_have_text("Live")
    intercept(page, "**/live/**", lambda route: route.fulfill(status=503, body="<h1>Busy</h1>"))

    streams.close_streams()
    pill(page).to_contain_text("Reconnecting")
    expect(page.locator("[data-why]").first).to_have_attribute(
        "data-why", re.compile(r"Reconnecting, last update \d+ s ago")
    )
    expect(page.get_by_text("Busy")).to_have_count(0)
    page.unroute("**/live/**")

    pill(page).to_have_text("Live")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


@pytest.mark.parametrize("failure", ["refused", "503", "redirect"])
def test_a_first_connection_that_fails_is_made_again(browse: Browse, sam: User, dana: User, failure: str) -> None:
    make_waiting(sam)
    page = browse(dana, "/healthz/")
    page.clock.install()
    answers = {
        "refused": lambda route: route.abort("connectionrefused"),
        "503": lambda route: route.fulfill(status=503, body="<h1>Busy</h1>"),
        "redirect": lambda route: route.fulfill(status=302, headers={"Location": "/busy/"}),
    }
    page.route("**/live/**", answers[failure])
    page.goto("/inbox/")
    page.clock.run_for(6000)
    pill(page).to_have_text("Reconnecting")
    page.unroute("**/live/**")

    page.clock.run_for(16_000)

    pill(page).to_have_text("Live")
    expect(page.get_by_text("Busy")).to_have_count(0)


def test_a_page_without_news_for_a_minute_says_since_when_it_is_offline(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam)
    page = browse(dana, "/healthz/")
    page.clock.install()
    page.goto("/inbox/")
    pill(page).to_have_text("Live")
    intercept(page, "**/live/**", lambda route: route.abort())

    # Nothing more arrives on a stream that is being reopened.
    with page.expect_request("**/live/**"):
        streams.close_streams()
    page.clock.run_for(70_000)

    pill(page).to_contain_text("Offline since")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    expect(page.get_by_role("button", name="Approve")).to_have_attribute("title", re.compile("Decisions are disabled"))


def test_a_page_that_was_hidden_has_on_its_return_what_it_missed(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = browse(dana, f"/approvals/{approval.pk}/")
    pill(page).to_have_text("Live")
    hide(page, True)
    page.wait_for_timeout(300)
    Approval.objects.filter(pk=approval.pk).update(state="withdrawn")

    hide(page, False)

    expect(page.get_by_text("This can no longer be decided.")).to_be_visible()
    pill(page).to_have_text("Live")


def test_who_is_signed_out_goes_on_where_they_were(
    browse: Browse, sam: User, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.3)
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.1)
    approval = make_waiting(sam, risk="low")
    page = browse(dana, f"/approvals/{approval.pk}/")
    pill(page).to_have_text("Live")
    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("A careful reason.")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)

    Session.objects.all().delete()
    dialog = page.get_by_role("dialog", name="You are signed out")
    expect(dialog).to_be_visible()
    page.wait_for_timeout(2000)
    assert len(asked) <= 1
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("You are not signed in yet.")).to_be_visible()
    with page.expect_popup() as opened:
        dialog.get_by_role("link", name="Sign in").click()
    tab = opened.value
    tab.get_by_label("Name").fill("dana")
    tab.get_by_label("Password").fill(PASSWORD)
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="You are signed in, Dana Whitfield")).to_be_visible()
    tab.close()
    page.bring_to_front()
    # Unless the page, back in front, has gone on by itself already.
    page.evaluate("document.querySelector('#signed-out[open] [data-again]')?.click()")

    expect(dialog).to_be_hidden()
    expect(page.get_by_label("Tell the agent why")).to_have_value("A careful reason.")
    pill(page).to_have_text("Live")
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()


def test_a_page_that_is_signed_in_again_hears_one_stream_however_often_it_has_looked(
    browse: Browse, sam: User, dana: User
) -> None:
    make_waiting(sam)
    page = browse(dana, "/inbox/")
    pill(page).to_have_text("Live")
    page.evaluate("htmx.trigger('#live', 'session.expired')")
    pill(page).to_contain_text("Signed out")
    looks: list[Route] = []
    intercept(page, "**/session/", lambda route: looks.append(route))

    # A browser fires both events when its tab comes to the front.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange')); dispatchEvent(new Event('focus'))")
    until(lambda: page.evaluate("1") and len(looks) == 2, "the page to ask twice who is signed in")
    answers: list[str] = []
    page.on("response", lambda response: answers.append(response.url) if "/session/" in response.url else None)
    for look in looks:
        look.continue_()

    pill(page).to_have_text("Live")
    until(lambda: page.evaluate("1") and len(answers) == 2, "both answers to be there")
    expect(page.locator("#live")).to_have_count(1)


def test_what_was_typed_survives_a_post_that_arrives_signed_out(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = browse(dana, f"/approvals/{approval.pk}/")
    pill(page).to_have_text("Live")
    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("A careful reason.")

    def sign_out(route: Route) -> None:
        Session.objects.all().delete()
        route.continue_()

    intercept(page, f"**/approvals/{approval.pk}/decide/", sign_out, times=1)  # before the page can hear of it
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    page.wait_for_url(f"**/approvals/{approval.pk}/")
    page.get_by_role("link", name="Reject").click()
    expect(page.get_by_label("Tell the agent why")).to_have_value("A careful reason.")
    pill(page).to_have_text("Live")
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(page.locator(".callout", has_text="Dana Whitfield rejected it")).to_be_visible()
    assert kept(page) == []


def test_what_was_typed_survives_a_session_that_has_changed(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = browse(dana, f"/approvals/{approval.pk}/")
    pill(page).to_have_text("Live")
    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("A careful reason.")
    page.evaluate("for (const field of document.querySelectorAll('[name=csrfmiddlewaretoken]')) field.value = 'x'")

    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    expect(page.get_by_role("heading", name="Your session has changed")).to_be_visible()
    assert not Decision.objects.exists()
    page.get_by_role("link", name="Back to the page").click()

    page.get_by_role("link", name="Reject").click()
    expect(page.get_by_label("Tell the agent why")).to_have_value("A careful reason.")


def test_a_newer_release_is_offered_and_nothing_typed_is_lost(
    browse: Browse, sam: User, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = make_waiting(sam)
    page = browse(dana, f"/approvals/{approval.pk}/")
    pill(page).to_have_text("Live")
    expect(page.locator("#newer")).to_be_hidden()
    page.get_by_role("link", name="Reject").click()
    page.get_by_label("Tell the agent why").fill("A careful reason.")
    page.keyboard.press("Escape")

    monkeypatch.setattr(release, "fingerprint", lambda: "newer")
    streams.close_streams()
    expect(page.locator("#newer")).to_be_visible()
    page.locator("#newer").get_by_role("link", name="Reload").click()

    pill(page).to_have_text("Live")
    expect(page.locator("#newer")).to_be_hidden()
    page.get_by_role("link", name="Reject").click()
    expect(page.get_by_label("Tell the agent why")).to_have_value("A careful reason.")


def test_a_part_that_cannot_be_loaded_says_so_in_its_place_and_is_tried_again(
    browse: Browse, sam: User, dana: User
) -> None:
    make_waiting(sam, title="First", expires_seconds=600)
    make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    intercept(page, "**/inbox/peek/**", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))

    page.locator("#queue .q-main", has_text="Second").click()
    failed = page.locator("#peek [data-failed]")
    expect(failed).to_contain_text("This part could not be loaded.")
    expect(page.get_by_text("Bad gateway")).to_have_count(0)
    expect(page.locator("#queue .q-title")).to_have_text(["First", "Second"])
    page.unroute("**/inbox/peek/**")
    failed.get_by_role("button", name="Try again").click()

    expect(page.locator("#peek-title")).to_have_text("Second")
    expect(failed).to_have_count(0)


def test_the_figures_in_title_and_favicon_follow_what_waits(browse: Browse, sam: User, dana: User) -> None:
    page = browse(dana, "/healthz/")
    with page.expect_response("**/counts/"):
        page.goto("/inbox/")
    pill(page).to_have_text("Live")
    expect(page.locator("#favicon")).to_have_attribute("href", "/static/console/favicon/0.svg")

    make_waiting(sam, expires_seconds=4000)
    expect(page.locator("#favicon")).to_have_attribute("href", "/static/console/favicon/1.svg")
    expect(page.locator("#spoken")).to_have_text("1 new, 1 waiting")
    make_waiting(sam, expires_seconds=200)

    expect(page.locator("#favicon")).to_have_attribute("href", "/static/console/favicon/2-due.svg")
    expect(page).to_have_title("(2) Inbox · Countersign")
    expect(page.locator("#spoken")).to_have_text("1 new, 2 waiting")
