"""The stream over its real ASGI route, with the hub woken by real commits of other connections."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.test import Client

from agentapp import actions, conversations, live, release, runs, turns, wakeups
from agentapp.asgi import application
from agentapp.models import Agent, Run
from approvals import ledger

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE = 30.0


def cookie_of(user: User) -> bytes:
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()


def make_run(starter: User) -> Run:
    agent, _ = Agent.objects.get_or_create(name="support")
    with ledger.transaction():
        return runs.create(runs.Start(agent, {"tools": [], "routes": {}}, "Hello", "Hello", starter))


def note(run: Run, type_: str) -> None:
    """Commit one event of a run from another connection, as a worker does."""

    def write() -> None:
        with ledger.transaction():
            runs.lock(run.pk)
            ledger.record(ledger.run_chain(run.pk), type_)
        connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


class Stream:
    """One page's side of the stream. Heartbeats and the release are filtered out."""

    def __init__(self, topics: str, cookie: bytes, method: str) -> None:
        headers = [(b"host", b"testserver"), *([(b"cookie", cookie)] if cookie else [])]
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": "/live/",
            "query_string": f"t={topics}".encode(),
            "headers": headers,
        }
        self.started: dict[str, Any] = {}
        self.release = ""
        self.retry: list[str] = []
        """How long the page must wait before it comes back, each time it was told."""
        self.looks: Callable[[str], Coroutine[Any, Any, None]] | None = None
        """What the page does as soon as it hears of something, before the stream goes on."""
        self._gone = asyncio.Event()
        self._events: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started.update(message)
            return
        for block in message["body"].decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            self.retry += [fields["retry"]] if "retry" in fields else []
            if fields["event"] == "deploy":
                self.release = fields["data"]
            elif fields["event"] != "hb":
                self._events.put_nowait((fields["event"], fields["data"]))
                if self.looks is not None:
                    await self.looks(fields["event"])
        if not message.get("more_body"):
            self._events.put_nowait(None)

    async def next(self) -> tuple[str, str] | None:
        """The next event, as its name and data. None: the stream has ended."""
        return await asyncio.wait_for(self._events.get(), DEADLINE)

    async def told(self) -> int:
        """Wait until the hub has found the database and every page has been told what it knows. What this page has
        received is taken and counted.
        """
        hub = live.hub()
        async with asyncio.timeout(DEADLINE):
            while not hub.listens or any(subscriber.untold for subscriber in hub._subscribers):
                await asyncio.sleep(0.01)
        taken = 0
        while not self._events.empty():
            self._events.get_nowait()
            taken += 1
        return taken

    async def quiet(self, seconds: float) -> bool:
        """Whether nothing arrives for this long. Takes whatever arrives."""
        try:
            await asyncio.wait_for(self._events.get(), seconds)
        except TimeoutError:
            return True
        return False

    async def arriving(self) -> AsyncIterator[str]:
        """The names of what arrives, until nothing has for a second, or the stream has ended."""
        with contextlib.suppress(TimeoutError):
            while (found := await asyncio.wait_for(self._events.get(), 1)) is not None:
                yield found[0]

    async def leave(self) -> None:
        self._gone.set()
        await asyncio.wait_for(self._task, DEADLINE)


@asynccontextmanager
async def listening(topics: str, cookie: bytes = b"", method: str = "GET") -> AsyncIterator[Stream]:
    stream = Stream(topics, cookie, method)
    try:
        yield stream
    finally:
        await stream.leave()


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene in an event loop in its own thread, so that the test's own queries stay synchronous."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(scene())
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if problems:
        raise problems[0]


async def settled(stream: Stream, *expected: str) -> None:
    """Take the nudges with which a stream begins: one for each topic."""
    seen = {(await stream.next() or ("", ""))[0] for _ in expected}
    assert seen == set(expected)
    await stream.told()


async def commit(run: Run, type_: str) -> None:
    await asyncio.to_thread(note, run, type_)


def test_an_event_of_a_run_nudges_those_who_watch_it(sam: User, dana: User) -> None:
    run, other, cookie = make_run(sam), make_run(sam), cookie_of(dana)

    async def scene() -> None:
        async with listening(f"run:{run.pk}", cookie) as stream:
            await settled(stream, "run-changed")
            assert dict(stream.started["headers"])[b"content-type"].startswith(b"text/event-stream")
            await commit(other, "step.recorded")
            assert await stream.quiet(0.8)
            await commit(run, "step.recorded")
            assert await stream.next() == ("run-changed", str(run.pk))

    play(scene)


