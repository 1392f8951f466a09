"""The event stream of one conversation for its customer: a raw ASGI route next to the console's.

A program authenticates with its token, a customer's page with the link that opened it. This is checked again each
time the rows are read. Events hold what `customer_view` shows, and nothing else.
"""

import asyncio
import contextlib
import json
import re
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.http import HttpRequest

from agentapp import customer_links, customer_view, customers, live
from agentapp.api import errors
from agentapp.api.bearer import Bearer
from agentapp.api.customers import SCOPE, shown
from agentapp.customer_view import View
from agentapp.live import Receive, Scope, Send
from agentapp.models import Conversation, Run
from agentapp.refused import Refused
from agentapp.topics import MAX_CHAT_RUNS, Topic

_BY_TOKEN = re.compile(r"^/api/v1/conversations/([0-9a-f-]{36})/events/?$")
_BY_LINK = re.compile(r"^/talk/([^/]{1,300})/events/$")
CLOSED = b"event: closed\ndata: {}\n\n"
# Per conversation and process: anyone with the link can open a stream, and each reads the rows on every change. A new
# one replaces the oldest, because TCP reports a customer who vanished only after a quarter of an hour. A client that
# reads nothing cannot be told that it was replaced either, so MAX_LEAVING more may still be open.
MAX_STREAMS = MAX_LEAVING = 20
_open: defaultdict[uuid.UUID, list[live.Subscriber]] = defaultdict(list)


@dataclass
class _Told:
    """What this stream sent last."""

    seq: int = 0
    parts: dict[str, str] = field(default_factory=dict)

    def news(self, view: View) -> bytes:
        """The events for what has changed. A message is sent once, everything else as it stands now."""
        found = shown(view).model_dump(mode="json")
        blocks = []
        for message in found["messages"]:
            if message["seq"] > self.seq:
                self.seq = message["seq"]
                blocks.append(f"id: {self.seq}\n{_event('message', message)}")
        parts = {
            "mode": {"mode": found["mode"], "version": found["version"]},
            "draft": {"text": found["draft"]},
            "status": {"status": found["status"], "words": found["status_words"]},
            "confirmations": found["confirmations"],
            "needed": found["needed"],
        }
        for name, value in parts.items():
            block = _event(name, value)
            if self.parts.get(name) != block:
                self.parts[name] = block
                blocks.append(block)
        return "".join(blocks).encode()


def serves(path: str) -> bool:
    """Whether this path is a customer's stream."""
    return bool(_BY_TOKEN.match(path) or _BY_LINK.match(path))


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one stream until the customer leaves, the server stops or the right to it ends."""
    if scope["method"] != "GET":
        await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"GET")]})
        await send({"type": "http.response.body", "body": b""})
        return
    try:
        conversation = await _in_thread(_conversation, scope)
        if len(_open[conversation]) >= MAX_STREAMS + MAX_LEAVING:
            raise errors.ApiProblem("too_many_streams", "Too many streams of this conversation are open and unread.")
    except (errors.ApiProblem, DatabaseError, InterfaceError) as error:
        response = errors.respond(error if isinstance(error, errors.ApiProblem) else errors.unavailable())
        headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})
        return
    subscriber = live.Subscriber(())
    with live.place(_open, conversation, subscriber, MAX_STREAMS):
        await _follow(scope, conversation, receive, send, subscriber)


async def _follow(
    scope: Scope, conversation: uuid.UUID, receive: Receive, send: Send, subscriber: live.Subscriber
) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": live.HEADERS})
    live.hub().join(subscriber)
    gone = asyncio.create_task(live.until_gone(receive, subscriber))
    # A stopping server cancels what does not end by itself. Without a database, the customer reconnects later.
    with contextlib.suppress(asyncio.CancelledError, DatabaseError, InterfaceError):
        try:
            await _tell(scope, conversation, send, subscriber)
        finally:
            gone.cancel()
            live.hub().leave(subscriber)
    with contextlib.suppress(Exception):
        await send({"type": "http.response.body", "body": b""})


async def _tell(scope: Scope, conversation: uuid.UUID, send: Send, subscriber: live.Subscriber) -> None:
    """Send everything at first, then what changes."""
    told = _Told(_last_seen(scope))
    clock = asyncio.get_running_loop().time
    looked_at = beat_at = float("-inf")
    while not subscriber.closing:
        if subscriber.untold or clock() >= looked_at + live.RECHECK_SECONDS:
            await asyncio.sleep(live.SETTLE_SECONDS)
            subscriber.untold.clear()
            looked_at = clock()
            try:
                view = await _in_thread(_look, scope, told.seq, subscriber)
            except errors.ApiProblem:
                await send({"type": "http.response.body", "body": CLOSED, "more_body": True})
                return
            news = told.news(view)
            if news:
                await send({"type": "http.response.body", "body": news, "more_body": True})
        if clock() >= beat_at:
            await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
            beat_at = clock() + live.HEARTBEAT_SECONDS
        subscriber.woken.clear()
        if not subscriber.untold and not subscriber.closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(subscriber.woken.wait(), max(0.0, beat_at - clock()))


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await sync_to_async(_with_connection, thread_sensitive=False)(function, *arguments)


def _with_connection(function: Any, *arguments: Any) -> Any:
    close_old_connections()
    try:
        return function(*arguments)
    finally:
        # Outside a request, nothing else closes the connection.
        connections.close_all()


def _look(scope: Scope, after: int, subscriber: live.Subscriber) -> View:
    """The conversation as it stands. Raises ApiProblem.

    Listening starts before the conversation is read, so a change in between is not lost: it causes another look.
    """
    conversation = Conversation.objects.get(pk=_conversation(scope, again=True))
    going = Run.objects.filter(conversation=conversation, parent__isnull=True).exclude(state__in=Run.FINAL)
    # Read before the view: runs that begin in between are announced by the conversation's own chain.
    own = frozenset(map(str, going.order_by("-created_at").values_list("pk", flat=True)[:MAX_CHAT_RUNS]))
    subscriber.topics = (
        Topic("changed", run=str(conversation.pk), about="conversation"),
        Topic("changed", own=own),
        Topic("changed", own=own, about="draft"),
    )
    return customer_view.of(conversation, after)


def _conversation(scope: Scope, again: bool = False) -> uuid.UUID:
    """The key of the conversation that this stream may follow, or may still follow. Raises ApiProblem."""
    if found := _BY_LINK.match(scope["path"]):
        link = customer_links.find(found[1])
        if link is None or not customer_links.is_live(link):
            raise errors.not_found()
        return link.conversation_id
    by_token = _BY_TOKEN.match(scope["path"])
    assert by_token is not None
    request = HttpRequest()
    for name, value in scope["headers"]:
        if name == b"authorization":
            request.META["HTTP_AUTHORIZATION"] = value.decode("latin-1")
    token = Bearer(SCOPE, counts=not again)(request)
    try:
        return customers.of_program(uuid.UUID(by_token[1]), token.user, token).conversation.pk
    except ValueError as error:
        raise errors.not_found() from error
    except Refused as refused:
        raise errors.ApiProblem(refused.code, refused.message) from refused


def _last_seen(scope: Scope) -> int:
    """The `seq` of the last message this customer read before the stream was lost."""
    given = next((value for name, value in scope["headers"] if name == b"last-event-id"), b"")
    return int(given) if given.isdigit() and len(given) < 10 else 0


def _event(name: str, value: Any) -> str:
    """One event. JSON text contains no line breaks, so nobody's words can end it."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"
