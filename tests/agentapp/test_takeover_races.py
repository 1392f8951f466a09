"""Taking over meets what happens at the same moment: another person, the worker, an agent below."""

import threading
import uuid

import pytest
from django.test import Client
from django.urls import reverse

from agentapp import actions, conversations, loop, starting
from agentapp.actions import NewRun, Refused
from agentapp.models import Conversation, Message, Run
from approvals import ledger
from approvals.models import Approval
from tests.conftest import call, calls, says
from tests.races import race, tries
from tests.teams import Team, child_of

TIMES = max(3, tries() // 5)
PAY = calls(call("p", "pay", account="ana", amount=5))


def settle(run: Run) -> Run:
    """Drive what is due until nothing is."""
    while loop.drive(run.pk) is not None:
        pass
    run.refresh_from_db()
    return run


def test_of_two_people_one_takes_over(clerk, dana, marco):
    for _ in range(TIMES):
        run = clerk.run(PAY, says("done"), conversation=uuid.uuid4().hex)
        first, second = race(lambda: actions.take_over_run(run.pk, dana), lambda: actions.take_over_run(run.pk, marco))
        won, lost = (first, second) if isinstance(first, Run) else (second, first)
        assert isinstance(lost, Refused)
        assert (lost.code, won.state) == ("taken_over", "paused")
        assert won.taken_over_by.get_full_name() in lost.message
        assert ledger.verify(ledger.run_chain(run.pk))[1] is None
        assert ledger.verify(f"conversation:{won.conversation_id}")[1] is None


def test_taking_over_while_the_worker_ends_the_run_leaves_either_and_the_person_speaks(clerk, sam):
    for _ in range(TIMES):
        run = clerk.start(calls(call("l", "look_up", what="it")), says("done"), conversation=uuid.uuid4().hex)
        race(lambda: loop.drive(run.pk), lambda: actions.take_over_run(run.pk, sam))
        run.refresh_from_db()
        assert run.state in ("paused", "succeeded")
        assert (run.taken_over_by, run.conversation.mode) == (sam, "manual")
        assert loop.drive(run.pk) is None
        actions.hand_back_run(run.pk, sam)
        assert settle(run).state == "succeeded"
        assert Message.objects.filter(run=run, content="done").count() == 1


def test_handing_back_while_the_worker_puts_the_run_aside_never_leaves_it_there(clerk, sam):
    for _ in range(TIMES):
        run = clerk.start(calls(call("l", "look_up", what="it")), says("done"), conversation=uuid.uuid4().hex)

        def take_and_hand_back(run: Run = run) -> None:
            actions.take_over_run(run.pk, sam)
            actions.hand_back_run(run.pk, sam)

        results = race(lambda run=run: loop.drive(run.pk), take_and_hand_back)
        assert not [result for result in results if isinstance(result, Exception)]
        run.refresh_from_db()
        assert run.state in ("queued", "succeeded")
        assert settle(run).state == "succeeded"


def test_a_message_that_comes_while_a_person_takes_over_is_kept_or_waits_its_turn(clerk, sam):
    for _ in range(TIMES):
        key = uuid.uuid4().hex
        run = clerk.run(PAY, says("done"), conversation=key)
        new = NewRun("clerk", "Hello?", conversation=key, script=[says("Hi.")])
        race(lambda: actions.take_over_run(run.pk, sam), lambda new=new: actions.start_run(new, sam))
        conversation = Conversation.objects.get(key=key)
        assert conversation.messages.filter(content="Hello?").count() == 1
        behind = conversation.runs.exclude(pk=run.pk).first()
        assert behind is None or loop.drive(behind.pk) is None


def test_an_approval_and_a_take_over_by_one_person_never_let_the_call_run(clerk, dana):
    for _ in range(TIMES):
        run = clerk.run(PAY, says("done"), conversation=uuid.uuid4().hex)
        [approval] = clerk.open(run)
        race(lambda: clerk.decide(approval, dana), lambda: actions.take_over_run(run.pk, dana))
        if Run.objects.get(pk=run.pk).taken_over_by_id is None:
            continue  # decided first: nothing was left that dana is asked about
        actions.hand_back_run(run.pk, dana)
        settle(run)
        assert clerk.execution(run, "p").started_at is None


def test_the_agents_below_are_put_aside_as_well_and_go_on_when_it_is_handed_back(clerk, dana, marco, sam):
    team = Team(clerk)
    team.may_ask("payer", PAY, says("Paid."))
    run = team.run(calls(call("a", "ask_payer", input="Pay.")), says("done"), conversation="ticket-7")
    child = child_of(run)
    assert (run.state, child.state) == ("waiting", "waiting")
    actions.take_over_run(run.pk, sam)
    child.refresh_from_db()
    assert (child.state, child.taken_over_by, child.takers) == ("paused", sam, [sam.pk])
    assert Approval.objects.get(run_id=child.pk).excluded == [sam.pk]
    with pytest.raises(Refused) as caught:
        actions.take_over_run(child.pk, dana)
    assert caught.value.code == "part_of_a_run"
    actions.hand_back_run(run.pk, sam)
    child.refresh_from_db()
    assert (child.state, child.taken_over_by) == ("queued", None)
    clerk.decide(Approval.objects.get(run_id=child.pk), marco)
    settle(child)
    assert settle(run).state == "succeeded"


def test_what_an_agent_below_does_is_handed_back_with_the_run_that_asked_and_nobody_is_written_to_from_it(clerk, sam):
    team = Team(clerk)
    team.may_ask("payer", PAY, says("Paid."))
    run = team.run(calls(call("a", "ask_payer", input="Pay.")), says("done"), conversation="ticket-7")
    child = child_of(run)
    actions.take_over_run(run.pk, sam)
    for attempt in (actions.hand_back_run, lambda pk, user: actions.write_message(pk, "Hello", user)):
        with pytest.raises(Refused) as caught:
            attempt(child.pk, sam)
        assert caught.value.code == "part_of_a_run"
    client = Client()
    client.force_login(sam)
    for name in ("run", "run_chat"):
        page = client.get(reverse(name, args=[child.pk])).content.decode()
        assert reverse("run_hand_back", args=[child.pk]) not in page
        assert 'name="text"' not in page
    assert reverse("run_hand_back", args=[run.pk]) in client.get(reverse("run", args=[run.pk])).content.decode()
    assert client.post(reverse("run_hand_back", args=[child.pk])).status_code < 500


@pytest.mark.postgresql
def test_a_person_and_their_customer_who_write_at_the_same_moment_do_not_lock_each_other_out(clerk, sam, monkeypatch):
    run = clerk.run(PAY, says("done"), conversation="ticket-7")
    actions.take_over_run(run.pk, sam)
    holds_run, holds_conversation, write = threading.Event(), threading.Event(), conversations.write

    def person_or_customer(message, *arguments):
        if message.author is None:
            conversations.lock(message.conversation)
            holds_conversation.set()
            assert holds_run.wait(20)
        else:
            holds_run.set()
            assert holds_conversation.wait(20)
        return write(message, *arguments)

    monkeypatch.setattr(conversations, "write", person_or_customer)
    new = NewRun("clerk", "Are you there?", conversation="ticket-7")
    results = race(lambda: actions.write_message(run.pk, "I am.", sam), lambda: actions.start_run(new, clerk.starter))
    assert not [result for result in results if isinstance(result, Exception)]
    said = run.conversation.messages.filter(seq__gt=1).values_list("content", flat=True)
    assert list(said) == ["Are you there?", "I am."]


@pytest.mark.parametrize("first", ["was_kept", "began_a_run", "is_what_was_said_since"])
def test_a_message_sent_twice_at_once_with_one_key_is_one_message(clerk, sam, monkeypatch, first):
    """The second looked for the key before the first was there, and comes after a hand-over."""
    run = clerk.run(PAY, says("done"), conversation="ticket-1")
    talk = Conversation.objects.get(key="ticket-1")
    expected = talk.version if first == "is_what_was_said_since" else None
    new = NewRun(
        "clerk", "Hello?", conversation="ticket-1", script=[says("Hi.")], request_key="k-1",
        conversation_version=expected,
    )  # fmt: skip
    if first == "was_kept":
        actions.take_over_run(run.pk, sam)
    sent, real = [], starting._check_new_run

    def meanwhile(*args):
        monkeypatch.setattr(starting, "_check_new_run", real)
        sent.append(actions.start_run_once(new, sam))
        if first == "was_kept":
            actions.hand_back_run(run.pk, sam)
        elif first == "began_a_run":
            actions.take_over_run(run.pk, sam)
        return real(*args)

    monkeypatch.setattr(starting, "_check_new_run", meanwhile)
    again = actions.start_run_once(new, sam)
    assert (again.run, again.kept, again.repeated) == (sent[0].run, first == "was_kept", True)
    assert talk.messages.filter(content="Hello?").count() == 1
    assert Run.objects.filter(request_key="k-1").count() == (0 if first == "was_kept" else 1)
