"""A customer's stream over its real ASGI route, woken by real commits of other connections."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from agentapp import auth, customer_links, customers, drafts, live, loop, runs
from agentapp.api import customer_stream
from agentapp.asgi import application
from agentapp.models import Run
from tests.agentapp.customers_at_work import access_to, customer_rule
from tests.agentapp.test_live import DEADLINE, play
from tests.conftest import call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5))


class Stream:
    """A customer's side of the stream: what arrived, by name."""

    def __init__(self, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "GET", "path": path,
                                 "query_string": b"", "headers": [(b"host", b"testserver"), *headers]}  # fmt: skip
        self.status = 0
        self.body = b""
        self.latest: dict[str, Any] = {}
        self.said: list[tuple[str, str]] = []
        self.ended = False
        self._gone, self._changed = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message["body"]
            self._read(message["body"].decode())
            self.ended = not message.get("more_body")
        self._changed.set()

    def _read(self, text: str) -> None:
        for block in text.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "event" not in fields:
                continue
            value = json.loads(fields["data"])
            self.latest[fields["event"]] = value
            if fields["event"] == "message":
                self.said.append((value["who"], value["text"]))

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(DEADLINE):
            while not holds(self):
                self._changed.clear()
                await self._changed.wait()

    async def leave(self) -> None:
        self._gone.set()
        await asyncio.wait_for(self._task, DEADLINE)


@asynccontextmanager
async def listening(path: str, **headers: str) -> AsyncIterator[Stream]:
    made = Stream(path, [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])
    try:
        yield made
    finally:
        await made.leave()


async def beside(act: Any, *arguments: Any) -> Any:
    """Do something over another connection, as another process would."""

    def work() -> Any:
        try:
            return act(*arguments)
        finally:
            connections.close_all()

    return await asyncio.to_thread(work)


@pytest.fixture
def access(clerk):
    return access_to(clerk)


@pytest.fixture
def bearer(sam) -> str:
    return f"Bearer {auth.issue_token(sam, 'shop', ['conversations:write'], 'test')[1]}"


def path_of(access) -> str:
    return f"/api/v1/conversations/{access.conversation.pk}/events"


def script(clerk, *replies) -> None:
    clerk.agent.driver_settings = {"script": list(replies)}
    clerk.agent.save()


def drive() -> None:
    loop.drive(Run.objects.latest("created_at").pk)


def test_a_customer_follows_their_conversation(clerk, access, bearer):
    customer_rule()
    script(clerk, PAY, says("It is paid."))

    async def scene() -> None:
        async with listening(path_of(access), authorization=bearer) as stream:
            await stream.until(lambda s: s.latest.get("status", {}).get("status") == "idle")
            assert stream.latest["mode"] == {"mode": "auto", "version": 0}
            await beside(customers.write, access, "Pay me.")
            await stream.until(lambda s: s.said == [("customer", "Pay me.")])
            await beside(drive)
            await stream.until(lambda s: s.latest["confirmations"])
            [asked] = stream.latest["confirmations"]
            assert stream.latest["status"] == {"status": "confirmation", "words": "Waiting for your answer"}
            answer = customers.Answer(access.conversation.pk, True, asked["version"], asked["action_digest"])
            await beside(customers.confirm, access, asked["id"], answer)
            await stream.until(lambda s: s.latest["confirmations"] == [])
            await beside(drive)
            await stream.until(lambda s: ("agent", "It is paid.") in s.said)
            await beside(customers.ask_for_person, access)
            await stream.until(lambda s: s.latest["mode"]["mode"] == "manual")
            assert not [word for word in (b"arguments", b"pay-confirmed", b"run_") if word in stream.body]

    play(scene)


def test_what_an_agent_without_tools_has_written_so_far_is_told(clerk, access, bearer):
    clerk.agent.tools.clear()
    customers.write(access, "Hello")
    claimed = runs.claim(Run.objects.get().pk)
    assert claimed is not None

    async def scene() -> None:
        async with listening(path_of(access), authorization=bearer) as stream:
            await stream.until(lambda s: s.latest.get("status", {}).get("status") == "working")
            await beside(drafts.write, claimed, claimed.lease_token, 1, "It is on\nits way to")
            await stream.until(lambda s: s.latest["draft"] == {"text": "It is on\nits way "})

    play(scene)


class SaidMeanwhile(live.Subscriber):
    """Somebody writes at the very moment it begins to listen."""

    access: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "topics" and value:
            customers.write(self.access, "Are you there?")


def test_what_is_said_while_a_stream_begins_is_told(clerk, access, bearer):
    script(clerk, says("Yes."))
    scope = {"path": path_of(access), "headers": [(b"authorization", bearer.encode())]}
    SaidMeanwhile.access = access
    view = customer_stream._look(scope, 0, SaidMeanwhile(()))
    assert [said.text for said in view.messages] == ["Are you there?"]


