"""Clients that go away: what was begun for them ends cleanly, and others lose nothing."""

import asyncio
import signal
import socket
import time
from collections.abc import MutableMapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import asgi
from benchmarks.servers import free_port
from tests.processes import PATIENCE_SECONDS, Processes, until

# Each makes many queries, from several threads in turn.
PAGES = ["/insights/", "/audit/"]

type Message = MutableMapping[str, Any]
WHOLE = {"type": "http.request", "body": b"", "more_body": False}
PART = {"type": "http.request", "body": b"a", "more_body": True}
GONE = {"type": "http.disconnect"}
BEGUN = {"type": "http.response.start", "status": 200, "headers": []}


class Channel:
    """What a server reports about a client, and what it is told to send."""

    def __init__(self, *told: Message) -> None:
        self._told = list(told)
        self.sent: list[Message] = []
        self.receive, self.send = asgi.undisturbed(self._receive, self._send)

    async def _receive(self) -> Message:
        return self._told.pop(0)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def hears_soon(self) -> Message | None:
        """The next message. None: nothing comes, however often others get their turn."""
        hearing = asyncio.ensure_future(self.receive())
        for _ in range(20):
            await asyncio.sleep(0)
        if hearing.done():
            return hearing.result()
        hearing.cancel()
        return None


def test_that_a_client_is_gone_is_heard_once_its_request_has_an_answer() -> None:
    async def happens() -> None:
        channel = Channel(WHOLE, GONE, GONE)
        assert await channel.hears_soon() == WHOLE
        assert await channel.hears_soon() is None
        await channel.send(BEGUN)
        assert channel.sent == [BEGUN]
        assert await channel.hears_soon() == GONE

    asyncio.run(happens())


def test_who_goes_while_the_answer_is_sent_piece_by_piece_is_missed_at_once() -> None:
    async def happens() -> None:
        channel = Channel(WHOLE, GONE)
        await channel.receive()
        await channel.send(BEGUN)
        await channel.send({"type": "http.response.body", "body": b"a", "more_body": True})
        assert await channel.hears_soon() == GONE

    asyncio.run(happens())


def test_who_goes_before_all_of_a_request_has_come_is_missed_at_once() -> None:
    async def happens() -> None:
        channel = Channel(PART, GONE)
        assert await channel.hears_soon() == PART
        assert await channel.hears_soon() == GONE

    asyncio.run(happens())


def test_a_request_that_is_larger_than_any_may_be_is_refused_before_the_rest_of_it_comes() -> None:
    mebibyte = {"type": "http.request", "body": b"a" * 2**20, "more_body": True}

    async def happens() -> None:
        channel = Channel(*[mebibyte] * 25)
        for _ in range(24):
            assert await channel.receive() == mebibyte
        assert channel.sent == []
        assert await channel.receive() == GONE
        assert [message.get("status") for message in channel.sent] == [413, None]

    asyncio.run(happens())


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_whoever_leaves_a_page_while_it_is_put_together_takes_no_connection_with_them(
    tmp_path: Path, mia: User, client: Client
) -> None:
    """The process has two database connections, and people leave at any moment while it works for them."""
    client.force_login(mia)
    port, chance = free_port(), Random(1)
    processes = Processes(tmp_path, DATABASE_POOL_SIZE="2")
    try:
        processes.start("-m", "uvicorn", "agentapp.asgi:application", "--lifespan", "off", "--port", str(port))
        until(lambda: asked(port, client) == 200, "the server to answer")
        for _ in range(200):
            with begun(port, client, chance.choice(PAGES)):
                time.sleep(chance.uniform(0, 0.08))  # how long they wait before they leave
        # The work begun for those who left comes first. A lost connection would stay lost.
        until(lambda: asked(port, client) == 200, "the server to have time again")
        assert [asked(port, client) for _ in range(4)] == [200] * 4
    finally:
        processes.end_all()


def begun(port: int, client: Client, path: str = PAGES[0]) -> socket.socket:
    """A request for a page, before anything of it is read."""
    reader = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    session = client.cookies["sessionid"].value
    asking = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Cookie: sessionid={session}", "Connection: close", "", ""]
    reader.sendall("\r\n".join(asking).encode())
    return reader


def asked(port: int, client: Client) -> int:
    """The status of a page. 0: no answer."""
    try:
        with begun(port, client) as reader:
            return int(reader.recv(4096).split()[1])
    except (OSError, IndexError):
        return 0


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_told_to_stop_waits_for_no_stream(tmp_path: Path, mia: User, client: Client) -> None:
    client.force_login(mia)
    port, processes = free_port(), Processes(tmp_path)
    try:
        serving = ["agentapp.asgi:application", "--port", str(port), "--timeout-graceful-shutdown", "600"]
        server = processes.start("-m", "uvicorn", *serving)
        until(lambda: asked(port, client) == 200, "the server to answer")
        with begun(port, client, "/live/?t=inbox") as stream:
            assert b"text/event-stream" in stream.recv(4096)
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)
    finally:
        processes.end_all()
