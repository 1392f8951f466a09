"""The event stream: a raw ASGI route and one hub per process.

A message only says that something has changed; the page fetches the fragment itself, with its own
rights. Text from outside never enters the stream. A Django view would tie up a thread per client.
"""

import asyncio
import contextlib
import signal
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.http import parse_cookie

from agentapp import auth, garbage, release, wakeups
from agentapp.topics import Topic, topics_of
from agentapp.wakeups import EVERYTHING, Fact

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATH = "/live/"
HEARTBEAT_SECONDS = 10.0
# Rights are looked up again this often: a person who signs out or is shut out hears nothing after at most this time.
RECHECK_SECONDS = 60.0
LISTENS_WITHIN_SECONDS = 2.0  # a new page waits no longer than this for a hub that does not listen yet
# Several changes at once become one nudge.
SETTLE_SECONDS = 0.15
MAX_TOPICS = 8
# Per person and process, since each stream looks up rights again and again. A new one takes the place of the oldest. A
# hidden page holds none. A client that does not read cannot be told that it was replaced, so this many more may still
# be leaving.
MAX_STREAMS = MAX_LEAVING = 50
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
EXPIRED = b"event: session.expired\ndata: 1\n\n"
# A replaced page comes back as late as possible: otherwise the pages beyond the limit would keep taking each other's
# places. Once it has a place again, it comes back soon after that stream ends.
REPLACED = b"event: replaced\nretry: 15000\ndata: 1\n\n"
RETRY_MS = 500


