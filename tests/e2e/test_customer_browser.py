"""The customer's page in a real browser: it follows the conversation, works without JavaScript, and is accessible."""

import re
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from agentapp import customer_links, loop
from agentapp.models import CustomerLink, Run
from tests.agentapp.customers_at_work import access_to, customer_rule
from tests.conftest import Clerk, call, calls, says
from tests.e2e.conftest import intercept, kept
from tests.e2e.looks import shot, sideways, violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
PAY = calls(call("p", "pay", account="ana", amount=5), text="I propose to pay.")


@pytest.fixture
def link(clerk: Clerk, sam: User) -> CustomerLink:
    customer_rule()
    clerk.agent.driver_settings = {"script": [PAY, says("It is paid.")]}
    clerk.agent.save()
    return customer_links.make(
        access_to(clerk).conversation, sam, timezone.now() + timedelta(hours=1), "test"
    )  # fmt: skip


def address(link: CustomerLink) -> str:
    return f"/talk/{customer_links.signed(link)}/"


def drive() -> None:
    def work() -> None:
        try:
            loop.drive(Run.objects.latest("created_at").pk)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


@pytest.mark.parametrize("width", [390, 1440])
def test_a_customer_talks_and_confirms_while_the_page_follows(
    browse: Browse, link: CustomerLink, complaints: list[str], width: int
) -> None:
    page = browse(None, address(link), width=width, height=844)
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Pay me.")).to_be_visible()
    drive()
    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    assert violations(page) == []
    assert not sideways(page)
    shot(page, "asked")
    page.get_by_role("button", name="Yes").click()
    drive()
    expect(page.get_by_text("It is paid.")).to_be_visible()
    assert violations(page) == []
    shot(page, "paid")
    customer_links.revoke(link, "test")
    expect(page.get_by_role("heading", name="This link was taken back")).to_be_visible()
    assert violations(page) == []
    assert [text for text in complaints if "410" not in text] == []


def test_the_page_goes_on_by_itself_after_a_server_that_was_starting(browse: Browse, link: CustomerLink) -> None:
    page = browse(None, address(link))
    expect(page.locator("#offline")).to_be_hidden()
    answers = [502, 503]
    page.route(
        "**/events/", lambda route: route.fulfill(status=answers.pop(), body="") if answers else route.continue_()
    )
    page.reload()
    expect(page.locator("#offline")).to_be_visible()
    expect(page.locator("#offline")).to_be_hidden()
    assert answers == []


@pytest.mark.parametrize("failure", [429, 503, None])
def test_the_page_fetches_again_what_it_could_not_fetch(
    browse: Browse, link: CustomerLink, failure: int | None
) -> None:
    page = browse(None, address(link))
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Pay me.")).to_be_visible()
    expect(page.locator("#offline")).to_be_hidden()
    is_down = True

    def answer(route: Route) -> None:
        if not is_down:
            route.continue_()
        elif failure:
            route.fulfill(status=failure, body="")
        else:
            route.abort()

    intercept(page, "**/*part=moving*", answer)
    drive()
    expect(page.locator("#offline")).to_be_visible()
    is_down = False

    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    expect(page.locator("#offline")).to_be_hidden()


def test_what_is_sent_without_a_network_stays_and_is_sent_once_there_is_one(browse: Browse, link: CustomerLink) -> None:
    page = browse(None, address(link), width=390, height=844)
    page.get_by_label("Your message").fill("Pay me.")
    page.context.set_offline(True)

    page.get_by_role("button", name="Send").click()

    expect(page.get_by_role("status").first).to_contain_text("You are not connected, so nothing was sent.")
    expect(page.get_by_label("Your message")).to_have_value("Pay me.")
    assert violations(page) == []
    shot(page, "not-sent")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method) if request.method == "POST" else None)
    page.get_by_role("button", name="Ask for a person").click()
    expect(page.get_by_label("Your message")).to_have_value("Pay me.")
    assert sent == []
    page.context.set_offline(False)
    page.reload()
    expect(page.get_by_label("Your message")).to_have_value("Pay me.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#moving li.customer")).to_have_text(re.compile("Pay me."))
    expect(page.get_by_label("Your message")).to_have_value("")
    assert kept(page) == []