def test_the_inbox_is_nudged_by_what_waits_for_people_and_by_nothing_else(sam: User, dana: User) -> None:
    run, cookie = make_run(sam), cookie_of(dana)

    async def scene() -> None:
        async with listening("inbox,runs", cookie) as stream:
            await settled(stream, "inbox-changed", "runs-changed")
            await commit(run, "step.recorded")
            assert await stream.next() == ("runs-changed", "1")
            await commit(run, "approval.requested")
            assert {await stream.next(), await stream.next()} == {("inbox-changed", "1"), ("runs-changed", "1")}

    play(scene)


def test_a_switch_concerns_every_page_about_runs(sam: User, dana: User, mia: User) -> None:
    run, cookie = make_run(sam), cookie_of(dana)
    engaged = partial(actions.engage_switch, "all", "", "Everything rests.", mia)

    def alone(act: Callable[[], Any]) -> Any:
        try:
            return act()
        finally:
            connections.close_all()

    async def scene() -> None:
        async with listening(f"inbox,run:{run.pk}", cookie) as stream:
            await settled(stream, "inbox-changed", "run-changed")
            both = {("inbox-changed", "1"), ("run-changed", str(run.pk))}
            switch = await asyncio.to_thread(alone, engaged)
            assert {await stream.next(), await stream.next()} == both
            await asyncio.to_thread(alone, partial(actions.release_switch, switch.pk, mia))
            assert {await stream.next(), await stream.next()} == both

    play(scene)


def test_many_events_at_once_are_one_nudge(sam: User, dana: User) -> None:
    run, cookie = make_run(sam), cookie_of(dana)

    def burst() -> None:
        with ledger.transaction():
            runs.lock(run.pk)
            for _ in range(20):
                ledger.record(ledger.run_chain(run.pk), "step.recorded")
        connections.close_all()

    async def scene() -> None:
        async with listening(f"run:{run.pk}", cookie) as stream:
            await settled(stream, "run-changed")
            await asyncio.to_thread(burst)
            assert await stream.next() == ("run-changed", str(run.pk))
            assert await stream.quiet(0.6)

    play(scene)


def test_a_stream_begins_with_the_release_that_speaks(dana: User) -> None:
    cookie = cookie_of(dana)

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            await settled(stream, "inbox-changed")
            assert stream.release == release.fingerprint()

    play(scene)


