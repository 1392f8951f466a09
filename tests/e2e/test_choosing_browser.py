"""Going from one request to the next in the inbox: the one chosen last is shown, marked and decided."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, Route, expect

from approvals import claims
from approvals.models import Approval
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import intercept, live, rested
from tests.processes import until

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
# Counts the responses about claims and about the list that the page has finished handling.
COUNTED = """() => { window.done = { claim: 0, rows: 0 };
  addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
    for (const each in done) if (ctx.request.action.includes(`/${each}/`)) done[each] += 1; }); }"""


def test_until_what_was_chosen_is_there_nothing_of_the_last_one_can_be_decided(
    browse: Browse, sam: User, dana: User
) -> None:
    first = make_waiting(sam, title="First", expires_seconds=600)
    second = make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    held: list[Route] = []
    released: list[bool] = []
    intercept(
        page, f"**/inbox/peek/{second.pk}/**", lambda route: route.continue_() if released else held.append(route)
    )

    page.keyboard.press("j")

    peek = page.locator("#peek")
    expect(peek).to_have_attribute("aria-busy", "true")
    expect(peek.locator("> :not(input)").first).to_have_css("opacity", "0")
    rested(page)
    page.keyboard.press("a")
    expect(peek.locator(".decide button").first).to_have_css("pointer-events", "none")
    with page.expect_response("**/inbox/rows/**"):
        page.evaluate("htmx.trigger(document.body, 'inbox-changed')")
    expect(page.locator("#queue .is-current")).to_contain_text("Second")
    # It may have been requested several times by now; the page gives up all requests but the last.
    released.append(True)
    for route in held:
        route.continue_()

    expect(page.locator("#peek-title")).to_have_text("Second")
    expect(peek).not_to_have_attribute("aria-busy", "true")
    expect(peek.locator("> :not(input)").first).to_have_css("opacity", "1")
    states = {pk: Approval.objects.get(pk=pk).state for pk in (first.pk, second.pk)}
    assert states == {first.pk: Approval.State.PENDING, second.pk: Approval.State.PENDING}


def test_what_could_not_be_chosen_leaves_nothing_to_decide_in_its_place(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, title="First", expires_seconds=600)
    second = make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    intercept(page, f"**/inbox/peek/{second.pk}/**", lambda route: route.abort())

    page.keyboard.press("j")

    expect(page.locator("#peek [data-failed]")).to_be_visible()
    expect(page.locator("#peek .decide")).to_have_count(0)


def test_what_is_asked_for_meanwhile_does_not_replace_what_was_chosen(browse: Browse, sam: User, dana: User) -> None:
    first = make_waiting(sam, title="First", expires_seconds=600)
    make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    held: list[Route] = []
    intercept(page, f"**/inbox/peek/{first.pk}/**", lambda route: held.append(route))
    with page.expect_request(f"**/inbox/peek/{first.pk}/**") as refreshed:
        page.evaluate("htmx.trigger(document.body, 'inbox-changed')")

    page.locator("#queue .q-main", has_text="Second").click()

    expect(page.locator("#peek-title")).to_have_text("Second")
    assert refreshed.value.failure is not None  # given up by the page
    with page.expect_response("**/inbox/peek/**"):
        page.evaluate("htmx.trigger(document.body, 'inbox-changed')")
    expect(page.locator("#peek-title")).to_have_text("Second")
    assert held


@pytest.mark.parametrize(
    ("comes", "status"), [("before", 200), ("after", 200), ("after", 502)], ids=["before", "after", "failed"]
)
def test_a_late_answer_about_the_last_one_does_not_replace_what_was_chosen(
    browse: Browse, sam: User, dana: User, comes: str, status: int
) -> None:
    first = make_waiting(sam, title="First", expires_seconds=600)
    second = make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    page.evaluate(COUNTED)
    claiming: list[Route] = []
    held: list[Route] = []
    released: list[bool] = []
    intercept(page, "**/claim/", lambda route: claiming.append(route))
    intercept(
        page, f"**/inbox/peek/{second.pk}/**", lambda route: route.continue_() if released else held.append(route)
    )

    def answer_the_claim() -> None:
        if status == 200:
            claiming[0].continue_()
        else:
            claiming[0].fulfill(status=status, body="<h1>Bad gateway</h1>")
        until(lambda: page.evaluate("done.claim"), "the page to be done with the claim")

    page.keyboard.press("c")
    page.keyboard.press("j")
    until(lambda: page.evaluate("1") and claiming and held, "both to be asked for")
    if comes == "before":
        answer_the_claim()
        expect(page.locator("#peek")).to_have_attribute("aria-busy", "true")
    released.append(True)
    for route in held:
        route.continue_()
    expect(page.locator("#peek-title")).to_have_text("Second")
    if comes == "after":
        answer_the_claim()

    assert page.locator("#peek-title").text_content() == "Second"
    assert page.locator("#peek [data-failed]").count() == 0
    expect(page.locator("#queue .is-current")).to_contain_text("Second")
    assert (claims.of(first.pk) is not None) == (status == 200)


def test_a_refresh_of_the_list_begun_before_a_choice_leaves_the_choice_marked(
    browse: Browse, sam: User, dana: User
) -> None:
    make_waiting(sam, title="First", expires_seconds=600)
    make_waiting(sam, title="Second", expires_seconds=700)
    page = live(browse(dana, "/inbox/"))
    page.evaluate(COUNTED)
    held: list[Route] = []
    intercept(page, "**/inbox/rows/**", lambda route: held.append(route))
    page.evaluate("htmx.trigger(document.body, 'inbox-changed')")
    until(lambda: page.evaluate("1") and held, "the list to be asked for")

    page.keyboard.press("j")
    expect(page.locator("#peek-title")).to_have_text("Second")
    before = page.evaluate("done.rows")
    held[0].continue_()
    until(lambda: page.evaluate("done.rows") > before, "the page to be done with the list")

    expect(page.locator("#queue .is-current")).to_contain_text("Second")
    expect(page.locator("#queue [aria-current]")).to_have_count(1)
    rested(page)
    page.keyboard.press("x")
    expect(page.locator("#queue li", has_text="Second").locator("[name=pick]")).to_be_checked()
