"""The conversation page: what it shows to whom, and what can be said and done on it."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from agentapp import actions, conversations, runs
from agentapp.models import Agent, Conversation, Draft, Message, Run
from approvals import ledger
from approvals.models import Rule
from tests.conftest import Clerk, call, calls, says

from .test_plain_posts import Forms

LOOK = calls(call("l", "look_up", what="it"), call("m", "look_up", what="that"), text="I look.")
PAY = calls(call("p", "pay", account="ana", amount=5), text="I propose to pay.")


@pytest.fixture
def as_sam(client: Client, sam: User) -> Client:
    client.force_login(sam)
    return client


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page_of(client: Client, run: Run, **query: Any) -> str:
    response = client.get(f"/runs/{run.pk}/chat/", query)
    assert response.status_code == 200
    return response.content.decode()


def say(client: Client, run: Run, text: str, **fields: Any) -> Any:
    version = run.conversation.version if run.conversation else 0
    body = {"text": text, "version": version, "as": "customer", "request_key": str(uuid.uuid4()), **fields}
    return client.post(f"/runs/{run.pk}/chat/", body)


def in_order(page: str, *words: str) -> bool:
    """Whether the words follow each other in the page's view of the conversation."""
    place = page.index("data-talk")
    for word in words:
        place = page.find(word, place)
        if place == -1:
            return False
    return True