def test_of_a_person_a_stream_too_many_takes_the_place_of_the_oldest(
    sam: User, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that lost its place comes back late: otherwise pages would take each other's places without pause."""
    monkeypatch.setattr(live, "MAX_STREAMS", 2)
    run, cookie, sams = make_run(sam), cookie_of(dana), cookie_of(sam)
    topic = f"run:{run.pk}"

    async def scene() -> None:
        async with listening(topic, cookie) as first, listening(topic, sams) as others:
            await settled(others, "run-changed")
            await settled(first, "run-changed")
            async with listening(topic, cookie) as second, listening(topic, cookie) as third:
                await settled(third, "run-changed")
                assert await first.next() == ("replaced", "1")
                assert await first.next() is None
                assert (first.retry, third.retry) == (["500", "15000"], ["500"])
                await first.leave()
                await second.told()
                await others.told()
                await commit(run, "step.recorded")
                for stream in (second, third, others):
                    assert await stream.next() == ("run-changed", str(run.pk))
        assert not live._open

    play(scene)


def test_streams_of_a_person_that_nobody_reads_cannot_be_opened_without_end(
    dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not hear that another stream has taken their place: what is sent to them waits."""
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    monkeypatch.setattr(live, "MAX_LEAVING", 2)
    cookie = cookie_of(dana)

    async def scene() -> None:
        async def waits(message: Any) -> None:
            if message.get("more_body"):
                await asyncio.Event().wait()

        async def hears() -> Any:
            return await asyncio.Event().wait()

        scope = {"method": "GET", "path": "/live/", "query_string": b"t=inbox", "headers": [(b"cookie", cookie)]}
        unread = [asyncio.create_task(live.stream(scope, hears, waits)) for _ in range(3)]
        async with asyncio.timeout(DEADLINE):
            while len(live._open.get(dana.pk, ())) < 3:
                await asyncio.sleep(0.01)
        async with listening("inbox", cookie) as another:
            assert await another.next() is None
            assert another.started["status"] == 429
        for each in unread:
            each.cancel()
        await asyncio.gather(*unread, return_exceptions=True)
        assert not live._open

    play(scene)


def test_nobody_signed_in_is_told_so_once_and_never_redirected() -> None:
    async def scene() -> None:
        for cookie in (b"", b"sessionid=made-up"):
            async with listening("inbox", cookie) as stream:
                assert await stream.next() == ("session.expired", "1")
                assert await stream.next() is None
                assert stream.started["status"] == 200

    play(scene)


def test_a_run_that_may_not_be_seen_is_not_heard(sam: User, otto: User) -> None:
    run, cookie = make_run(sam), cookie_of(otto)

    async def scene() -> None:
        async with listening(f"run:{run.pk},runs,inbox,approval:{run.pk},nonsense,run:x", cookie) as stream:
            await settled(stream, "runs-changed", "inbox-changed")
            await commit(run, "approval.requested")
            assert await stream.quiet(1.0)

    play(scene)


def test_own_runs_are_heard_without_the_right_to_see_all(otto: User) -> None:
    run, cookie = make_run(otto), cookie_of(otto)

    async def scene() -> None:
        async with listening(f"run:{run.pk}", cookie) as stream:
            await settled(stream, "run-changed")
            await commit(run, "step.recorded")
            assert await stream.next() == ("run-changed", str(run.pk))

    play(scene)


def test_whoever_is_shut_out_stops_hearing(sam: User, dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RECHECK_SECONDS", 0.3)
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.1)
    cookie = cookie_of(dana)

    def shut_out() -> None:
        User.objects.filter(pk=dana.pk).update(is_active=False)
        connections.close_all()

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            assert await stream.next() == ("inbox-changed", "1")
            await asyncio.to_thread(shut_out)
            event = await stream.next()
            while event == ("inbox-changed", "1"):
                event = await stream.next()
            assert event == ("session.expired", "1")
            assert await stream.next() is None

    play(scene)


def test_what_a_run_does_right_after_the_page_has_looked_at_it_is_heard(sam: User) -> None:
    agent, cookie = Agent.objects.get_or_create(name="support")[0], cookie_of(sam)
    conversation = conversations.find_or_open(agent, "desk", "ana")

    def say() -> Run:
        start = runs.Start(agent, {"tools": [], "routes": {}}, "Hello", "Hello", sam, conversation=conversation)
        with ledger.transaction():
            return turns.take(start, turns.lock(conversation, agent)).run

    first = say()

    async def scene() -> None:
        async with listening(f"chat:{first.pk}", cookie) as page, listening("runs", cookie) as other:
            await settled(page, "chat-changed", "draft-changed")
            await settled(other, "runs-changed")

            async def look(event: str) -> None:
                page.looks = None
                await other.told()
                await commit(second, "run.succeeded")
                assert await other.next() == ("runs-changed", "1")

            page.looks = look
            second = await asyncio.to_thread(say)
            assert await page.next() == ("chat-changed", str(first.pk))
            assert await page.next() == ("chat-changed", str(first.pk))

    play(scene)


def test_a_stream_ends_no_session_that_an_earlier_key_has_signed(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.force_login(dana)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another" * 8)

    async def scene() -> None:
        for _ in range(2):
            async with listening("inbox", cookie) as stream:
                assert await stream.next() == ("inbox-changed", "1")

    play(scene)

    assert client.get("/inbox/").status_code == 200


def test_streams_end_when_the_server_stops(dana: User) -> None:
    cookie = cookie_of(dana)

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            await settled(stream, "inbox-changed")
            live.close_streams()
            assert await stream.next() is None

    play(scene)


def test_a_stream_that_begins_while_the_server_stops_ends_at_once(dana: User) -> None:
    """It has been let in already, and is not among the open ones yet: the server would wait for it."""
    cookie = cookie_of(dana)

    async def scene() -> None:
        live.hub()
        live.close_streams(for_good=True)
        async with listening("inbox", cookie) as stream:
            assert await stream.next() is None

    play(scene)


def test_a_server_that_serves_no_stream_yet_knows_of_them_when_it_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    monkeypatch.setattr(signal, "getsignal", lambda number: lambda *_: told.append(number))
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    messages = iter(["lifespan.startup", "lifespan.shutdown"])
    closed: list[bool] = []

    async def receive() -> dict[str, str]:
        message = next(messages)
        if message == "lifespan.shutdown":
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            await asyncio.sleep(0)
            joining = live.Subscriber(())
            live.hub().join(joining)
            closed.append(joining.closing)
            live.hub().leave(joining)
        return {"type": message}

    async def send(message: Any) -> None: ...

    asyncio.run(live.lifespan(receive, send))
    assert (told, closed) == ([signal.SIGTERM], [True])


def test_a_database_that_fails_in_the_middle_is_looked_at_again(
    sam: User, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cookie = make_run(sam), cookie_of(dana)
    failed: list[bool] = []
    usual = {name: getattr(wakeups, name) for name in ("_follow_postgresql", "_follow_sqlite")}

    def failing(follow: Any) -> Any:
        async def once(publish: Any) -> None:
            if not failed:
                failed.append(True)
                raise OperationalError("couldn't get a connection after 10.00 sec")
            await follow(publish)

        return once

    for name, follow in usual.items():
        monkeypatch.setattr(wakeups, name, failing(follow))
    monkeypatch.setattr(wakeups, "RETRY_SECONDS", 0.1)

    async def scene() -> None:
        async with listening(f"run:{run.pk}", cookie) as stream:
            await settled(stream, "run-changed")
            assert failed
            await commit(run, "step.recorded")
            assert (await stream.next() or ("",))[0] == "run-changed"

    play(scene)


def finding(monkeypatch: pytest.MonkeyPatch, found: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Let the hub find the database once this has ended."""
    for name in ("_follow_postgresql", "_follow_sqlite"):
        usual = getattr(wakeups, name)

        async def follow(publish: Any, usual: Any = usual) -> None:
            await found()
            await usual(publish)

        monkeypatch.setattr(wakeups, name, follow)


def test_a_page_that_comes_before_the_hub_has_found_the_database_is_nudged_once(
    dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = cookie_of(dana)
    monkeypatch.setattr(live, "LISTENS_WITHIN_SECONDS", DEADLINE)
    finding(monkeypatch, lambda: asyncio.sleep(3 * live.SETTLE_SECONDS))

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            assert await stream.next() == ("inbox-changed", "1")
            assert await stream.told() == 0
            async with listening("inbox", cookie) as later:
                assert await later.next() == ("inbox-changed", "1")
                assert await later.told() == 0

    play(scene)


def test_a_page_is_nudged_though_the_hub_finds_no_database(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = cookie_of(dana)
    monkeypatch.setattr(live, "LISTENS_WITHIN_SECONDS", 0.05)
    finding(monkeypatch, lambda: asyncio.Event().wait())

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            assert await stream.next() == ("inbox-changed", "1")

    play(scene)


def test_a_page_that_waits_for_the_hub_goes_with_the_server(dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = cookie_of(dana)
    monkeypatch.setattr(live, "LISTENS_WITHIN_SECONDS", 10 * DEADLINE)
    finding(monkeypatch, lambda: asyncio.Event().wait())

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            while not stream.release:
                await asyncio.sleep(0.01)
            live.close_streams()
            while await stream.next() is not None:
                pass

    play(scene)


def test_the_hub_stops_listening_when_the_last_page_has_gone(dana: User) -> None:
    cookie = cookie_of(dana)

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            await settled(stream, "inbox-changed")
            assert live.hub()._listener is not None
        assert live.hub()._listener is None

    play(scene)


def test_a_page_that_comes_while_the_database_is_away_is_told_to_come_again(
    dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(scope: live.Scope) -> None:
        raise OperationalError

    monkeypatch.setattr(live, "_reader", away)
    cookie = cookie_of(dana)

    async def scene() -> None:
        async with listening("inbox", cookie) as stream:
            assert await stream.next() is None
            assert stream.started["status"] == 503

    play(scene)


def test_only_reading_is_answered(dana: User) -> None:
    async def scene() -> None:
        async with listening("inbox", method="POST") as stream:
            assert await stream.next() is None
            assert stream.started["status"] == 405

    play(scene)
