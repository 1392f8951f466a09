import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import conversations
from agentapp.console.run_views import FIRST_ROWS, STEPS_PER_PAGE
from agentapp.messages import ToolResult
from agentapp.models import Run, Step
from approvals import append_only, ledger
from approvals.models import Event
from tests.agentapp.run_builder import RunBuilder, make_agent, make_tool, proposal, told_run
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true", "HX-Request-Type": "partial"}


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def text(client: Client, run: RunBuilder, query: str = "", **headers: str) -> str:
    response = client.get(f"/runs/{run.id}/{query}", headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def rendered_row(page: str, key: str) -> str:
    return page.split(f'id="row-{key}"')[1].split("</a>")[0]


# --- Who sees it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "?view=events", "cancel/", "1/0/result.json"])
def test_an_outsider_is_not_told_that_a_run_exists(
    client: Client, otto: User, sam: User, dana: User, path: str
) -> None:
    run = told_run(sam, dana)
    client.force_login(otto)
    assert client.get(f"/runs/{run.id}/{path}").status_code == 404
    assert client.post(f"/runs/{run.id}/cancel/").status_code == 404
    # Everything but the form tokens, which are never the same twice.
    here, nowhere = (
        re.sub(r"[A-Za-z0-9]{64}", "", client.get(f"/runs/{key}/{path}").content.decode())
        for key in (run.id, uuid.uuid4())
    )
    assert here == nowhere


def test_the_starter_sees_the_run(client: Client, otto: User, dana: User) -> None:
    run = told_run(otto, dana)
    client.force_login(otto)
    assert "My kettle arrived broken." in text(client, run)


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_the_page_is_only_read(mias: Client, sam: User, method: str) -> None:
    assert getattr(mias, method)(f"/runs/{RunBuilder(sam).id}/").status_code == 405


def test_a_request_is_linked_only_for_those_who_may_open_it(client: Client, sam: User, dana: User, roles: dict) -> None:
    run = RunBuilder(sam)
    (approval,) = run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))), groups=[roles["admin"]])
    client.force_login(dana)
    page = text(client, run)
    assert f"/approvals/{approval.pk}/" not in page
    assert approval.reference in page
    client.force_login(sam)
    assert f"/approvals/{approval.pk}/" in text(client, run)


# --- The timeline --------------------------------------------------------------------------------


def test_the_head_says_what_the_run_took(mias: Client, sam: User, dana: User) -> None:
    page = text(mias, told_run(sam, dana))
    for shown in ("Succeeded", "Sam Operator", "3,600", "70% cached", "$0.06", "Worked", "Waited"):
        assert shown in page


