"""The demo's concierge in a real browser: what its customers see, and what the team sees of it."""

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import customer_links, customers, loop
from agentapp.demo import guided_scenarios as dialogues
from agentapp.demo.guided_scenarios import Dialogue
from agentapp.demo.models import Ticket
from agentapp.models import Conversation, Run
from approvals.models import Rule
from tests import opened
from tests.e2e.looks import violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.fixture
def people(transactional_db: None) -> dict[str, User]:
    people = opened.open_shop()
    Rule.objects.update(hold_seconds=0)
    return people


class Talk:
    """A dialogue whose customer has the page open."""

    def __init__(self, browse: Browse, people: dict[str, User], dialogue: Dialogue) -> None:
        self.dialogue, self.sam = dialogue, people["sam"]
        key = uuid.uuid4().hex[:8]
        opened, _ = customers.open_conversation("concierge", key, dialogue.customer, self.sam, "test")
        self.conversation: Conversation = opened
        until = timezone.now() + timedelta(hours=1)
        link = customer_links.make(opened, self.sam, until, "test")
        self.page = browse(None, f"/talk/{customer_links.signed(link)}/", width=390, height=844)

    def say(self, turn: int = 0) -> Run:
        """The customer says a turn of the dialogue, and gets an answer or a question."""
        self.write(self.dialogue.turns[turn].says)
        return self.answer(turn)

    def write(self, text: str) -> None:
        self.page.get_by_label("Your message").fill(text)
        self.page.get_by_role("button", name="Send").click()
        expect(self.page.locator("li.customer").last).to_contain_text(text)

    def answer(self, turn: int = 0) -> Run:
        """Drive the run that the page started. A page names no script, so this adds what its model would say."""
        run = Run.objects.get(conversation=self.conversation, state=Run.State.QUEUED)
        run.script = self.dialogue.turns[turn].script
        run.save(update_fields=["script"])
        drive(run)
        return run


def drive(run: Run) -> None:
    def work() -> None:
        try:
            loop.drive(run.pk)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


def called(run: Run) -> list[tuple[str, str]]:
    return [(each.name, each.result_status) for each in run.executions.order_by("step__number", "index")]


def test_a_customer_who_names_no_order_is_asked_for_it_and_answered_once_they_have(
    browse: Browse, people: dict[str, User]
) -> None:
    talk = Talk(browse, people, dialogues.MISSING_NUMBER)
    asking = talk.say()
    expect(talk.page.get_by_text("Which order do you mean: 58244 or 58102?")).to_be_visible()
    expect(talk.page.locator(".customer-needed").get_by_role("button")).to_have_text(["58244", "58102"])
    assert called(asking) == []
    inspected = browse(people["mia"], f"/runs/{asking.pk}/?step=1").locator("#inspector")
    expect(inspected.get_by_text("Missing: order number.")).to_be_visible()
    staff = browse(people["dana"], f"/runs/{asking.pk}/chat/")
    expect(staff.locator("[data-said=agent]")).to_have_count(1)
    expect(staff.locator(".did-line", has_text="follow_order")).to_have_count(0)

    told = talk.say(1)
    expect(talk.page.locator("li.agent").last).to_contain_text("Order 58244 was placed today")
    expect(talk.page.locator(".customer-needed")).to_have_count(0)
    assert called(told) == [("follow_order", "ok")]
    assert violations(talk.page) == []
    expect(staff.locator("[data-said=customer]").last).to_contain_text("58244, the tea.")
    expect(staff.locator(".did-line", has_text="follow_order")).to_be_visible()
    expect(staff.locator("[data-said=agent]").last).to_contain_text("Order 58244 was placed today")
    staff.locator(".did-line", has_text="follow_order").click()
    expect(staff.locator("#inspector").get_by_text("Needs to run")).to_be_visible()


