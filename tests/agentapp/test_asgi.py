"""Clients that go away: what was begun for them ends in good order, and nothing of it is missing for others."""

import asyncio
import socket
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from agentapp import asgi
from benchmarks.servers import free_port
from tests.processes import Processes, until

type Message = MutableMapping[str, Any]
WHOLE = {"type": "http.request", "body": b"", "more_body": False}
PART = {"type": "http.request", "body": b"a", "more_body": True}
GONE = {"type": "http.disconnect"}
BEGUN = {"type": "http.response.start", "status": 200, "headers": []}


class Channel:
    """What a server tells of a client, and what it is told for it."""

    def __init__(self, *told: Message) -> None:
        self._told = list(told)
        self.sent: list[Message] = []
        self.receive, self.send = asgi.undisturbed(self._receive, self._send)

    async def _receive(self) -> Message:
        return self._told.pop(0)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def hears_soon(self) -> Message | None:
        """What is heard next. None: nothing, however often others get their turn."""
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


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_whoever_leaves_a_page_while_it_is_put_together_takes_no_connection_with_them(
    tmp_path: Path, dana: User, client: Client
) -> None:
    """The process has two connections to the database, and four people leave while their page waits for a table."""
    client.force_login(dana)
    port, database = free_port(), connection.settings_dict
    who = f"postgres://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    processes = Processes(tmp_path, DATABASE_POOL_SIZE="2")
    try:
        processes.start("-m", "uvicorn", "agentapp.asgi:application", "--lifespan", "off", "--port", str(port))
        until(lambda: asked(port, client) == 200, "the server to answer")
        for _ in range(2):
            with psycopg.connect(f"{who}/{database['NAME']}") as held, psycopg.connect(who, autocommit=True) as watch:
                held.execute("LOCK TABLE agentapp_run IN ACCESS EXCLUSIVE MODE")
                readers = [begun(port, client) for _ in range(2)]
                until(lambda watch=watch: watch.execute(waiting, [database["NAME"]]).fetchone() == (2,), "both to wait")
                for reader in readers:
                    reader.close()
            until(lambda: asked(port, client) == 200, "the page for somebody who stays")
        together = [threading.Thread(target=asked, args=(port, client)) for _ in range(4)]
        for each in together:
            each.start()
        for each in together:
            each.join(5)
            assert not each.is_alive()
    finally:
        processes.end_all()


def begun(port: int, client: Client) -> socket.socket:
    """A request for the list of runs, of which nothing was read yet."""
    reader = socket.create_connection(("127.0.0.1", port), timeout=5)
    session = client.cookies["sessionid"].value
    asking = ["GET /runs/ HTTP/1.1", "Host: 127.0.0.1", f"Cookie: sessionid={session}", "Connection: close", "", ""]
    reader.sendall("\r\n".join(asking).encode())
    return reader


def asked(port: int, client: Client) -> int:
    """The status of the list of runs. 0: no answer."""
    try:
        with begun(port, client) as reader:
            return int(reader.recv(4096).split()[1])
    except (OSError, IndexError):
        return 0