def test_each_row_leads_to_its_own_inspector(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    page = text(mias, run)
    assert 'href="?step=2&amp;call=0"' in rendered_row(page, "2-0")
    assert 'aria-current="true"' in rendered_row(text(mias, run, "?step=2&call=0"), "2-0")


def test_the_part_is_the_piece_of_the_page(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    for query in ("?step=1", "?step=2&call=0", "?view=conversation", "?view=events"):
        response = mias.get(f"/runs/{run.id}/{query}", headers=PART)
        part = response.content.decode()
        assert "<html" not in part
        assert part.strip() in text(mias, run, query)
        assert "HX-Request-Type" in response["Vary"]


def test_bars_are_drawn_without_style_attributes(mias: Client, sam: User, dana: User) -> None:
    page = text(mias, told_run(sam, dana), "?step=2&call=0")
    assert "style=" not in page
    assert 'class="f-model" x="' in page


def test_a_blocked_run_says_what_it_waits_for(mias: Client, sam: User) -> None:
    run = RunBuilder(sam)
    (approval,) = run.ask(
        *run.step("", proposal(make_tool("refund_payment", "irreversible"))), title="Refund $214.50 to Ana Pereira"
    )
    page = text(mias, run)
    assert "Stopped at step 1: Refund $214.50 to Ana Pereira." in page
    assert "Waiting for approval" in page
    assert f'href="/approvals/{approval.pk}/">Review</a>' in page
    assert 'aria-current="true"' in rendered_row(page, "1-0")


def test_a_call_whose_outcome_is_unknown_is_shown_as_a_question(
    client: Client, sam: User, dana: User, marco: User
) -> None:
    run = RunBuilder(sam)
    (call,) = run.step("", proposal(make_tool("refund_payment", "irreversible")))
    run.use(call, run.decide(run.ask(call)[0], dana))
    run.lose(call)
    client.force_login(marco)
    page = text(client, run)
    assert "nobody knows whether refund_payment happened" in page
    assert f'href="/outcomes/{call.pk}/"' in page
    assert "Say what became of it" in page
    client.force_login(sam)
    assert "Say what became of it" not in text(client, run)


def test_a_failed_run_opens_at_its_first_failure_and_says_why(mias: Client, sam: User) -> None:
    run = RunBuilder(sam)
    good, bad = run.step("", proposal(make_tool("get_order"), {"n": 1}), proposal(make_tool("get_order"), {"n": 2}))
    run.answer(good, ToolResult(data=1))
    run.answer(bad, ToolResult(status="fatal_error", reason="tool_failure", message="The shop is closed."))
    run.step("Never mind.")
    run.finish("failed", "error", "The model did not answer.")
    page = text(mias, run)
    assert "The run failed." in page
    assert "The model did not answer." in page
    assert 'aria-current="true"' in rendered_row(page, "1-1")
    assert "the tool failed" in page


def test_a_run_without_a_step_has_a_page(mias: Client, sam: User) -> None:
    for query in ("", "?view=conversation", "?view=events", "?step=0"):
        assert "My kettle arrived broken." in text(mias, RunBuilder(sam), query)


@pytest.mark.parametrize("query", ["?step=9", "?step=1&call=9", "?step=0&call=0", "?step=999999999"])
def test_a_row_that_is_not_there_is_not_found(mias: Client, sam: User, dana: User, query: str) -> None:
    assert mias.get(f"/runs/{told_run(sam, dana).id}/{query}").status_code == 404


@pytest.mark.parametrize("query", ["?step=x", "?step=-1", "?step=\u0663", "?view=admin", "?first=0", "?call=1"])
def test_an_address_that_means_nothing_shows_the_timeline(mias: Client, sam: User, dana: User, query: str) -> None:
    assert 'id="row-1"' in text(mias, told_run(sam, dana), query)


def test_the_page_takes_as_many_queries_for_fifty_steps_as_for_one(mias: Client, sam: User, dana: User) -> None:
    for query in ("?step=1", "?step=1&call=0", "?view=conversation", "?view=events"):
        counts = []
        for steps in (1, 50):
            run = told_run(sam, dana, steps)
            with CaptureQueriesContext(connection) as queries:
                text(mias, run, query)
            counts.append(len(queries))
        assert counts[0] == counts[1]
        assert counts[0] <= 12, (query, [query["sql"] for query in queries])


def test_a_waiting_run_takes_no_more_than_twelve_queries(client: Client, sam: User, dana: User) -> None:
    run = RunBuilder(sam)
    run.ask(*run.step("", *[proposal(make_tool("refund_payment", "irreversible"), {"n": n}) for n in range(5)]))
    client.force_login(dana)
    with CaptureQueriesContext(connection) as queries:
        text(client, run)
    assert len(queries) <= 12


@pytest.mark.parametrize(
    "query",
    [
        "", "?step=1", "?step=1&tab=messages", "?step=2&tab=messages", "?step=2&tab=raw", "?step=2&tab=tools",
        "?step=2&call=0", "?step=2&call=0&tab=raw", "?view=conversation", "?view=costs", "?view=events", "?q=a",
        "?q=a&step=2&tab=messages", "chat/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("decided", [False, True])
def test_every_view_of_a_run_in_a_conversation_takes_no_more_than_twelve_queries(
    clerk: Clerk, client: Client, dana: User, django_assert_max_num_queries: Any, query: str, decided: bool
) -> None:
    clerk.run(says("Hello."), conversation="ticket-7", customer="Ana")
    look, pay = calls(call("l", "look_up", what="kettle")), calls(call("p", "pay", account="ana", amount=5))
    run = clerk.run(look, pay, says("Done."), conversation="ticket-7", customer="Ana")
    if decided:
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
    client.force_login(dana)
    with django_assert_max_num_queries(12):
        assert client.get(f"/runs/{run.pk}/{query}").status_code == 200


def test_only_so_many_steps_are_drawn_at_once(mias: Client, sam: User) -> None:
    run = RunBuilder(sam).claim()
    now = timezone.now()
    Step.objects.bulk_create(
        Step(run_id=run.id, number=number, text=f"Thought {number}.", started_at=now, finished_at=now)
        for number in range(1, STEPS_PER_PAGE + 6)
    )
    Run.objects.filter(pk=run.id).update(step_count=STEPS_PER_PAGE + 5)
    page = text(mias, run, "?step=1")
    assert f'id="row-{FIRST_ROWS - 1}"' in page  # the input is the first row
    assert f'id="row-{FIRST_ROWS}"' not in page
    assert f'href="?first={FIRST_ROWS}"' in page
    assert f'id="row-{STEPS_PER_PAGE + 5}"' in text(mias, run, f"?step={STEPS_PER_PAGE + 3}")
    talk = text(mias, run, "?view=conversation")
    assert f"Thought {STEPS_PER_PAGE}." in talk
    assert f"Thought {STEPS_PER_PAGE + 1}." not in talk


# --- Conversation and events ---------------------------------------------------------------------


def test_the_conversation_shows_what_was_said_before_and_in_this_run(mias: Client, sam: User) -> None:
    agent = make_agent()
    conversation = conversations.find_or_open(agent, "ticket-1", "Ana")
    first = RunBuilder(sam, "Hello?", conversation=conversation)
    conversations.add(conversation, first.run, "user", "Hello?")
    conversations.add(conversation, first.run, "assistant", "How can I help?")
    first.finish(answer="How can I help?")
    second = RunBuilder(sam, "It is broken.", conversation=conversation, customer="Ana")
    conversations.add(conversation, second.run, "user", "It is broken.")
    (call,) = second.step("Let me look.", proposal(make_tool("get_order")))
    second.answer(call, ToolResult(data=1))
    page = text(mias, second, "?view=conversation")
    said = ("Hello?", "How can I help?", 'untrusted pre">It is broken.', "Let me look.", "<code>get_order</code>")
    places = [page.index(words) for words in said]
    assert places == sorted(places)
    assert page.count('untrusted pre">It is broken.') == 1


def test_events_are_listed_in_order_with_their_hashes(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    page = text(mias, run, "?view=events")
    events = Event.objects.filter(chain=ledger.run_chain(run.id)).order_by("seq")
    assert f"Chain intact: {events.count()} events" in page
    assert [event.hash in page for event in events] == [True] * len(events)
    assert "Started run" in page  # in the words of the audit trail
    assert f'Events <span class="n">{events.count()}</span>' in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("column", ["body", "actor"])
def test_an_event_changed_by_hand_is_named(mias: Client, sam: User, dana: User, column: str) -> None:
    run = told_run(sam, dana)
    append_only.remove(connection)
    try:
        Event.objects.filter(chain=ledger.run_chain(run.id), seq=3).update(**{column: "not what it was"})
    finally:
        append_only.install(connection)
    page = text(mias, run, "?view=events")
    assert "The chain is broken at event 3:" in page
    assert 'id="event-4"' in page


# --- Cancel --------------------------------------------------------------------------------------


def test_a_waiting_run_is_cancelled_after_a_question(client: Client, sam: User) -> None:
    run = RunBuilder(sam)
    (approval,) = run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))))
    client.force_login(sam)
    question = client.get(f"/runs/{run.id}/cancel/")
    assert "No call of this run has changed anything so far." in question.content.decode()
    assert run.run.state == Run.State.WAITING
    assert f'href="/runs/{run.id}/cancel/"' in text(client, run)
    answer = client.post(f"/runs/{run.id}/cancel/")
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.id}/")
    assert run.run.state == Run.State.CANCELLED
    approval.refresh_from_db()
    assert approval.state == "withdrawn"
    page = text(client, run)
    assert "A person cancelled the run." in page
    assert "Its calls that had not started will not run." in page
    assert f'href="/runs/{run.id}/cancel/"' not in text(client, run)