def test_a_customer_who_names_no_order_chooses_among_their_own(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.MISSING_NUMBER)
    talk.say()
    choice = talk.page.get_by_role("button", name="58244")
    expect(choice).to_be_visible()
    expect(talk.page.get_by_role("button", name="58213")).to_have_count(0)
    assert violations(talk.page) == []
    choice.click()
    expect(talk.page.locator("li.customer").last).to_contain_text("58244")
    expect(talk.page.get_by_role("button", name="58244")).to_have_count(0)
    told = talk.answer(1)
    expect(talk.page.locator("li.agent").last).to_contain_text("Order 58244 was placed today")
    assert called(told) == [("follow_order", "ok")]


def test_two_customers_each_choose_among_their_own_orders(browse: Browse, people: dict[str, User]) -> None:
    priya, jon = (Talk(browse, people, each) for each in (dialogues.MISSING_NUMBER, dialogues.SOMEBODY_ELSES_ORDER))
    priya.say()
    run = jon.say()
    expect(priya.page.get_by_role("button", name="58244")).to_be_visible()
    expect(jon.page.get_by_text("I find no order 58213 of yours, Jon.")).to_be_visible()
    expect(jon.page.get_by_role("button", name="58177")).to_be_visible()
    for page, foreign in ((priya.page, "58177"), (jon.page, "58213"), (jon.page, "58244")):
        expect(page.get_by_role("button", name=foreign)).to_have_count(0)
    assert called(run) == []
    inspected = browse(people["mia"], f"/runs/{run.pk}/?step=1").locator("#inspector")
    expect(inspected.get_by_text("Cannot be used: order number.")).to_be_visible()


def test_a_customer_confirms_the_return_that_a_guideline_asked_for(browse: Browse, people: dict[str, User]) -> None:
    returns = Ticket.objects.filter(subject="Return of order 58213")
    talk = Talk(browse, people, dialogues.TAKE_BACK)
    run = talk.say()
    expect(talk.page.get_by_text("The shop will take back order")).to_be_visible()
    assert violations(talk.page) == []
    staff = browse(people["dana"], f"/runs/{run.pk}/chat/")
    expect(staff.get_by_text("The shop will take back order")).to_be_visible()
    assert not returns.exists()
    talk.page.get_by_role("button", name="Yes").click()
    expect(talk.page.get_by_text("The shop will take back order")).to_have_count(0)
    drive(run)
    expect(talk.page.get_by_text("The return is open")).to_be_visible()
    expect(staff.locator("[data-said=agent]")).to_contain_text("The return is open")
    expect(staff.locator(".chat-head .badge")).to_have_text("Succeeded")
    assert returns.count() == 1


def test_the_team_reads_why_each_tool_ran(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.CREDIT_CASCADE)
    run = talk.say()
    expect(talk.page.get_by_text("You have $25.00 left, Priya.")).to_be_visible()
    assert called(run) == [("get_store_credit", "ok"), ("recommend_products", "ok")]
    page = browse(people["mia"], f"/runs/{run.pk}/?step=2")
    inspector = page.locator("#inspector")
    expect(inspector.get_by_text("credit-to-spend").first).to_be_visible()
    expect(inspector.get_by_text("There are $25.00 left.")).to_be_visible()
    expect(inspector.get_by_text("recommend_products").first).to_be_visible()
    assert violations(page) == []


def test_a_customer_who_wants_a_person_gets_one(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.TAKE_OVER)
    run = talk.say()
    expect(talk.page.get_by_text("A person will answer you here.")).to_be_visible()
    staff = browse(people["dana"], f"/runs/{run.pk}/chat/")
    talk.write("Is anybody there?")
    expect(staff.get_by_text("Is anybody there?")).to_be_visible()
    assert Run.objects.get() == run
    staff.get_by_role("button", name="Take over").click()
    expect(talk.page.get_by_text("A person has taken over.")).to_be_visible()
    staff.get_by_role("textbox").last.fill("I am, Tomas. Let me look into it.")
    staff.get_by_role("button", name="Send").click()
    expect(talk.page.locator("li.person")).to_contain_text("I am, Tomas. Let me look into it.")
    staff.get_by_role("button", name="Hand back").click()
    expect(talk.page.get_by_text("A person has taken over.")).to_have_count(0)
    talk.write("Thank you!")
    expect(talk.page.get_by_text("Your message has arrived.")).to_be_visible()
    expect(staff.get_by_text("Queued.")).to_be_visible()
