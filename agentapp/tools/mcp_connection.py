"""One connection to an MCP server: opening it, sending requests over it, and what is known if no answer comes."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from agentapp.tools import mcp_http, mcp_stdio, source_changes
from agentapp.tools.credentials import redacted
from agentapp.tools.mcp_answers import ASKS, told_apart
from agentapp.tools.mcp_http import CONNECT_SECONDS, MAX_ANSWER_BYTES, PARTS_WITHIN, Trouble
from agentapp.tools.mcp_target import Target

type Mode = Literal["auto", "legacy"]

MAX_PAGES, MAX_TOOLS, MAX_LISTING_BYTES = 50, 500, 8 * 1024 * 1024
IDLE_SECONDS = 600.0
# How often a server is believed that keeps announcing changes to its tools.
HEEDS_CHANGES_EVERY = 10.0
MAX_MESSAGE = 500
# In the protocol, these codes say that a request was not accepted.
_NOT_TAKEN_UP = {types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.HEADER_MISMATCH, Trouble.REFUSED}
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Unreachable(Exception):
    """Nothing was sent. `final`: trying again would not help."""

    def __init__(self, message: str, *, final: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.final, self.timed_out = final, timed_out


class NotAllowed(Unreachable):
    """The request is not allowed to go there: nothing was done, and trying again would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, final=True)


class Refused(Exception):
    """The server refused the request, so nothing was done."""


class Lost(Exception):
    """The request was sent, but what came of it is not known."""


class Late(Lost):
    """No answer came in time."""


class SentOn(Lost):
    """The server redirected us to an address that may not be requested."""


@dataclass(frozen=True)
class Listing:
    """The tools of a server, and what it says about itself."""

    tools: tuple[types.Tool, ...]
    details: dict[str, str]


@dataclass
class Call:
    """A call of a tool. `fits` says whether the tool as listed now is the one that was accepted.

    The loop that sends the call and the thread that waits for it agree here on whether it was sent.
    """

    tool: str
    arguments: dict[str, Any]
    fits: Callable[[types.Tool | None], bool]
    changes_nothing: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    sent: bool = field(default=False, init=False)
    _given_up: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def fits_in(self, listing: Listing) -> bool:
        """Whether its tool is listed as it was accepted."""
        return self.fits(next((tool for tool in listing.tools if tool.name == self.tool), None))

    def begin(self) -> None:
        """Mark it as sent. Raises CancelledError if it was given up; its sender is about to be told."""
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError
            self.sent = True

    def give_up(self) -> bool:
        """Make sure it is not sent from now on, as nobody waits for it. Returns whether it was sent before."""
        with self._lock:
            self._given_up = True
            return self.sent


