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

from agentapp import actions, customer_links, customers, loop
from agentapp.demo import guided_scenarios as dialogues
from agentapp.demo import opening
from agentapp.demo.guided_scenarios import Dialogue
from agentapp.models import Conversation, Run
from approvals.models import Rule
from tests.e2e.conftest import violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.fixture
def people(transactional_db: None) -> dict[str, User]:
    people = opening.open_shop()
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
        said = self.dialogue.turns[turn]
        new = actions.NewRun(
            "concierge", said.says, "", self.dialogue.customer, self.conversation.key, script=said.script
        )  # fmt: skip
        run = actions.start_run(new, self.sam)
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


def test_a_customer_who_names_no_order_chooses_among_their_own(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.MISSING_NUMBER)
    talk.say()
    choice = talk.page.get_by_role("button", name="58244")
    expect(choice).to_be_visible()
    expect(talk.page.get_by_role("button", name="58213")).to_have_count(0)
    assert violations(talk.page) == []
    choice.click()
    expect(talk.page.locator("li.customer", has_text="58244")).to_be_visible()
    expect(talk.page.get_by_role("button", name="58244")).to_have_count(0)


def test_two_customers_each_choose_among_their_own_orders(browse: Browse, people: dict[str, User]) -> None:
    priya, jon = (Talk(browse, people, each) for each in (dialogues.MISSING_NUMBER, dialogues.SOMEBODY_ELSES_ORDER))
    priya.say()
    run = jon.say()
    expect(priya.page.get_by_role("button", name="58244")).to_be_visible()
    expect(jon.page.get_by_role("button", name="58177")).to_be_visible()
    for page, foreign in ((priya.page, "58177"), (jon.page, "58213"), (jon.page, "58244")):
        expect(page.get_by_role("button", name=foreign)).to_have_count(0)
    assert not run.executions.exists()


def test_a_customer_confirms_the_return_that_a_guideline_asked_for(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.TAKE_BACK)
    run = talk.say()
    expect(talk.page.get_by_text("The shop will take back order")).to_be_visible()
    assert violations(talk.page) == []
    talk.page.get_by_role("button", name="Yes").click()
    drive(run)
    expect(talk.page.get_by_text("The return is open")).to_be_visible()


def test_the_team_reads_why_each_tool_ran(browse: Browse, people: dict[str, User]) -> None:
    talk = Talk(browse, people, dialogues.CREDIT_CASCADE)
    run = talk.say()
    expect(talk.page.get_by_text("You have $25.00 left, Priya.")).to_be_visible()
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
    staff.get_by_role("button", name="Take over").click()
    staff.get_by_role("textbox").last.fill("I look into it, Tomas.")
    staff.get_by_role("button", name="Send").click()
    expect(talk.page.get_by_text("A person of our team")).to_be_visible()
    expect(talk.page.get_by_text("I look into it, Tomas.")).to_be_visible()
    staff.get_by_role("button", name="Hand back").click()
    expect(talk.page.get_by_text("A person has taken over.")).to_have_count(0)
