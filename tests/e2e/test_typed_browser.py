"""Typed text outlasts a session that ends, belongs to the request it was typed for, and is never cut silently."""

import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp.models import Agent, Run
from agentapp.models import Route as AgentRoute
from approvals.models import Approval
from tests.agentapp.console.conftest import make_waiting
from tests.conftest import Clerk
from tests.e2e.conftest import kept, live, rested, sent_signed_out
from tests.e2e.looks import shot, violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]


@pytest.mark.parametrize("where", ["/inbox/", "/approvals/{}/"])
def test_whom_a_request_goes_to_and_why_outlast_the_session(
    browse: Browse, sam: User, dana: User, marco: User, where: str
) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, where.format(approval.pk)))
    page.keyboard.press("h")
    page.get_by_label("To", exact=True).select_option(label="Marco Reyes")
    page.get_by_label("Note").fill("You know the customer.")

    sent_signed_out(page, "**/hand-over/", "Hand over", "dana")

    dialog = page.get_by_role("dialog", name="Hand over")
    live(page)
    if where == "/inbox/":
        page.keyboard.press("h")
    expect(dialog.get_by_label("Note")).to_have_value("You know the customer.")
    expect(dialog.get_by_label("To", exact=True)).to_have_value(f"user:{marco.pk}")
    dialog.get_by_role("button", name="Hand over").click()
    expect(dialog).to_be_hidden()
    page.goto(f"/approvals/{approval.pk}/")
    expect(page.get_by_text("Dana Whitfield handed it to Marco Reyes")).to_be_visible()
    assert kept(page) == []


def test_why_several_are_rejected_outlasts_the_session_and_is_of_those_alone(
    browse: Browse, sam: User, dana: User
) -> None:
    made = [make_waiting(sam, title=f"Refund {n}", risk="low", effect_class="reversible") for n in range(3)]
    one, other = (f"/inbox/batch/?pick={made[n].pk}&pick={made[n + 1].pk}" for n in (0, 1))
    page = browse(dana, one)
    page.get_by_text("Reject 2").first.click()
    reason = page.get_by_role("radio").first
    label = page.locator("label.pick").first
    label.click()
    page.get_by_label("Tell the agents why").fill("All of one customer.")
    page.goto(other)
    page.get_by_text("Reject 2").first.click()
    expect(page.get_by_label("Tell the agents why")).to_have_value("")
    expect(reason).not_to_be_checked()
    page.goto(one)
    page.get_by_text("Reject 2").first.click()

    sent_signed_out(page, re.compile(r"/inbox/batch/\?pick="), "Reject 2", "dana")

    page.wait_for_url(f"**{one}")
    page.get_by_text("Reject 2").first.click()
    expect(page.get_by_label("Tell the agents why")).to_have_value("All of one customer.")
    expect(reason).to_be_checked()
    page.get_by_role("button", name="Reject 2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 rejected")
    assert Approval.objects.filter(state="rejected").count() == 2
    assert kept(page) == []


def test_a_run_that_was_to_be_started_is_there_again_until_it_is_given_up(
    browse: Browse, clerk: Clerk, sam: User
) -> None:
    other = Agent.objects.create(name="zoe", driver_settings=clerk.agent.driver_settings, driver=clerk.agent.driver)
    AgentRoute.objects.create(agent=other, name="short-way")
    page = live(browse(sam, "/runs/new/"))
    page.get_by_role("radio", name="zoe").check()
    page.get_by_label("Message").fill("Look into it.")
    page.get_by_label("Customer").fill("Ana")

    sent_signed_out(page, "**/runs/new/", "Start the run", "sam")

    page.wait_for_url("**/runs/new/")
    expect(page.get_by_role("radio", name="zoe")).to_be_checked()
    expect(page.get_by_label("Route").get_by_role("option", name="short-way")).to_be_attached()
    expect(page.get_by_label("Message")).to_have_value("Look into it.")
    expect(page.get_by_label("Customer")).to_have_value("Ana")
    assert not Run.objects.exists()
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url("**/runs/")
    page.goto("/runs/new/")
    expect(page.get_by_label("Message")).to_have_value("")
    expect(page.get_by_role("radio", name="zoe")).not_to_be_checked()


def test_an_agent_that_an_address_names_is_not_another_that_was_chosen_before(
    browse: Browse, clerk: Clerk, sam: User
) -> None:
    Agent.objects.create(name="zoe", driver_settings=clerk.agent.driver_settings, driver=clerk.agent.driver)
    page = live(browse(sam, "/runs/new/"))
    page.get_by_role("radio", name="zoe").check()
    page.get_by_label("Message").fill("Refund Ana.")
    page.get_by_label("Conversation").fill("ticket-ana")
    page.goto(f"/runs/new/?agent={clerk.agent.name}&customer=Cy")
    expect(page.get_by_role("radio", name=clerk.agent.name)).to_be_checked()
    for label, value in [("Customer", "Cy"), ("Message", ""), ("Conversation", "")]:
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
    with page.expect_response("**/parts/**"):
        page.get_by_role("radio", name="zoe").check()
    expect(page.get_by_label("Message", exact=True)).to_have_value("")


