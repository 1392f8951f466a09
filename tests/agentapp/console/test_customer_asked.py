"""What staff see of what customers are asked and ask for: on the run, in the lists, and not in the inbox."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import customers
from agentapp.models import Run
from tests.agentapp.customers_at_work import access_to, confirm, customer_rule
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I propose to pay.")


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def asked(clerk: Clerk) -> Run:
    """A run that waits for its customer."""
    access_to(clerk)
    customer_rule()
    return clerk.run(PAY, says("It is paid."), conversation="ticket-7", customer="Ana")


def test_the_run_says_that_it_waits_for_the_customer_and_offers_to_cancel(asked: Run, sam: User) -> None:
    page = as_(sam).get(f"/runs/{asked.pk}/").text
    assert "Waiting for the customer at step 1" in page
    assert "Waiting for approval" not in page
    assert f"/runs/{asked.pk}/cancel/" in page
    assert "The customer: pay" in as_(sam).get("/runs/").text


def test_it_is_in_nobodys_inbox_and_counted_by_none(asked: Run, dana: User, clerk: Clerk) -> None:
    title = clerk.open(asked)[0].title
    client = as_(dana)
    assert title not in client.get("/inbox/").text
    assert client.get("/counts/").json()["waiting"] == 0


def test_its_page_offers_no_decision(asked: Run, dana: User, clerk: Clerk) -> None:
    page = as_(dana).get(f"/approvals/{clerk.open(asked)[0].pk}/").text
    assert "The customer answers this in their conversation" in page
    assert 'value="approve"' not in page


def test_the_conversation_shows_it_and_offers_no_decision(asked: Run, dana: User) -> None:
    page = as_(dana).get(f"/runs/{asked.pk}/chat/").text
    assert "Waiting for the customer." in page
    assert 'value="approve"' not in page


def test_the_record_names_the_customer(asked: Run, dana: User, clerk: Clerk) -> None:
    [approval] = clerk.open(asked)
    confirm(access_to(clerk), approval)
    clerk.drive(asked)
    client = as_(dana)
    assert "The customer" in client.get(f"/runs/{asked.pk}/?step=1&call=0").text
    assert "The customer approved" in client.get(f"/approvals/{approval.pk}/").text
    assert client.get("/inbox/?view=decided").status_code == 200


def test_who_may_take_over_finds_where_a_person_is_wanted(clerk: Clerk, sam: User) -> None:
    access = access_to(clerk)
    clerk.run(says("First."), conversation="ticket-7", customer="Ana")
    last = clerk.run(says("Second."), conversation="ticket-7", customer="Ana")
    other = clerk.run(says("Other."), conversation="ticket-8")
    client = as_(sam)
    assert "Person wanted" not in client.get("/runs/").text
    customers.ask_for_person(access)
    listed = client.get("/runs/?wanted=1").text
    assert (f"run-{last.pk}" in listed, f"run-{other.pk}" in listed, listed.count('<tr id="run-')) == (True, False, 1)
    assert "Person wanted" in listed
    page = client.get(f"/runs/{last.pk}/chat/").text
    assert "The customer asks for a person." in page
    assert f"/runs/{last.pk}/take-over/" in page