def test_the_question_says_what_has_already_run(client: Client, sam: User, dana: User) -> None:
    run = RunBuilder(sam)
    look, refund = make_tool("get_order"), make_tool("refund_payment", "irreversible")
    (read,) = run.step("", proposal(look))
    run.answer(read, ToolResult(data=1))
    (call,) = run.step("", proposal(refund))
    run.use(call, run.decide(run.ask(call)[0], dana))
    run.answer(call, ToolResult(data=1))
    client.force_login(sam)
    page = client.get(f"/runs/{run.id}/cancel/").content.decode()
    assert "Already done, and not taken back:" in page
    assert "refund_payment</a>" in page
    assert "get_order</a>" not in page


def test_a_running_run_stops_before_its_next_call(client: Client, sam: User) -> None:
    run = RunBuilder(sam).claim()
    client.force_login(sam)
    client.post(f"/runs/{run.id}/cancel/")
    assert run.run.state == Run.State.RUNNING
    assert run.run.cancel_requested_at is not None
    assert "Cancelling" in text(client, run)


def test_who_may_not_cancel_is_told_and_nothing_changes(mias: Client, sam: User) -> None:
    run = RunBuilder(sam)
    page = mias.get(f"/runs/{run.id}/cancel/").content.decode()
    assert "You can view this run, not cancel it" in page
    assert '<button class="btn danger"' not in page
    assert mias.post(f"/runs/{run.id}/cancel/").status_code == 403
    assert run.run.state == Run.State.QUEUED