def test_an_answer_from_before_does_not_hide_that_nothing_was_sent(browse: Browse, link: CustomerLink) -> None:
    page = browse(None, address(link))
    box, asked = page.get_by_label("Your message"), list[Route]()

    def hold_the_first(route: Route) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.abort()

    intercept(page, "**/*part=moving*", hold_the_first)
    box.fill("Pay me.")
    box.blur()  # the page looks whether there is something new, unless the stream has made it look already
    while not asked:
        page.evaluate("0")
    page.context.set_offline(True)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#offline")).to_contain_text("nothing was sent")
    with page.expect_request("**/*part=moving*"):  # it is sent once the first answer was read
        page.get_by_role("button", name="Send").blur()
        asked[0].fulfill(body='<div id="moving"></div>', content_type="text/html")

    expect(page.locator("#offline")).to_contain_text("nothing was sent")


def test_what_did_not_arrive_is_there_again_and_what_did_is_not(browse: Browse, link: CustomerLink) -> None:
    here = address(link)
    page = browse(None, here)
    box, arrives = page.get_by_label("Your message"), False

    def answer(route: Route) -> None:
        is_sent = route.request.method == "POST"
        if is_sent and arrives:
            route.fetch(max_redirects=0)
        if is_sent:
            route.fulfill(status=502, body="Bad gateway")
        else:
            route.continue_()

    intercept(page, f"**{here}", answer)
    for arrives in (False, True):
        box.fill("Pay me.")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_text("Bad gateway")).to_be_visible()
        page.goto(here)
        expect(box).to_have_value("" if arrives else "Pay me.")
    expect(page.locator("#moving li.customer")).to_have_count(1)


def test_a_customer_without_a_network_who_reaches_the_server_all_the_same_sends(
    browse: Browse, link: CustomerLink
) -> None:
    page = browse(None, address(link))
    page.evaluate("Object.defineProperty(navigator, 'onLine', { value: false })")
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#moving li.customer")).to_have_text(re.compile("Pay me."))


def test_a_button_stays_where_it_is_while_nothing_has_changed(browse: Browse, link: CustomerLink) -> None:
    page = browse(None, address(link), width=390, height=844)
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    drive()
    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    page.evaluate("window.seen = document.querySelector('button[value=yes]')")
    # Each refresh begins when the previous one is over, and one may have been under way already.
    for _ in range(2):
        with page.expect_response(lambda response: "part=moving" in response.url):
            page.evaluate("dispatchEvent(new Event('focusout'))")
    assert page.evaluate("window.seen.isConnected")


@pytest.mark.parametrize("width", [390, 1440])
def test_staff_make_a_link_that_opens_the_page_and_take_it_back(
    browse: Browse, clerk: Clerk, link: CustomerLink, sam: User, complaints: list[str], width: int
) -> None:
    customer_links.revoke(link, "test")
    clerk.run(says("Hello."), customer="Ana", conversation="ticket-7")
    page = browse(sam, "/runs/", width=width, height=844)
    page.goto(f"/runs/{Run.objects.latest('created_at').pk}/chat/links/")
    looked_at(page)
    page.get_by_label("Valid for").select_option("1 hour")
    page.get_by_role("button", name="Make a link").click()
    address = page.get_by_label("Give this to the customer").input_value()
    looked_at(page)
    shot(page, "links")
    customer = browse(None, address, width=width)
    expect(customer.get_by_label("Your message")).to_be_visible()
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_text("No link opens this conversation now.")).to_be_visible()
    looked_at(page)
    expect(customer.get_by_role("heading", name="This link was taken back")).to_be_visible()
    assert [text for text in complaints if "410" not in text] == []


def looked_at(page: Page) -> None:
    assert violations(page) == []
    assert not sideways(page)


@pytest.mark.parametrize("width", [390, 1440])
def test_without_script_anybody_can_read_the_page(browse: Browse, link: CustomerLink, width: int) -> None:
    page = browse(None, "about:blank", width=width)
    # The accessibility check needs JavaScript itself, so only the page's own scripts are blocked.
    page.route("**/*.js", lambda route: route.abort())
    page.goto(address(link))
    looked_at(page)
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    drive()
    page.reload()
    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    looked_at(page)
    shot(page, "plain")


def test_without_script_a_reload_shows_what_is_new(browse: Browse, link: CustomerLink) -> None:
    page = browse(None, address(link), java_script_enabled=False)
    page.get_by_label("Your message").fill("Pay me.")
    page.get_by_role("button", name="Send").click()
    drive()
    page.reload()
    page.get_by_role("button", name="No").click()
    drive()
    page.reload()
    assert Run.objects.get().executions.get().reason == "approval_rejected"


def test_somebody_without_a_good_link_reads_what_to_do(browse: Browse, server: str) -> None:
    page = browse(None, "/talk/made-up/")
    expect(page.get_by_role("heading", name="No such link")).to_be_visible()
    assert violations(page) == []