def test_what_was_said_and_done_stands_in_its_order_with_a_line_for_each_step(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(LOOK, says("It is <b>here</b>."), input="Where is it?", conversation="ticket-7", customer="Ana")
    page = page_of(as_sam, run)
    assert in_order(page, "Ana", "Where is it?", "2 tools", "look_up", "It is &lt;b&gt;here&lt;/b&gt;.")
    assert f'href="/runs/{run.pk}/?step=1"' in page
    assert page.count('class="did-line"') == 1
    assert "ticket-7" in page


def test_a_run_without_a_conversation_is_a_conversation_of_one(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(LOOK, says("It is here."), input="Where is it?")
    page = page_of(as_sam, run)
    assert in_order(page, "Where is it?", "2 tools", "It is here.", "Starts a conversation with this run")
    assert not Conversation.objects.exists()
    response = say(as_sam, run, "And the other one?")
    second = Run.objects.get(input="And the other one?")
    assert response["Location"] == f"/runs/{second.pk}/chat/#say-text"
    assert second.conversation is not None
    assert second.conversation.key == f"run:{run.reference}"
    assert [m.content for m in second.conversation.messages.all()] == [
        "Where is it?",
        "It is here.",
        "And the other one?",
    ]


def test_a_message_begins_a_run_of_the_same_agent_in_the_same_conversation(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("It is here."), input="Where is it?", conversation="ticket-7", customer="Ana")
    run.conversation.refresh_from_db()
    say(as_sam, run, "Thank you!")
    second = Run.objects.get(input="Thank you!")
    assert (second.agent, second.conversation, second.customer) == (run.agent, run.conversation, "Ana")


def test_a_double_press_says_it_once(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    run.conversation.refresh_from_db()
    key = str(uuid.uuid4())
    first, again = (say(as_sam, run, "Thank you!", request_key=key) for _ in range(2))
    assert first["Location"] == again["Location"]
    assert Run.objects.count() == 2


def test_a_key_may_be_any_text(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    run.conversation.refresh_from_db()
    for key in ("\0", "k" * 5000):
        assert say(as_sam, run, "Thank you!", request_key=key).status_code < 500, key
        for path in ("again", "fork", "replay"):
            assert as_sam.post(f"/runs/{run.pk}/{path}/", {"request_key": key}).status_code < 500, (path, key)


def test_what_was_said_meanwhile_is_shown_as_new_and_the_text_is_kept(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    seen = Conversation.objects.get().version
    clerk.run(says("Ho."), input="I was faster.", conversation="ticket-7")
    response = say(as_sam, run, "Too <late>.", version=seen)
    page = response.content.decode()
    assert response.status_code == 409
    assert "Something was said meanwhile." in page
    assert "Too &lt;late&gt;.</textarea>" in page
    assert page.count("is-new") == 2
    assert f'name="version" value="{seen + 2}"' in page
    assert not Run.objects.filter(input="Too <late>.").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  ", "The input is empty."),
        ("x" * 100_001, "longer than 100000"),
        (f"Write to {'\u2022' * 6}.", "still has a masked part"),
    ],
)
def test_a_message_that_makes_no_sense_is_not_sent(clerk: Clerk, as_sam: Client, text: str, words: str) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    run.conversation.refresh_from_db()
    response = say(as_sam, run, text)
    assert response.status_code == 422
    assert words in response.content.decode()


def test_a_request_stands_in_its_place_and_whoever_may_decide_can(clerk: Clerk, dana: User) -> None:
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    [approval] = clerk.open(run)
    page = page_of(signed_in(dana), run)
    assert in_order(page, "Pay $5.00 to Ana", f'action="/approvals/{approval.pk}/decide/"', "Approve", "Reject")
    posted = {
        "decision_id": str(uuid.uuid4()), "version": approval.version, "action_digest": approval.action_digest,
        "type": "approve", "next": "chat",
    }  # fmt: skip
    first = signed_in(dana).post(f"/approvals/{approval.pk}/decide/", posted).content.decode()
    assert approval.risk == "high"
    assert f'<a class="btn" href="/runs/{run.pk}/chat/">Back</a>' in first
    response = signed_in(dana).post(f"/approvals/{approval.pk}/decide/", posted | {"type": "confirm"})
    assert response["Location"] == f"/runs/{run.pk}/chat/"
    assert clerk.drive(run).state == "succeeded"
    assert in_order(page_of(signed_in(dana), run), "1 tool", "Paid.")


def test_a_decision_taken_back_in_the_conversation_leads_back_there(clerk: Clerk, dana: User) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", hold_seconds=60)
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    client = signed_in(dana)
    undo = next(form for form in Forms(page_of(client, run)).forms.values() if form.action.endswith("/undo/"))
    assert client.post(undo.action, undo.fields)["Location"] == f"/runs/{run.pk}/chat/"
    assert f'action="/approvals/{approval.pk}/decide/"' in page_of(client, run)


def test_others_read_whom_it_waits_for(clerk: Clerk, as_sam: Client, roles: Any, mia: User) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask").groups.add(roles["approver"])
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    page = page_of(as_sam, run)
    assert "Waiting for approver" in page
    assert 'value="approve"' not in page


def test_a_critical_call_is_decided_on_its_own_page(clerk: Clerk, dana: User) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="critical")
    run = clerk.run(PAY, conversation="ticket-7")
    page = page_of(signed_in(dana), run)
    assert 'value="approve"' not in page
    assert f'href="/approvals/{clerk.open(run)[0].pk}/"' in page


def test_taken_over_the_person_writes_and_the_others_are_told_who(clerk: Clerk, as_sam: Client, dana: User) -> None:
    run = clerk.run(PAY, says("Paid."), input="Pay me.", conversation="ticket-7")
    danas = signed_in(dana)
    assert "Take over" in page_of(danas, run)
    assert danas.post(f"/runs/{run.pk}/take-over/")["Location"] == f"/runs/{run.pk}/chat/"
    page = page_of(danas, run)
    assert in_order(page, "You have taken over.", "Hand back", 'name="as" value="agent"')
    assert "Dana Whitfield has taken over." in page_of(as_sam, run)
    run.conversation.refresh_from_db()
    assert say(danas, run, "I look into it.", **{"as": "agent"}).status_code == 302
    message = Message.objects.get(content="I look into it.")
    assert (message.author, message.role) == (dana, "assistant")
    assert in_order(page_of(as_sam, run), "Pay me.", "Dana Whitfield", "I look into it.")


def test_who_cannot_hand_back_what_a_manager_paused_is_offered_no_button_and_told_why(
    clerk: Clerk, dana: User, mia: User
) -> None:
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    danas, url = signed_in(dana), f"/runs/{run.pk}/hand-back/"
    danas.post(f"/runs/{run.pk}/take-over/")
    pages = (f"/runs/{run.pk}/chat/", f"/runs/{run.pk}/")
    assert all(url in danas.get(page).content.decode() for page in pages)
    actions.pause_run(run.pk, mia)

    for page in pages:
        html = danas.get(page).content.decode()
        assert url not in html, page
        assert "Mia Manager has paused this run. Resuming it needs the right" in html, page
        assert url in signed_in(mia).get(page).content.decode(), page
    assert "has paused this run." in danas.post(url, follow=True).content.decode()


def test_nor_where_a_run_is_paused_that_it_asked_for(clerk: Clerk, dana: User, mia: User) -> None:
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    child = clerk.start(says("Looked."))
    Run.objects.filter(pk=child.pk).update(parent=run, depth=1)
    danas = signed_in(dana)
    danas.post(f"/runs/{run.pk}/take-over/")
    actions.pause_run(child.pk, mia)

    for page in (f"/runs/{run.pk}/chat/", f"/runs/{run.pk}/"):
        html = danas.get(page).content.decode()
        assert f"/runs/{run.pk}/hand-back/" not in html, page
        assert "Mia Manager has paused a run that it asked for." in html, page


def test_what_is_written_in_the_agents_place_after_it_was_handed_back_is_not_sent(
    clerk: Clerk, dana: User, mia: User
) -> None:
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    danas = signed_in(dana)
    danas.post(f"/runs/{run.pk}/take-over/")
    signed_in(mia).post(f"/runs/{run.pk}/hand-back/")
    response = say(danas, run, "Mine.", **{"as": "agent"}, version=1)
    assert response.status_code == 409
    assert "Nothing was sent." in response.content.decode()
    assert "Mine.</textarea>" in response.content.decode()


def test_who_comes_second_is_told_who_was_first(clerk: Clerk, dana: User, marco: User) -> None:
    run = clerk.run(PAY, says("Paid."), conversation="ticket-7")
    signed_in(dana).post(f"/runs/{run.pk}/take-over/")
    page = signed_in(marco).post(f"/runs/{run.pk}/take-over/", follow=True).content.decode()
    assert "Dana Whitfield has already taken over." in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "waiting", "waiting_for": "budget"}, "Over budget."),
        ({"state": "waiting", "waiting_for": "outcome"}, "Nobody knows whether a call happened."),
        ({"state": "waiting", "waiting_for": "subagent"}, "Another agent is working on it."),
        ({"state": "queued", "model_failures": 2}, "The model is not answering."),
        ({"state": "queued"}, "Queued."),
        ({"state": "paused"}, "Paused."),
    ],
)
def test_the_page_says_what_the_agent_waits_for(clerk: Clerk, as_sam: Client, change: Any, words: str) -> None:
    run = clerk.start(says("Hi."), conversation="ticket-7")
    Run.objects.filter(pk=run.pk).update(**change)
    assert words in page_of(as_sam, run)