@dataclass(eq=False)
class Subscriber:
    """One open stream: what it listens for, and what it has yet to be told."""

    topics: tuple[Topic, ...]
    untold: dict[Topic, None] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False
    replaced: bool = False
    """Another stream has its place."""

    def tell(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self.untold.update((topic, None) for topic in self.topics if topic.concerns(fact))
        if self.untold:
            self.woken.set()

    def end(self) -> None:
        self.closing = True
        self.woken.set()


@contextlib.contextmanager
def place[K](taken: defaultdict[K, list[Subscriber]], whose: K, subscriber: Subscriber, most: int) -> Iterator[None]:
    """Give a stream a place among its owner's streams in this process, if necessary the oldest one's."""
    taken[whose].append(subscriber)
    for oldest in [each for each in taken[whose] if not each.closing][:-most]:
        oldest.replaced = True
        oldest.end()
    try:
        yield
    finally:
        taken[whose].remove(subscriber)
        if not taken[whose]:
            del taken[whose]


# The open streams of each person.
_open: defaultdict[int, list[Subscriber]] = defaultdict(list)


class Hub:
    """Passes what the database announces to the open streams of this process. Listens only while there are any."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._listener: asyncio.Task[None] | None = None
        self._is_over = False
        self.listens = False  # it has found the database, and told everybody so

    def join(self, subscriber: Subscriber) -> None:
        if self._is_over:
            subscriber.closing = True
        self._subscribers.add(subscriber)
        if self._listener is None or self._listener.done():
            self.listens = False
            self._listener = asyncio.get_running_loop().create_task(wakeups.listen(self.publish))

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._listener is not None:
            self._listener.cancel()
            self._listener = None

    def publish(self, facts: Iterable[Fact]) -> None:
        facts = list(facts)
        self.listens = True
        for subscriber in self._subscribers:
            subscriber.tell(facts)

    def close(self, for_good: bool = False) -> None:
        """End every stream; browsers come back to the next server. For good: new streams end at once too."""
        self._is_over = self._is_over or for_good
        for subscriber in self._subscribers:
            subscriber.end()


# One per event loop: a process has one, tests have several in turn.
_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _end_with_server()
    for other in [known for known in _hubs if known.is_closed()]:
        del _hubs[other]
    return _hubs.setdefault(loop, Hub())


def close_streams(for_good: bool = False) -> None:
    """End every stream of this process, from any thread. For good: this server is asked to stop."""
    for loop, its_hub in list(_hubs.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(its_hub.close, for_good)


def _end_with_server() -> None:
    """Make a server that is told to stop end its streams first, which it would otherwise wait for."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        usual = signal.getsignal(number)
        if not callable(usual) or getattr(usual, "ends_streams", False):
            continue

        def end(number: int, frame: FrameType | None, usual: Callable[..., object] = usual) -> None:
            close_streams(for_good=True)
            usual(number, frame)

        end.ends_streams = True  # type: ignore[attr-defined]
        signal.signal(number, end)


async def lifespan(receive: Receive, send: Send) -> None:
    """Start and stop with the server."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            hub()  # from here on, a server told to stop ends its streams, even a new one
            garbage.spare_what_is_loaded()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            hub().close(for_good=True)
            await send({"type": "lifespan.shutdown.complete"})
            return


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one page's stream until the page, the server or the reader's right to it is gone."""
    if scope["method"] not in ("GET", "HEAD"):
        await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"GET")]})
        await send({"type": "http.response.body", "body": b""})
        return
    try:
        reader = await _reader(scope)
    except (DatabaseError, InterfaceError):
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    if reader is not None and len(_open.get(reader.person, ())) >= MAX_STREAMS + MAX_LEAVING:
        await send({"type": "http.response.start", "status": 429, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    # Never a redirect: a stream redirected to a page would reconnect without pause.
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    if reader is None or scope["method"] == "HEAD":
        body = b"" if reader is not None else EXPIRED
        await send({"type": "http.response.body", "body": body})
        return
    subscriber = Subscriber(reader.topics)
    with place(_open, reader.person, subscriber, MAX_STREAMS):
        await _follow(scope, receive, send, subscriber)


async def _follow(scope: Scope, receive: Receive, send: Send, subscriber: Subscriber) -> None:
    hub().join(subscriber)
    gone = asyncio.create_task(until_gone(receive, subscriber))
    # A stopping server cancels what does not end by itself. Without a database, the page comes back later.
    with contextlib.suppress(asyncio.CancelledError, DatabaseError, InterfaceError):
        try:
            await _tell(scope, send, subscriber)
        finally:
            gone.cancel()
            hub().leave(subscriber)
    with contextlib.suppress(Exception):
        await send({"type": "http.response.body", "body": b""})


async def _tell(scope: Scope, send: Send, subscriber: Subscriber) -> None:
    """Nudge for all topics at once, since the page was rendered before the stream opened; then as told."""
    # A page rendered by an earlier release offers to reload itself.
    await _send(send, f"event: deploy\nretry: {RETRY_MS}\ndata: {release.fingerprint()}\n\n".encode())
    if not hub().listens and not subscriber.closing:
        # The hub tells everybody as soon as it listens, so the page is not told twice.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(subscriber.woken.wait(), LISTENS_WITHIN_SECONDS)
    subscriber.tell([EVERYTHING])
    clock = asyncio.get_running_loop().time
    beat_at, check_at = clock(), clock() + RECHECK_SECONDS
    while not subscriber.closing:
        if subscriber.untold:
            await asyncio.sleep(SETTLE_SECONDS)
            if any(topic.grows for topic in subscriber.untold):
                check_at = clock()
        if clock() >= check_at:
            reader = await _reader(scope)
            if reader is None:
                await _send(send, EXPIRED)
                return
            subscriber.topics, check_at = reader.topics, clock() + RECHECK_SECONDS
        # Tell the page only now: it then fetches, and hears of anything that happens afterwards.
        if subscriber.untold:
            body = b"".join(dict.fromkeys(topic.message for topic in subscriber.untold))
            subscriber.untold.clear()
            await _send(send, body)
        if clock() >= beat_at:
            await _send(send, b"event: hb\ndata: 1\n\n")
            beat_at = clock() + HEARTBEAT_SECONDS
        subscriber.woken.clear()
        if not subscriber.untold and not subscriber.closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(subscriber.woken.wait(), max(0.0, beat_at - clock()))
    if subscriber.replaced:
        await _send(send, REPLACED)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def until_gone(receive: Receive, subscriber: Subscriber) -> None:
    """End the stream when its page has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    subscriber.end()


@dataclass(frozen=True)
class _Reader:
    """The key of the person signed in, and the topics they asked for and may hear about."""

    person: int
    topics: tuple[Topic, ...]


async def _reader(scope: Scope) -> _Reader | None:
    return await sync_to_async(_authorised, thread_sensitive=False)(scope)


def _authorised(scope: Scope) -> _Reader | None:
    """The requested topics that this person may hear about; others are left out. None: nobody is signed in."""
    close_old_connections()
    try:
        user = _person(scope)
        if user is None:
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("t", [""])[0].split(",")
        return _Reader(user.pk, tuple(topic for name in asked[:MAX_TOPICS] for topic in topics_of(name, user)))
    finally:
        # Outside a request, nothing else returns the connection.
        connections.close_all()


def _person(scope: Scope) -> User | None:
    """Who is signed in, by the cookie of Django's session."""
    cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)
    return auth.person_of(key) if key else None
