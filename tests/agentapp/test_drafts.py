"""What people see of a reply while a model writes it, and that nothing depends on it."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.utils import timezone

from agentapp import actions, customer_view, drafts, loop, runs
from agentapp.models import Conversation, Draft, Run, Tool
from tests.agentapp.test_live import commit, cookie_of, listening, play, settled
from tests.conftest import says
from tests.wire import DIALECTS, Answer, ProviderServer

pytestmark = pytest.mark.django_db(transaction=True)
OPENAI = DIALECTS["openai"]


@pytest.fixture
def chatty(clerk, provider: ProviderServer):
    """The clerk with a model that streams."""
    clerk.agent.driver, clerk.agent.model = "tool_calling", OPENAI.model
    clerk.agent.save()
    return clerk


def start(clerk, **more: Any) -> Run:
    return actions.start_run(actions.NewRun("clerk", "Tell me.", **more), clerk.starter)


@pytest.fixture
def seen(monkeypatch) -> list[tuple[str, int]]:
    """What was written as a draft, with its step."""
    noted: list[tuple[str, int]] = []
    real = drafts.write

    def write(run: Run, token: Any, step: int, text: str) -> bool:
        done = real(run, token, step, text)
        noted.append((text, step))
        return done

    monkeypatch.setattr(drafts, "write", write)
    return noted


class Gate(threading.Event):
    """Opens once somebody has looked at the draft."""

    def __init__(self, look: Callable[[], Any]) -> None:
        super().__init__()
        self.look, self.found = look, None

    def wait(self, timeout: float | None = None) -> bool:
        waited = 0.0
        try:
            while waited < 20 and not (found := self.look()):
                super().wait(0.05)
                waited += 0.05
            self.found = found
        finally:
            connections.close_all()
        return True


def a_draft() -> str | None:
    return Draft.objects.values_list("text", flat=True).first()


def test_people_see_the_beginning_and_it_goes_when_the_step_is_stored(chatty, provider: ProviderServer) -> None:
    gate = Gate(a_draft)
    provider.answer(Answer(events=OPENAI.stream("On its ", gate, "way.")))
    run = start(chatty)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (gate.found, run.state, run.answer) == ("On its ", "succeeded", "On its way.")
    assert not Draft.objects.exists()
    step = run.steps.get()
    assert 0 < step.first_token_seconds < (step.finished_at - step.started_at).total_seconds()


@pytest.mark.parametrize(
    ("rest", "shown"),
    [("7X ends ", "Your key is •••••• ends "), ("", "Your key is "), ("-and-a-word", "Your key is ")],
)
def test_a_secret_in_a_beginning_is_masked_as_in_the_message_and_never_shown_in_parts(
    chatty, provider: ProviderServer, rest: str, shown: str
) -> None:
    chatty.agent.tools.clear()
    gate = Gate(lambda: customer_view.of(Conversation.objects.get(key="chat")).draft)
    provider.answer(Answer(events=OPENAI.stream(f"Your key is sk-proj-4f9a8b7c6d5e4f3a2b1c{rest}", gate, " here.")))
    run = start(chatty, conversation="chat")
    loop.drive(run.pk)
    run.refresh_from_db()
    assert gate.found == shown
    assert "sk-proj" not in run.answer


def test_what_an_agent_says_beside_a_call_is_seen_by_staff_while_it_is_written_and_never_by_the_customer(
    chatty, provider: ProviderServer
) -> None:
    gate = Gate(lambda: a_draft() and (a_draft(), customer_view.of(Conversation.objects.get(key="chat"))))
    words = OPENAI.stream("He is on our fraud list; ", gate, "I look.", calls=[("c", "look_up", {"what": "him"})])
    provider.answer(Answer(events=words), Answer(events=OPENAI.stream("Good day.")))
    run = start(chatty, conversation="chat")
    loop.drive(run.pk)
    run.refresh_from_db()
    assert run.answer == "Good day."
    shown, view = gate.found
    assert (shown, view.draft, view.words) == ("He is on our fraud list; ", "", "Writing an answer")


def test_where_a_reply_may_name_a_secret_argument_nobody_sees_it_before_it_is_whole(
    chatty, provider: ProviderServer, seen
) -> None:
    Tool.objects.filter(name="look_up").update(secret_fields=["what"])
    words = "I try it with the code 4711 for once."
    provider.answer(Answer(OPENAI.reply(words, calls=[("c", "look_up", {"what": "4711"})])), Answer(status=503))
    run = start(chatty, conversation="chat")
    loop.drive(run.pk)
    # This also holds if only the calls already made are marked.
    Tool.objects.update(secret_fields=[])
    Run.objects.update(wake_at=None)
    provider.answer(Answer(OPENAI.reply("Done.")))
    loop.drive(run.pk)
    run.refresh_from_db()
    assert [step.text for step in run.steps.order_by("number")] == [words.replace("4711", "••••••"), "Done."]
    assert seen == []
    assert [question.body.get("stream", False) for question in provider.questions] == [False] * 3


def drafted(run: Run, *texts: str) -> list[str | None]:
    """What people see of a reply that has come this far."""
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    shown = []
    for text in texts:
        assert drafts.write(claimed, claimed.lease_token, 1, text)
        shown.append(a_draft())
    return shown


@pytest.mark.parametrize("word", ["Sommernacht7x", "Sömmernächte7x", "abc7"])
def test_no_part_of_a_password_is_shown_before_it_is_known_as_one(chatty, word: str) -> None:
    text = f"The password: {word} is new"
    grown = drafted(start(chatty), *(text[:end] for end in range(len(text) + 1)))
    parts = [shown for shown in grown if shown and not "The password: •••••• is ".startswith(shown)]
    assert parts == []
    assert grown[-1] == "The password: •••••• is "


@pytest.mark.parametrize("text", ["お客様の返金は本日", "您的退款已于今天处理", "คืนเงินให้ลูกค้าแล้ว"])
def test_what_is_written_without_spaces_is_shown_as_it_grows(chatty, text: str) -> None:
    ends = range(1, len(text) + 1)
    assert drafted(start(chatty), *(text[:end] for end in ends)) == [text[:end] for end in ends]


def test_only_the_draft_of_the_step_being_decided_is_shown(chatty, provider: ProviderServer) -> None:
    gate = Gate(lambda: drafts.under_way(Run.objects.values_list("pk", flat=True)))
    provider.answer(Answer(events=OPENAI.stream("On its ", gate, "way.")))
    run = start(chatty)
    loop.drive(run.pk)
    assert {pk: draft.text for pk, draft in gate.found.items()} == {run.pk: "On its "}
    Draft.objects.create(run=run, step=1, text="Left behind.", updated_at=timezone.now())
    assert drafts.under_way([run.pk]) == {}


def test_a_line_that_breaks_takes_the_draft_along_and_the_model_is_asked_again(
    chatty, provider: ProviderServer
) -> None:
    gate = Gate(a_draft)
    provider.answer(Answer(events=(*OPENAI.stream("Half a ")[:2], gate, None)))
    provider.answer(Answer(events=OPENAI.stream("A whole story.")))
    run = start(chatty)
    again = loop.drive(run.pk)
    run.refresh_from_db()
    assert (gate.found, run.state, run.model_failures) == ("Half a ", "queued", 1)
    assert again is not None
    assert not Draft.objects.exists()
    Run.objects.update(wake_at=None)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (run.state, run.answer) == ("succeeded", "A whole story.")


def test_what_a_worker_that_died_left_behind_goes_with_the_next_step(chatty, provider: ProviderServer) -> None:
    run = start(chatty)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    assert drafts.write(claimed, claimed.lease_token, 1, "Half a ")
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    provider.answer(Answer(events=OPENAI.stream("A whole story.")))
    loop.drive(run.pk)
    assert not Draft.objects.exists()


def test_who_lost_the_lease_shows_nothing(chatty) -> None:
    run = start(chatty)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert runs.claim(run.pk) is not None
    assert not drafts.write(claimed, claimed.lease_token, 1, "Late.")
    assert not Draft.objects.exists()


@pytest.mark.parametrize("why", ["switched off", "a hook may change it"])
def test_what_is_not_meant_to_be_seen_is_asked_for_in_one_piece(chatty, provider: ProviderServer, why: str) -> None:
    if why == "switched off":
        chatty.agent.streams = False
    else:
        chatty.agent.hooks = ["tests.clerk_hooks.Spy"]
    chatty.agent.save()
    provider.answer(Answer(OPENAI.reply("Hello.")))
    run = start(chatty)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert (run.answer, provider.questions[0].body.get("stream", False)) == ("Hello.", False)
    assert run.steps.get().first_token_seconds is None


def test_a_scripted_run_writes_no_draft(clerk, seen) -> None:
    assert clerk.run(says("Done.")).state == "succeeded"
    assert seen == []


def test_a_draft_that_cannot_be_written_costs_nobody_the_answer(chatty, provider, monkeypatch) -> None:
    tried = threading.Event()

    def fail(*arguments: Any) -> bool:
        tried.set()
        raise OperationalError("disk full")

    monkeypatch.setattr(drafts, "write", fail)
    provider.answer(Answer(events=OPENAI.stream("On its ", tried, "way.")))
    run = start(chatty)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert run.answer == "On its way."


def test_a_draft_is_announced_to_those_who_watch_the_conversation(sam: User, otto: User, chatty) -> None:
    run = start(chatty, conversation="ticket-7")
    claimed = runs.claim(run.pk)
    assert claimed is not None
    mine, others = cookie_of(sam), cookie_of(otto)

    def write(text: str) -> None:
        drafts.write(claimed, claimed.lease_token, 1, text)
        connections.close_all()

    async def scene() -> None:
        async with listening(f"chat:{run.pk}", mine) as stream, listening(f"chat:{run.pk}", others) as silent:
            await settled(stream, "chat-changed", "draft-changed")
            for text in ("On", "On its"):
                await asyncio.to_thread(write, text)
                assert await stream.next() == ("draft-changed", str(run.pk))
            await commit(run, "step.recorded")
            assert await stream.next() == ("chat-changed", str(run.pk))
            assert await silent.quiet(0.5)

    play(scene)


def test_a_run_that_joins_the_conversation_is_heard_as_well(sam: User, chatty) -> None:
    run, cookie = start(chatty, conversation="ticket-7"), cookie_of(sam)
    joined: list[Run] = []

    def join() -> None:
        joined.append(start(chatty, conversation="ticket-7"))
        connections.close_all()

    async def scene() -> None:
        async with listening(f"chat:{run.pk}", cookie) as stream:
            await settled(stream, "chat-changed", "draft-changed")
            await asyncio.to_thread(join)
            assert await stream.next() == ("chat-changed", str(run.pk))
            await stream.told()
            await commit(joined[0], "step.recorded")
            assert await stream.next() == ("chat-changed", str(run.pk))

    play(scene)