def test_messages_that_wait_for_their_turn_are_counted(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(PAY, conversation="ticket-7")
    for text in ("One more.", "And another."):
        clerk.start(says("Hi."), input=text, conversation="ticket-7")
    assert "2 messages queued" in page_of(as_sam, run)


def test_a_run_that_ended_without_an_answer_says_so_where_its_answer_would_stand(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(PAY, input="Pay me.", conversation="ticket-7")
    page = as_sam.post(f"/runs/{run.pk}/chat/stop/", follow=True).content.decode()
    assert in_order(page, "Pay me.", "1 tool", "A person cancelled the run.")
    assert "Stopped." in page


def test_what_the_model_is_writing_is_shown_and_goes(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.start(says("Hi."), conversation="ticket-7")
    assert runs.claim(run.pk) is not None
    Draft.objects.create(run=run, step=1, text="On its <way>", updated_at=timezone.now())
    assert "On its &lt;way&gt;" in page_of(as_sam, run)
    part = as_sam.get(f"/runs/{run.pk}/chat/draft/").content.decode()
    assert "On its &lt;way&gt;" in part
    assert "<html" not in part
    Draft.objects.all().delete()
    assert "hidden" in as_sam.get(f"/runs/{run.pk}/chat/draft/").content.decode()


def test_earlier_messages_are_read_page_by_page(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("Answer."), conversation="ticket-7")
    conversation = run.conversation
    with ledger.transaction():
        for number in range(60):
            conversations.add(conversation, run, "user", f"Message number {number}.")
    page = page_of(as_sam, run)
    assert "Message number 59." in page
    assert "Message number 19." not in page
    earlier = page_of(as_sam, run, before=page.split('href="?before=')[1].split('"')[0])
    assert in_order(earlier, "Message number 2.", "Message number 19.", "To the latest")
    assert "Message number 20." not in earlier


def test_what_a_form_gave_is_shown_part_by_part(clerk: Clerk, as_sam: Client) -> None:
    schema = {"type": "object", "properties": {"order": {"type": "string", "title": "Order number"}}}
    Agent.objects.update(input_schema=schema)
    run = clerk.run(says("Hi."), input='{"order":"<A-1>"}', conversation="ticket-7")
    assert in_order(page_of(as_sam, run), "Order number", "&lt;A-1&gt;")


def test_nobody_sees_or_says_what_they_may_not(clerk: Clerk, otto: User, mia: User) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    for path in ("", "draft/"):
        assert signed_in(otto).get(f"/runs/{run.pk}/chat/{path}").status_code == 404
    for path in ("chat/", "chat/stop/", "take-over/", "hand-back/"):
        assert signed_in(otto).post(f"/runs/{run.pk}/{path}", {"text": "Hi"}).status_code == 404
        assert Client().post(f"/runs/{run.pk}/{path}")["Location"].startswith("/login/")
    page = page_of(signed_in(mia), run)
    assert "You can read this, not write in it" in page
    assert "<textarea" not in page
    assert say(signed_in(mia), run, "Hi.").status_code == 403


def test_no_get_does_anything(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(PAY, conversation="ticket-7")
    for path in ("chat/stop/", "take-over/", "hand-back/"):
        assert as_sam.get(f"/runs/{run.pk}/{path}").status_code == 405


def test_the_run_of_another_agents_question_leads_to_the_conversation_it_belongs_to(
    clerk: Clerk, as_sam: Client
) -> None:
    run = clerk.run(PAY, conversation="ticket-7")
    child = clerk.run(says("Hi."))
    Run.objects.filter(pk=child.pk).update(parent=run)
    page = page_of(as_sam, child)
    assert f'href="/runs/{run.pk}/chat/"' in page
    assert say(as_sam, child, "Hello?").status_code == 409


def test_a_switched_off_agent_is_asked_nothing(clerk: Clerk, as_sam: Client) -> None:
    run = clerk.run(says("Hi."), conversation="ticket-7")
    Agent.objects.update(enabled=False)
    assert "is switched off" in page_of(as_sam, run)


def test_the_page_takes_few_queries_however_long_the_conversation(
    clerk: Clerk, dana: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    danas = signed_in(dana)
    for number in range(4):
        run = clerk.run(LOOK, LOOK, says("Done."), input=f"Question {number}", conversation="ticket-7")
    with django_assert_max_num_queries(12):
        page_of(danas, run)
    run = clerk.run(PAY, conversation="ticket-7")
    actions.pause_run(run.pk, clerk.starter)
    with django_assert_max_num_queries(12):
        page_of(danas, run)
