"""The customer's page: what customers see and do with their link, and what no other link gives."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import actions, customer_links, customers
from agentapp.models import Conversation, CustomerLink, Run
from approvals.models import Approval, Event
from tests.agentapp.customers_at_work import access_to, customer_rule
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I propose to pay.")


def link_for(conversation: Conversation, user: User, hours: int = 1) -> CustomerLink:
    return customer_links.make(conversation, user, timezone.now() + timedelta(hours=hours), "test")


@pytest.fixture
def link(clerk: Clerk, sam: User) -> CustomerLink:
    return link_for(access_to(clerk).conversation, sam)


@pytest.fixture
def page(link: CustomerLink) -> str:
    return f"/talk/{customer_links.signed(link)}/"


@pytest.fixture
def customer() -> Client:
    return Client(enforce_csrf_checks=False)


def script(clerk: Clerk, *replies: dict[str, Any]) -> None:
    clerk.agent.driver_settings = {"script": list(replies)}
    clerk.agent.save()


def drive(clerk: Clerk) -> Run:
    return clerk.drive(Run.objects.latest("created_at"))


def hidden(html: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', html)
    assert found is not None
    return found[1]


def answer(html: str, do: str) -> dict[str, str]:
    return {"do": do, **{name: hidden(html, name) for name in ("about", "version", "digest", "answer_id")}}


def test_a_customer_talks_without_an_account(clerk: Clerk, page: str, customer: Client) -> None:
    script(clerk, says("It is on its <b>way</b>."))
    empty = customer.get(page)
    assert "Write what you need." in empty.text
    sent = customer.post(page, {"do": "say", "text": "Where is it?", "request_key": "k"})
    assert (sent.status_code, sent.headers["Location"]) == (302, page)
    customer.post(page, {"do": "say", "text": "Where is it?", "request_key": "k"})
    assert Run.objects.count() == 1
    assert "Your message has arrived." in customer.get(page).text
    drive(clerk)
    shown = customer.get(page).text
    assert "It is on its &lt;b&gt;way&lt;/b&gt;." in shown
    assert "Sam" not in shown


def test_the_agent_has_a_name_that_people_read_and_nothing_about_it_is_internal(
    clerk: Clerk, page: str, customer: Client
) -> None:
    clerk.agent.name, clerk.agent.description = "customer-care_desk", "Tries the cheap model first."
    script(clerk, says("It is on its way."))
    customer.post(page, {"do": "say", "text": "Where is it?", "request_key": "k"})
    drive(clerk)
    shown = customer.get(page).text
    assert "<title>Talk with Customer care desk</title>" in shown
    assert "<h1>Customer care desk</h1>" in shown
    assert '<span class="who">Customer care desk</span>' in shown
    for internal in ("customer-care_desk", "cheap model", "scripted", "Be exact."):
        assert internal not in shown


def test_yes_runs_what_the_card_shows(clerk: Clerk, page: str, customer: Client) -> None:
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    customer.post(page, {"do": "say", "text": "Pay me."})
    drive(clerk)
    shown = customer.get(page).text
    approval = Approval.objects.get()
    assert approval.title in shown
    assert "pay-confirmed" not in shown
    assert customer.post(page, answer(shown, "yes")).status_code == 302
    assert drive(clerk).answer == "It is paid."
    [decision] = approval.decisions.all()
    assert (decision.user, decision.customer, decision.via.startswith("link ")) == (None, "Ana", True)
    late = customer.post(page, answer(shown, "no") | {"answer_id": str(uuid.uuid4())})
    assert (late.status_code, "has been answered or taken back already" in late.text) == (409, True)


def test_of_two_questions_each_is_answered_from_a_page_that_is_gone_back_to(
    clerk: Clerk, page: str, customer: Client
) -> None:
    customer_rule()
    script(clerk, calls(call("p", "pay", account="ana", amount=5), call("q", "pay", account="ben", amount=6)))
    customer.post(page, {"do": "say", "text": "Pay us.", "request_key": "k"})
    drive(clerk)
    _, first, second = customer.get(page).text.split("<section")

    assert customer.post(page, answer(first, "yes")).status_code == 302
    assert customer.post(page, answer(second, "no")).status_code == 302
    assert [one.state for one in Approval.objects.order_by("execution__index")] == ["approved", "rejected"]

    otherwise = customer.post(page, answer(first, "no"))
    assert (otherwise.status_code, "has been answered or taken back already" in otherwise.text) == (422, True)
    again = customer.post(page, {"do": "say", "text": "And me.", "request_key": "k"})
    asked, kept = "Send this one again." in again.text, "And me.</textarea>" in again.text
    assert (again.status_code, asked, kept) == (422, True, True)


def test_no_is_no(clerk: Clerk, page: str, customer: Client) -> None:
    customer_rule()
    script(clerk, PAY, says("Then not."))
    customer.post(page, {"do": "say", "text": "Pay me."})
    drive(clerk)
    customer.post(page, answer(customer.get(page).text, "no"))
    assert drive(clerk).answer == "Then not."


@pytest.mark.parametrize(
    "changed", [{"digest": "0"}, {"version": "9"}, {"version": "x"}, {"about": "x"}, {"answer_id": ""}]
)
def test_what_the_page_did_not_show_confirms_nothing(
    clerk: Clerk, page: str, customer: Client, changed: dict[str, str]
) -> None:
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    customer.post(page, {"do": "say", "text": "Pay me."})
    drive(clerk)
    refused = customer.post(page, answer(customer.get(page).text, "yes") | changed)
    assert refused.status_code in (404, 409)
    assert 'role="alert"' in refused.text
    assert Approval.objects.get().state == "pending"


def test_looking_decides_nothing(clerk: Clerk, page: str, customer: Client) -> None:
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    customer.post(page, {"do": "say", "text": "Pay me."})
    drive(clerk)
    customer.get(page, answer(customer.get(page).text, "yes"))
    assert Approval.objects.get().state == "pending"


def test_asking_for_a_person_and_reading_them(clerk: Clerk, page: str, customer: Client, sam: User) -> None:
    assert "First write what it is about" in customer.post(page, {"do": "person"}).text
    script(clerk, says("Hello."))
    customer.post(page, {"do": "say", "text": "Hello?"})
    run = drive(clerk)
    customer.post(page, {"do": "person"})
    assert "A person will answer you here." in customer.get(page).text
    actions.take_over_run(run.pk, sam)
    actions.write_message(run.pk, "I am here.", sam)
    shown = customer.get(page).text
    assert "A person has taken over." in shown
    assert "A person of our team" in shown
    assert "Sam" not in shown


def test_a_key_that_no_database_keeps_is_kept_as_one_that_can_be(clerk: Clerk, page: str, customer: Client) -> None:
    script(clerk, says("Good day."))
    for _ in range(2):
        sent = customer.post(page, {"do": "say", "text": "Hello.", "request_key": "a\x00b"})
        assert sent.status_code == 302
    assert "\x00" not in Run.objects.get().request_key


def test_what_was_typed_is_kept_when_it_is_refused(clerk: Clerk, page: str, customer: Client, settings: Any) -> None:
    settings.CUSTOMER_MESSAGES_PER_MINUTE = 0
    refused = customer.post(page, {"do": "say", "text": "Hello <there>"})
    assert (refused.status_code, "Hello &lt;there&gt;</textarea>" in refused.text) == (429, True)


def test_the_moving_part_comes_alone(clerk: Clerk, page: str, customer: Client) -> None:
    part = customer.get(page, {"part": "moving"}).text
    assert part.lstrip().startswith('<div id="moving"')
    assert "<textarea" not in part


def test_a_link_that_was_taken_back_has_expired_or_was_made_up_shows_nothing(
    clerk: Clerk, page: str, link: CustomerLink, customer: Client, sam: User
) -> None:
    script(clerk, says("Hello."))
    customer.post(page, {"do": "say", "text": "A secret"})
    customer_links.revoke(link, "test")
    gone = [customer.get(page), customer.post(page, {"do": "say", "text": "More"})]
    old = link_for(link.conversation, sam, hours=-1)
    gone.append(customer.get(f"/talk/{customer_links.signed(old)}/"))
    assert [answer.status_code for answer in gone] == [410, 410, 410]
    assert "taken back" in gone[0].text
    assert "no longer valid" in gone[2].text
    unknown = customer.get(f"{page[:-2]}x/")
    assert unknown.status_code == 404
    assert not [answer for answer in (*gone, unknown) if "A secret" in answer.text]
    assert Run.objects.count() == 1


def test_a_link_is_no_good_when_whoever_made_it_may_no_longer_act(page: str, customer: Client, sam: User) -> None:
    sam.is_active = False
    sam.save()
    assert customer.get(page).status_code == 410


def test_the_page_stays_with_whoever_has_its_address(page: str, customer: Client) -> None:
    headers = customer.get(page).headers
    assert headers["Referrer-Policy"] == "same-origin"
    assert "no-store" in headers["Cache-Control"]
    assert headers["X-Robots-Tag"] == "noindex, nofollow"
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_form_of_another_site_says_nothing(page: str) -> None:
    assert Client(enforce_csrf_checks=True).post(page, {"do": "say", "text": "Hello"}).status_code in (302, 403)
    assert not Run.objects.exists()


def test_without_an_asgi_server_there_is_no_stream(page: str, customer: Client) -> None:
    assert customer.get(f"{page}events/").status_code == 503


def asked(clerk: Clerk, page: str) -> None:
    """A payment was requested through the link, and the customer has to confirm it."""
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    Client().post(page, {"do": "say", "text": "Pay me."})
    drive(clerk)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("said", ["yes", "no"])
def test_whoever_made_the_link_answers_nothing_in_the_customers_place(
    clerk: Clerk, page: str, customer: Client, sam: User, said: str
) -> None:
    asked(clerk, page)
    form = answer(customer.get(page).text, said)
    maker = signed_in(sam)
    shown = maker.get(page).text
    assert customers.NOT_THE_CUSTOMER in shown
    assert 'value="yes"' not in shown
    refused = maker.post(page, form)
    assert (refused.status_code, customers.NOT_THE_CUSTOMER in refused.text) == (403, True)
    assert Approval.objects.get().state == "pending"


def test_whoever_asked_for_the_run_answers_nothing_by_a_link_of_others(clerk: Clerk, sam: User, dana: User) -> None:
    customer_rule()
    link = link_for(access_to(clerk).conversation, dana)
    clerk.run(PAY, says("It is paid."), conversation="ticket-7", customer="Ana")
    page = f"/talk/{customer_links.signed(link)}/"
    form = answer(Client().get(page).text, "yes")
    assert [signed_in(user).post(page, form).status_code for user in (sam, dana)] == [403, 403]
    assert Approval.objects.get().state == "pending"


def test_signing_out_makes_nobody_a_customer(clerk: Clerk, page: str, customer: Client, sam: User) -> None:
    asked(clerk, page)
    form = answer(customer.get(page).text, "yes")
    maker = signed_in(sam)
    maker.get(page)
    del maker.cookies["sessionid"]
    opened = maker.cookies["opened_by"]
    assert (opened["path"], opened["httponly"]) == (page, True)
    assert maker.post(page, form).status_code == 403
    # A note made by another link does not count here, nor does one that we have not signed.
    other = Client()
    other.cookies["opened_by"] = "1:made-up"
    assert other.post(page, form).status_code == 302


def test_signing_in_after_opening_it_is_found_out_too(clerk: Clerk, page: str, sam: User) -> None:
    asked(clerk, page)
    one = Client()
    form = answer(one.get(page).text, "yes")
    one.force_login(sam)
    assert one.post(page, form).status_code == 403


def test_the_record_of_a_confirmation_says_who_made_the_link_and_when(
    clerk: Clerk, page: str, link: CustomerLink, customer: Client, sam: User, mia: User
) -> None:
    asked(clerk, page)
    customer.post(page, answer(customer.get(page).text, "yes"))
    link.refresh_from_db()
    decided = Event.objects.get(type="approval.approved")
    assert decided.data["link_made_by"] == f"user:{sam.pk}:{sam.username}"
    assert decided.data["link_made_at"] == link.created_at.isoformat()
    assert "link_opened_by" not in decided.data
    manager = signed_in(mia)
    made = f"by a link that Sam Operator made at {link.created_at:%Y-%m-%d %H:%M} UTC"
    assert made in manager.get(f"/approvals/{Approval.objects.get().pk}/").text
    assert "Link made by" in manager.get(f"/audit/events/{decided.pk}/").text


def test_the_record_names_a_colleague_who_had_opened_it_where_it_was_confirmed(
    clerk: Clerk, page: str, dana: User
) -> None:
    asked(clerk, page)
    colleague = signed_in(dana)
    assert colleague.post(page, answer(colleague.get(page).text, "yes")).status_code == 302
    decided = Event.objects.get(type="approval.approved")
    assert decided.data["link_opened_by"] == [f"user:{dana.pk}:{dana.username}"]
