"""The conversation in a real browser: asked, streamed, decided, taken over and handed back."""

import importlib
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from agentapp import actions, loop
from agentapp.models import Agent, Run
from approvals.models import Decision, Rule
from tests.conftest import Clerk, call, calls, says
from tests.e2e.conftest import intercept, live, rested
from tests.e2e.looks import look, shot, sideways, violations
from tests.rows import take
from tests.wire import DIALECTS, Answer, ProviderServer, provider

__all__ = ["provider"]
pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
OPENAI = DIALECTS["openai"]
PAY = calls(call("p", "pay", account="ana", amount=5), text="I propose to pay.")
LOOK = calls(call("l", "look_up", what="kettle"), call("m", "look_up", what="order"), text="I look.")
PHONE, DESK = (390, 844), (1440, 900)


class Worker:
    """Drives a run alongside the browser, as a worker does."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def drive(self, run_id: Any) -> None:
        def work() -> None:
            try:
                while loop.drive(run_id) is not None:
                    pass
            finally:
                connections.close_all()

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()


@pytest.fixture
def streaming(provider: ProviderServer) -> ProviderServer:
    """A provider, with the clients' libraries preloaded: loading them takes longer than the wait for a page."""
    importlib.import_module("agentapp.llm.exchange")
    return provider


@pytest.fixture
def worker(server: str) -> Iterator[Worker]:
    made = Worker()
    yield made
    for thread in made.threads:
        thread.join(30)


def test_asked_streamed_decided_and_answered(
    browse: Browse,
    clerk: Clerk,
    sam: User,
    dana: User,
    streaming: ProviderServer,
    worker: Worker,
    complaints: list[str],
) -> None:
    Agent.objects.update(driver="tool_calling", model=OPENAI.model)
    page = live(browse(sam, "/runs/new/", *DESK))
    page.get_by_label("Message").fill("Please pay Ana what we owe her.")
    page.get_by_label("Conversation").fill("ticket-7")
    page.get_by_role("button", name="Start the run").click()
    expect(page).to_have_url(re.compile(r"/chat/$"))
    expect(live(page).get_by_text("Queued.")).to_be_visible()
    run = Run.objects.get()

    seen = threading.Event()
    streaming.answer(
        Answer(
            events=OPENAI.stream("I propose ", seen, "to pay.", calls=[("p", "pay", {"account": "ana", "amount": 5})])
        )
    )
    worker.drive(run.pk)
    expect(page.locator("#draft")).to_contain_text("I propose")
    shot(page, "streaming")
    assert violations(page) == []
    seen.set()
    expect(page.get_by_text("Waiting for somebody who may decide.")).to_be_visible()
    expect(page.locator("#draft")).to_be_hidden()

    danas = live(browse(dana, f"/runs/{run.pk}/chat/", *PHONE))
    danas.locator("#asked-" + str(clerk.open(run)[0].pk)).scroll_into_view_if_needed()
    shot(danas, "asked")
    danas.get_by_role("button", name="Approve $5.00").click()
    rested(danas).locator(".asked .btn[value=confirm]").click()
    expect(danas.locator(".asked .btn.primary")).to_have_count(0)

    seen = threading.Event()
    streaming.answer(Answer(events=OPENAI.stream("It is ", seen, "paid.")))
    worker.drive(run.pk)
    expect(page.locator("#draft")).to_contain_text("It is")
    seen.set()
    expect(page.locator("[data-said=agent]")).to_contain_text("It is paid.")
    expect(page.locator("#chat-heard")).to_contain_text("It is paid.")
    expect(page.locator(".chat-head .badge")).to_have_text("Succeeded")
    expect(page.get_by_role("link", name="1 tool")).to_be_visible()
    shot(page, "answered")
    assert complaints == []


def test_taken_over_written_in_the_agents_place_and_handed_back(
    browse: Browse, clerk: Clerk, sam: User, dana: User, worker: Worker, complaints: list[str]
) -> None:
    run = clerk.run(PAY, says("As Dana says."), input="Pay me.", conversation="ticket-7", customer="Ana Pereira")
    watching = live(browse(sam, f"/runs/{run.pk}/chat/", *PHONE))
    watching.get_by_label("Message").fill("Half a sentence")
    page = live(browse(dana, f"/runs/{run.pk}/chat/", *DESK))
    page.get_by_role("button", name="Take over").click()
    expect(page.get_by_text("You have taken over.", exact=True).first).to_be_visible()
    expect(watching.get_by_text("Dana Whitfield has taken over.")).to_be_visible()
    live(page).get_by_label("Your message to the customer").fill("I look into it myself.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-said=person]")).to_contain_text("I look into it myself.")
    expect(page.get_by_label("Your message to the customer")).to_be_focused()
    expect(page.get_by_label("Your message to the customer")).to_have_value("")
    shot(page, "taken-over")
    assert violations(page) == []
    expect(watching.locator("[data-said=person]")).to_contain_text("Dana Whitfield")
    expect(watching.get_by_label("Message")).to_have_value("Half a sentence")
    shot(watching, "taken-over")
    assert violations(watching) == []
    actions.start_run(actions.NewRun("clerk", "Thank you!", conversation="ticket-7"), sam)
    expect(page.get_by_text("Thank you!")).to_be_visible()
    page.get_by_role("button", name="Hand back").click()
    expect(page.get_by_text("The agent goes on, and knows what was said.")).to_be_visible()
    clerk.decide(clerk.open(run)[0], User.objects.create_superuser("root"))
    worker.drive(run.pk)
    expect(page.locator("[data-said=agent]")).to_contain_text("As Dana says.")
    assert complaints == []