class Connection:
    """A client kept by a task of its own: what the SDK opens must be closed by the task that opened it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.closed = False
        self._client: Client | None = None
        self._listing: Listing | None = None
        self._changes = 0
        self._ready, self._closing, self._let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._problem: Unreachable | None = None
        self._why_ended = ""
        self._uses, self._touched = 0, time.monotonic()
        self._retired = False
        self._heeding, self._heard_meanwhile = False, False

    @classmethod
    async def open(cls, target: Target, mode: Mode) -> "Connection":
        """A connection after the greeting. Raises Unreachable."""
        connection = cls(target)
        keeper = asyncio.create_task(connection._keep(mode))
        _keepers.add(keeper)
        keeper.add_done_callback(_keepers.discard)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection._ready.wait()
        except TimeoutError:
            keeper.cancel()
            raise Unreachable(f"It did not answer within {CONNECT_SECONDS:g} s.", timed_out=True) from None
        except BaseException:
            keeper.cancel()
            raise
        if connection._problem is not None:
            raise connection._problem
        return connection

    @property
    def usable(self) -> bool:
        return not self.closed and not self._retired

    def retire(self) -> None:
        """Close it when nobody uses it any more."""
        self._retired = True
        if not self._uses:
            self._closing.set()

    def retire_soon(self) -> None:
        """Start nothing more over it, and close it once its server has had time to hear what was given up."""
        self._retired = True
        self._uses += 1
        asyncio.get_running_loop().call_later(PARTS_WITHIN, self._leave)

    async def close(self) -> None:
        """Close it now, even if it is in use. If a server was started for it, that has ended afterwards."""
        self._closing.set()
        await self._let_go.wait()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep it open in the meantime, even if it is given up."""
        self._uses += 1
        try:
            yield
        finally:
            self._touched = time.monotonic()
            self._leave()

    def _leave(self) -> None:
        self._uses -= 1
        if self._retired and not self._uses:
            self._closing.set()

    async def list_tools(self) -> Listing:
        """The tools as the server lists them now. Raises Unreachable, NotAllowed, Refused, Lost, SentOn."""
        client, found, cursor = self._open_client(), list[types.Tool](), None
        changes, size = self._changes, 0
        with self.used():
            for _ in range(MAX_PAGES):
                page = await self._asked(client.list_tools(cursor=cursor))
                size += len(page.model_dump_json())
                if size > MAX_LISTING_BYTES:  # before more of it is read
                    raise Refused(f"Its list of tools is longer than {MAX_LISTING_BYTES} bytes.")
                found += map(self._without_secrets, page.tools)
                if len(found) > MAX_TOOLS:
                    raise Refused(f"It lists more than {MAX_TOOLS} tools.")
                if page.next_cursor is None:
                    break
                cursor = page.next_cursor
            else:
                raise Refused(f"Its list of tools has more than {MAX_PAGES} pages.")
        listing = Listing(tuple(found), self._details(client))
        if changes == self._changes:  # otherwise the list may be older than the change
            self._listing = listing
        return listing

    async def known_tools(self) -> Listing:
        """The tools as last listed, unless the server has announced a change since then."""
        return self._listing or await self.list_tools()

    async def call(self, call: Call) -> types.CallToolResult:
        """Send it, once. Raises Unreachable, NotAllowed, Refused, Lost, SentOn."""
        client = self._open_client()
        parameters = types.CallToolRequestParams(name=call.tool, arguments=call.arguments, _meta=call.meta or None)  # type: ignore[arg-type]
        with self.used():
            call.begin()
            answer = await self._asked(client.session.send_request(types.CallToolRequest(params=parameters), _ANSWER))
        # A result can parse as one kind while it names another: the kind it names counts.
        if answer.result_type == "input_required":
            raise Refused(ASKS)
        if not isinstance(answer, types.CallToolResult) or answer.result_type != "complete":
            raise Lost("Its answer is of an unsupported kind.")
        return answer

    async def _asked[T](self, request: Awaitable[T]) -> T:
        """What the server answers, or what is known about the request if no answer comes."""
        try:
            return await request
        except MCPError as error:
            closed = error.error.code == types.CONNECTION_CLOSED
            message = (closed and self._why_ended) or _said(error, self.target)
            if error.error.code == Trouble.NOT_ALLOWED:
                raise NotAllowed(message) from error
            if error.error.code == Trouble.SENT_ON:
                raise SentOn(message) from error
            if error.error.code in (Trouble.NOT_SENT, Trouble.FORGOTTEN):
                raise Unreachable(message) from error
            if error.error.code in _NOT_TAKEN_UP:
                raise Refused(message) from error
            raise Lost(message) from error
        except ValidationError as error:
            raise Lost("Its answer does not follow the protocol.") from error
        except Exception as error:  # the SDK gives up in many ways, all of which leave us without an answer
            raise Lost(self._why_ended or f"The connection broke off ({type(error).__name__}).") from error

    def _open_client(self) -> Client:
        if self.closed or self._closing.is_set() or self._client is None:
            raise Unreachable("The connection was lost before anything was sent.")
        return self._client

    def _details(self, client: Client) -> dict[str, str]:
        info = client.server_info
        said = {"title": info.title or info.name, "version": info.version} if info else {}
        said = redacted({**said, "protocol": client.protocol_version}, self.target.secrets)
        return {name: value[:200] for name, value in said.items()}

    def _without_secrets(self, tool: types.Tool) -> types.Tool:
        """A tool as listed, without the secrets its server was given: some servers describe how they were started."""
        if not self.target.secrets:
            return tool
        listed = tool.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return types.Tool.model_validate(redacted(listed, self.target.secrets))

    # --- The task that keeps it ------------------------------------------------------------------

    async def _keep(self, mode: Mode) -> None:
        try:
            async with AsyncExitStack() as stack:
                transport = told_apart(await self._transport(stack))
                client = Client(transport, mode=mode, cache=None, message_handler=self._heard)
                self._client = await stack.enter_async_context(client)
                self._ready.set()
                listening = asyncio.create_task(self._listen(client))
                try:
                    await self._until_idle()
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        except Exception as error:  # whatever goes wrong in the SDK or a server ends only this connection
            self._problem = _problem(error, self._why_ended, self.target)
        finally:
            self.closed = True
            self._ready.set()
            self._let_go.set()

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self.target.command is not None:
            return mcp_stdio.started(self.target.command, self._ended)
        client = await stack.enter_async_context(mcp_http.client(self.target))
        return streamable_http_client(self.target.url, http_client=client, max_sse_event_size=MAX_ANSWER_BYTES)

    def _ended(self, why: str) -> None:
        """The server's process has ended."""
        self.closed, self._why_ended = True, why
        self._closing.set()

    async def _until_idle(self) -> None:
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._closing.wait()
            except TimeoutError:
                if not self._uses and time.monotonic() - self._touched >= IDLE_SECONDS:
                    self.retire()

    async def _listen(self, client: Client) -> None:
        """Follow the stream of changes, if the protocol has a separate one. Changes would be missed otherwise."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                self._forget_listing()  # changes from before the stream was opened were not announced
                async for _ in changes:
                    self._tools_changed()
        # The stream has ended or broken off; a new connection has a new one.
        self.retire()

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._tools_changed()

    def _forget_listing(self) -> None:
        self._listing, self._changes = None, self._changes + 1

    def _tools_changed(self) -> None:
        self._forget_listing()
        if self._heeding:
            self._heard_meanwhile = True
            return
        self._heeding, self._heard_meanwhile = True, False
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, source_changes.source_changed, self.target.source)
        loop.call_later(HEEDS_CHANGES_EVERY, self._heed_again)

    def _heed_again(self) -> None:
        self._heeding = False
        if self._heard_meanwhile:
            self._tools_changed()


# The loop itself keeps only weak references to tasks.
_keepers: set["asyncio.Task[None]"] = set()


def _said(error: MCPError, target: Target) -> str:
    """The server's words, without its secrets. They are cut last: part of a secret would not be recognised."""
    return str(redacted(error.error.message, target.secrets))[:MAX_MESSAGE]


def _problem(error: Exception, why_ended: str, target: Target) -> Unreachable:
    """Why a connection could not be opened, in words for people."""
    while isinstance(error, ExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        ended = error.error.code == types.CONNECTION_CLOSED
        message = (ended and why_ended) or _said(error, target)
        if error.error.code in (Trouble.NOT_ALLOWED, Trouble.SENT_ON):
            return NotAllowed(message)
        return Unreachable(message, final=error.error.code == Trouble.REFUSED)
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
        return Unreachable(f"Its command could not be started ({error.strerror}).", final=True)
    return Unreachable(f"The connection could not be set up ({type(error).__name__}).")