def test_a_run_that_was_started_leaves_an_empty_form(browse: Browse, clerk: Clerk, sam: User) -> None:
    page = live(browse(sam, "/runs/new/"))
    page.get_by_label("Message").fill("Look into it.")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    page.goto("/runs/new/")
    expect(page.get_by_label("Message")).to_have_value("")
    assert kept(page) == []


@pytest.mark.parametrize("where", ["inbox", "page", "focus"])
def test_what_was_typed_and_given_up_is_forgotten_once_the_request_is_decided(
    browse: Browse, sam: User, dana: User, marco: User, where: str
) -> None:
    first, _ = [make_waiting(sam, risk="low", expires_seconds=5000 + n) for n in range(2)]
    page = live(browse(dana, "/inbox/"))
    page.keyboard.press("h")
    dialog = page.get_by_role("dialog", name="Hand over")
    dialog.get_by_label("Note").fill("You know the customer.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    live(page).keyboard.press("r")
    page.get_by_label("Tell the agent why").fill("Not now.")
    page.keyboard.press("Escape")
    if where == "page":
        page.goto(f"/approvals/{first.pk}/")
    elif where == "focus":
        with page.expect_response("**/upcoming/"):
            live(page).keyboard.press("f")
        page.wait_for_url(f"**/inbox/focus/{first.pk}/")

    live(page).keyboard.press("a")

    page.wait_for_function("() => !sessionStorage.length")
    first.refresh_from_db()
    assert first.state == "approved"


def test_a_comment_that_was_begun_outlasts_the_decision(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.get_by_label("Your comment").fill("Look at the photo.")
    page.keyboard.press("Escape")
    live(page).keyboard.press("a")
    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    expect(page.get_by_label("Your comment")).to_have_value("Look at the photo.")


@pytest.mark.parametrize("where", ["/inbox/", "/approvals/{}/"])
def test_the_reason_that_was_chosen_outlasts_the_session(browse: Browse, sam: User, dana: User, where: str) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, where.format(approval.pk)))
    page.keyboard.press("r")
    page.keyboard.press("1")
    page.get_by_label("Tell the agent why").fill("Not now.")

    sent_signed_out(page, "**/decide/", "Reject", "dana")

    live(page).keyboard.press("r")
    reason = page.locator("#reject-dialog [name=reason]").first
    expect(reason).to_be_checked()
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    page.wait_for_function("() => !sessionStorage.length")
    assert approval.decisions.get().message.startswith(settings.REJECTION_REASONS[0])


def test_why_something_is_stopped_outlasts_the_session_and_is_gone_once_it_is(
    browse: Browse, clerk: Clerk, mia: User
) -> None:
    page = live(browse(mia, "/switches/"))
    what, why = page.get_by_label("What", exact=True), page.get_by_label("Why", exact=True)
    what.select_option(label="clerk")
    why.fill("It pays twice.")

    sent_signed_out(page, "**/switches/", "Stop it", "mia")

    page.wait_for_url("**/switches/")
    expect(why).to_have_value("It pays twice.")
    expect(what).to_have_value("agent:clerk")
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("cell", name="It pays twice.")).to_be_visible()
    rested(page)
    expect(why).to_have_value("")
    expect(what).to_have_value("")
    assert page.evaluate("Object.keys(sessionStorage)") == []


def paste(page: Page, text: str) -> None:
    """Into the field that has the focus, as a person would paste."""
    page.evaluate(
        """(text) => {
            const field = document.activeElement, from = document.createElement("textarea");
            from.value = text;
            field.parentElement.append(from);
            from.select();
            document.execCommand("copy");
            from.remove();
            field.focus();
        }""",
        text,
    )
    page.keyboard.press("Control+v")


@pytest.mark.parametrize("width", [1440, 390])
def test_a_text_that_does_not_fit_says_where_it_was_cut(browse: Browse, sam: User, dana: User, width: int) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/", width, 800))
    page.get_by_role("link", name="Reject").click()
    why = page.get_by_label("Tell the agent why")
    why.focus()
    field = page.locator(".field", has=why)
    why.fill("x" * 3199)
    expect(field).not_to_contain_text(" of 4,000")
    why.press_sequentially("yz")
    expect(field).to_contain_text("3,201 of 4,000")
    assert violations(page) == []
    shot(page, "counted")
    paste(page, "ä\n" * 5000)
    expect(why).to_have_value("x" * 3199 + "yz" + ("ä\n" * 400)[:799])
    expect(field).to_contain_text("Cut at 4,000 characters.")
    expect(page.locator("#spoken")).to_have_text("Cut at 4,000 characters.")
    expect(why).to_have_accessible_description("Cut at 4,000 characters.")
    assert violations(page) == []
    shot(page, "cut")
    why.press("Backspace")
    expect(field).to_contain_text("3,999 of 4,000")
    why.fill("Short.")
    expect(field).not_to_contain_text("4,000")


def test_without_the_server_a_comment_is_not_sent_into_nowhere(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.get_by_label("Your comment").fill("Look at the photo.")
    page.context.set_offline(True)
    comment = page.get_by_role("button", name="Comment")
    expect(comment).to_be_disabled()
    expect(comment).to_have_attribute("title", re.compile("Offline since"))
    page.context.set_offline(False)
    expect(comment).to_be_enabled()
    rested(page)
    comment.click()
    expect(page.locator("#comments")).to_contain_text("Look at the photo.")