def test_what_is_armed_stays_so_while_the_conversation_goes_on_and_not_when_it_has_changed(
    browse: Browse, clerk: Clerk, sam: User, dana: User, marco: User
) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="high", approvals_needed=2)
    run = clerk.run(PAY, says("Paid."), input="Pay me.", conversation="ticket-7")
    [approval] = clerk.open(run)
    page = live(browse(dana, f"/runs/{run.pk}/chat/", *DESK))
    page.clock.install()
    page.clock.pause_at(timezone.now() + timedelta(seconds=5))
    page.get_by_role("button", name="Approve $5.00").click()
    armed = page.locator(".asked [data-arms][value='confirm']")
    words = armed.text_content()
    assert words

    actions.start_run(actions.NewRun("clerk", "Are you there?", conversation="ticket-7"), sam)
    page.clock.run_for(1000)
    expect(page.get_by_text("Are you there?")).to_be_visible()
    expect(armed).to_have_text(words)
    shot(page, "armed")

    take(approval, marco)
    page.clock.run_for(1000)
    expect(page.get_by_role("button", name="Approve $5.00 as 2 of 2")).to_be_visible()
    expect(armed).to_have_count(0)
    page.clock.run_for(6000)
    expect(page.get_by_role("button", name="Approve $5.00 as 2 of 2")).to_be_visible()
    assert Decision.objects.get().user == marco


def test_what_was_armed_goes_back_to_its_own_words_after_a_refresh_too(
    browse: Browse, clerk: Clerk, sam: User, dana: User
) -> None:
    run = clerk.run(PAY, says("Paid."), input="Pay me.", conversation="ticket-7")
    page = live(browse(dana, f"/runs/{run.pk}/chat/"))
    page.clock.install()
    page.clock.pause_at(timezone.now() + timedelta(seconds=5))
    page.get_by_role("button", name="Approve $5.00").click()
    actions.start_run(actions.NewRun("clerk", "Are you there?", conversation="ticket-7"), sam)
    page.clock.run_for(1000)
    expect(page.get_by_text("Are you there?")).to_be_visible()
    expect(page.locator(".asked [data-arms][value='confirm']")).to_have_count(1)

    page.clock.run_for(6000)

    expect(page.locator(".asked [data-arms][value='confirm']")).to_have_count(0)
    expect(page.get_by_role("button", name="Approve $5.00")).to_be_visible()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["1440", "390"])
def test_who_cannot_hand_back_reads_who_paused_it(
    browse: Browse, clerk: Clerk, dana: User, mia: User, size: tuple[int, int]
) -> None:
    run = clerk.run(PAY, says("Paid."), input="Pay me.", conversation="ticket-7", customer="Ana Pereira")
    actions.take_over_run(run.pk, dana)
    actions.pause_run(run.pk, mia)
    for name, path in (("held", f"/runs/{run.pk}/chat/"), ("held-run", f"/runs/{run.pk}/")):
        page = live(browse(dana, path, *size))
        expect(page.get_by_text("Mia Manager has paused this run.")).to_be_visible()
        expect(page.get_by_role("button", name="Hand back")).to_have_count(0)
        shot(page, name)
        assert violations(page) == []


def test_words_for_the_customer_are_not_sent_as_the_customers_once_somebody_has_handed_back(
    browse: Browse, clerk: Clerk, sam: User, dana: User
) -> None:
    run = clerk.run(PAY, input="Pay me.", conversation="ticket-7", customer="Ana Pereira")
    actions.take_over_run(run.pk, dana)
    page = live(browse(dana, f"/runs/{run.pk}/chat/"))
    box = page.get_by_label("Your message to the customer")
    box.fill("We owe you nothing.")
    actions.hand_back_run(run.pk, dana)
    expect(page.get_by_text("You have taken over.", exact=True)).to_have_count(0)

    box.press("Control+Enter")

    expect(page.get_by_role("alert")).to_contain_text("You have not taken it over. Nothing was sent.")
    expect(page.locator("#say-text")).to_have_value("We owe you nothing.")
    assert Run.objects.count() == 1