def test_looking_at_the_question_cancels_nothing(client: Client, sam: User) -> None:
    run = RunBuilder(sam)
    client.force_login(sam)
    client.get(f"/runs/{run.id}/cancel/")
    client.head(f"/runs/{run.id}/cancel/")
    assert run.run.state == Run.State.QUEUED
    assert client.put(f"/runs/{run.id}/cancel/").status_code == 405


def test_a_cancel_from_another_site_is_refused(sam: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(sam)
    run = RunBuilder(sam)
    assert strict.post(f"/runs/{run.id}/cancel/").status_code == 403
    assert run.run.state == Run.State.QUEUED


def test_a_decision_that_is_held_is_said_to_be_held(mias: Client, sam: User, dana: User) -> None:
    run = RunBuilder(sam)
    (approval,) = run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))), hold_seconds=30)
    run.decide(approval, dana)
    assert "until then it can be undone" in text(mias, run)
    assert approval.created_at < timezone.now() + timedelta(seconds=1)


# --- The other runs of its conversation ------------------------------------------------------------


def two_turns(sam: User) -> tuple[RunBuilder, RunBuilder]:
    conversation = conversations.find_or_open(make_agent(), "ticket-7", "Ana")
    turns = [RunBuilder(sam, words, conversation=conversation) for words in ("Pay her.", "Thanks.")]
    for turn in turns:
        conversations.add(conversation, turn.run, "user", turn.run.input)
    return turns[0], turns[1]


def test_a_queued_run_says_which_run_it_comes_after(mias: Client, sam: User) -> None:
    first, second = two_turns(sam)
    words = f"Queued after {first.run.reference}."
    assert words in text(mias, second)
    assert "Queued after" not in text(mias, first)
    assert f"After {first.run.reference}" in mias.get("/runs/").content.decode()
    first.finish()
    assert "Queued after" not in text(mias, second)


def test_the_other_runs_of_the_conversation_are_linked_for_those_who_may_see_them(
    client: Client, sam: User, otto: User, mia: User
) -> None:
    first, second = two_turns(sam)
    ottos = RunBuilder(otto, "Me too.", conversation=first.run.conversation)
    client.force_login(mia)
    page = text(client, first)
    assert "ticket-7" in page
    for other in (second, ottos):
        assert f'href="/runs/{other.id}/"' in page
    client.force_login(otto)
    page = text(client, ottos)
    assert f'href="/runs/{first.id}/"' not in page
    assert f'href="/runs/{second.id}/"' not in page


def test_what_was_said_before_a_queued_run_stands_in_the_order_of_turns(mias: Client, sam: User) -> None:
    first, second = two_turns(sam)
    conversations.add(first.run.conversation, first.run, "assistant", "She is paid.")
    page = text(mias, second, "?view=conversation")
    places = [page.index(words) for words in ("Pay her.", "She is paid.", 'untrusted pre">Thanks.')]
    assert places == sorted(places)
    assert 'untrusted pre">Thanks.' not in text(mias, first, "?view=conversation")