def test_a_lost_stream_goes_on_behind_the_last_message(clerk, access, bearer):
    customers.write(access, "One")
    customers.write(access, "Two")

    async def scene() -> None:
        async with listening(path_of(access), authorization=bearer, last_event_id="1") as stream:
            await stream.until(lambda s: "status" in s.latest)
            assert stream.said == [("customer", "Two")]

    play(scene)


def test_a_link_opens_its_conversation_until_it_is_taken_back(clerk, access, sam):
    link = customer_links.make(access.conversation, sam, timezone.now() + timedelta(hours=1), "test")

    async def scene() -> None:
        async with listening(f"/talk/{customer_links.signed(link)}/events/") as stream:
            await stream.until(lambda s: "status" in s.latest)
            await beside(customer_links.revoke, link, "test")
            await stream.until(lambda s: s.ended)
            assert stream.latest["closed"] == {}

    play(scene)


def test_of_a_conversation_a_stream_too_many_takes_the_place_of_the_oldest(clerk, access, sam, bearer, monkeypatch):
    """As with a customer who is gone without a word: that stream gets nothing more, and the others go on."""
    monkeypatch.setattr(customer_stream, "MAX_STREAMS", 2, raising=False)
    link = customer_links.make(access.conversation, sam, timezone.now() + timedelta(hours=1), "test")
    path = f"/talk/{customer_links.signed(link)}/events/"

    async def scene() -> None:
        async with listening(path) as first:
            await first.until(lambda s: "status" in s.latest)
            async with listening(path) as second, listening(path_of(access), authorization=bearer) as third:
                await third.until(lambda s: "status" in s.latest)
                await first.until(lambda s: s.ended)
                assert "closed" not in first.latest, "it may come back"
                await first.leave()
                await beside(customers.write, access, "Are you there?")
                for stream in (second, third):
                    await stream.until(lambda s: ("customer", "Are you there?") in s.said)
        assert not customer_stream._open

    play(scene)


def test_streams_that_nobody_reads_cannot_be_opened_without_end(clerk, access, bearer, monkeypatch):
    """They do not hear that another stream has taken their place: what is sent to them waits."""
    monkeypatch.setattr(customer_stream, "MAX_STREAMS", 1)
    monkeypatch.setattr(customer_stream, "MAX_LEAVING", 2)

    async def scene() -> None:
        async def waits(message: Any) -> None:
            await asyncio.Event().wait()

        async def hears() -> Any:
            return await asyncio.Event().wait()

        scope = {"method": "GET", "path": path_of(access), "headers": [(b"authorization", bearer.encode())]}
        unread = [asyncio.create_task(customer_stream.stream(scope, hears, waits)) for _ in range(3)]
        while len(customer_stream._open[access.conversation.pk]) < 3:
            await asyncio.sleep(0.01)
        async with listening(path_of(access), authorization=bearer) as another:
            await another.until(lambda s: s.ended)
            assert (another.status, json.loads(another.body)["code"]) == (429, "too_many_streams")
        for each in unread:
            each.cancel()
        await asyncio.gather(*unread, return_exceptions=True)
        assert not customer_stream._open

    play(scene)


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"authorization": "Bearer cs_no"}, 401)])
def test_without_a_token_there_is_no_stream(clerk, access, headers, status):
    async def scene() -> None:
        async with listening(path_of(access), **headers) as stream:
            await stream.until(lambda s: s.ended)
            assert (stream.status, json.loads(stream.body)["status"]) == (status, status)

    play(scene)


def test_with_another_scope_or_for_another_conversation_there_is_none_either(clerk, access, sam, bearer):
    other = f"Bearer {auth.issue_token(sam, 'x', ['runs:read'], 'test')[1]}"
    foreign = f"/api/v1/conversations/{clerk.agent.pk}/events"

    async def scene() -> None:
        for path, token, status in ((path_of(access), other, 403), (foreign, bearer, 404)):
            async with listening(path, authorization=token) as stream:
                await stream.until(lambda s: s.ended)
                assert stream.status == status
        async with listening("/talk/made-up/events/") as stream:
            await stream.until(lambda s: s.ended)
            assert stream.status == 404

    play(scene)


def test_a_stream_counts_as_one_request_however_often_it_looks(clerk, access, bearer, settings, monkeypatch):
    settings.API_REQUESTS_PER_MINUTE = 3
    monkeypatch.setattr(live, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.01)

    async def scene() -> None:
        async with listening(path_of(access), authorization=bearer) as stream:
            await stream.until(lambda s: s.body.count(b": here") > 8)
            assert b"event: closed" not in stream.body
            assert not stream.ended

    play(scene)


def test_without_a_database_a_stream_is_refused_in_words_and_not_by_a_failure(clerk, access, bearer, monkeypatch):
    def away(scope):
        raise OperationalError("couldn't get a connection after 10.00 sec")

    monkeypatch.setattr(customer_stream, "_conversation", away)

    async def scene() -> None:
        async with listening(path_of(access), authorization=bearer) as stream:
            await stream.until(lambda s: s.ended)
            assert (stream.status, json.loads(stream.body)["code"]) == (503, "unavailable")

    play(scene)