def test_escape_pressed_twice_stops_the_agent_and_once_does_not(browse: Browse, clerk: Clerk, sam: User) -> None:
    run = clerk.run(PAY, conversation="ticket-7")
    page = live(browse(sam, f"/runs/{run.pk}/chat/"))
    page.get_by_label("Message").focus()
    # No time passes between the two: after a second and a half the first counts no more, and the hint is gone.
    page.clock.install()
    page.clock.pause_at(timezone.now() + timedelta(seconds=5))
    page.keyboard.press("Escape")
    expect(page.get_by_text("Esc again stops the agent")).to_be_visible()
    run.refresh_from_db()
    assert not run.is_final
    page.keyboard.press("Escape")
    page.clock.resume()
    expect(page.get_by_text("A person cancelled the run.")).to_be_visible()
    run.refresh_from_db()
    assert run.state == Run.State.CANCELLED


def test_what_was_said_meanwhile_is_shown_before_anything_is_sent(browse: Browse, clerk: Clerk, sam: User) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    page = browse(sam, f"/runs/{run.pk}/chat/", java_script_enabled=False)
    clerk.run(says("Ho."), input="I was faster.", conversation="ticket-7")
    page.get_by_label("Message").fill("And me?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Something was said meanwhile.")).to_be_visible()
    expect(page.locator(".is-new")).to_have_count(2)
    expect(page.get_by_label("Message")).to_have_value("And me?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[data-said=customer]").last).to_contain_text("And me?")


@pytest.mark.parametrize("size", [DESK, PHONE, (320, 640)], ids=["1440", "390", "320"])
def test_every_state_is_accessible_and_keeps_the_policy(
    browse: Browse, clerk: Clerk, sam: User, dana: User, complaints: list[str], size: tuple[int, int]
) -> None:
    talked = {"conversation": "ticket-7", "customer": "Ana Pereira"}
    clerk.run(
        LOOK, says("Your kettle was packed this morning.\nIt leaves tonight."), input="Where is my kettle?", **talked
    )
    waiting = clerk.run(PAY, input="It never came. I want my money back, please.", **talked)
    alone = clerk.run(LOOK, {"error": "The provider is gone."}, input="x" * 90)
    paths = {"waiting": waiting, "failed": alone}
    page = browse(dana, "/runs/", *size)
    wrong: dict[str, list[str]] = {}
    for name, run in paths.items():
        page.goto(f"/runs/{run.pk}/chat/")
        look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_line_that_is_added_does_not_vanish_with_a_slower_answer(browse: Browse, clerk: Clerk, sam: User) -> None:
    items = {"type": "array", "title": "Items", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"order": {"type": "integer", "title": "Order"}, "items": items}}
    Agent.objects.create(name="returns", description="Takes things back.", driver="scripted", input_schema=schema)
    page = live(browse(sam, "/runs/new/"))
    page.get_by_label("returns").check()
    expect(page.get_by_label("Order")).to_be_visible()
    held: list[Route] = []
    intercept(page, "**/runs/new/parts/", lambda route: held.append(route))
    # The form asks when focus leaves the field, because of the key or because the page is still settling.
    with page.expect_request("**/runs/new/parts/") as asked:
        page.get_by_label("Order").fill("1042")
        page.keyboard.press("Tab")

    page.get_by_role("button", name="Add one").click()

    expect(page.get_by_label("Sku")).to_be_visible()
    assert asked.value.failure is not None  # given up, since its answer would not know of the new line


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["1440", "390"])
def test_an_agent_that_is_given_a_form_shows_it_and_keeps_what_was_typed(
    browse: Browse, clerk: Clerk, sam: User, complaints: list[str], size: tuple[int, int]
) -> None:
    order = {"type": "integer", "title": "Order", "minimum": 1}
    items = {"type": "array", "title": "Items", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"order": order, "items": items}, "required": ["order"]}
    Agent.objects.create(name="returns", description="Takes things back.", driver="scripted", input_schema=schema)
    page = live(browse(sam, "/runs/new/", *size))
    page.get_by_label("returns").check()
    page.get_by_label("Order").fill("1042")
    page.get_by_role("button", name="Add one").click()
    expect(page.get_by_label("Sku")).to_be_visible()
    expect(page.get_by_label("Order")).to_have_value("1042")
    shot(page, "start")
    assert violations(page) == []
    assert not sideways(page)
    page.get_by_label("Sku").fill("kettle")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator("h1")).to_contain_text("Order 1042")
    assert Run.objects.get().input == '{"items":[{"sku":"kettle"}],"order":1042}'
    assert complaints == []
