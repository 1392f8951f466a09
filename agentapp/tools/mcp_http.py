"""Requests to an MCP server over HTTP: checked by the guard of outbound addresses, with every failure as an answer.

When one request fails in transit, the SDK gives up the connection and with it everybody else's calls. So such failures
are answered here, in the protocol's own form, with a code that says whether the server can have acted.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from enum import IntEnum

import httpx2

from agentapp.tools.mcp_target import Target
from agentapp.tools.outbound import MAX_REDIRECTS, OutboundRefused, Outside, ascii_host
from approvals import certificates

MAX_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_SECONDS = 10.0
# Each call has its own deadline; this ends requests that a server leaves open with nobody waiting.
READ_SECONDS = 3600.0
# How long a server has to hear that a request or the connection was given up.
PARTS_WITHIN = 3.0
# The SDK requests streams as quickly after one another as a server tells it to. So many at once, then one per interval.
STREAMS_AT_ONCE, STREAMS_EVERY = 10, 1.0
# Statuses sent before anything is done, so nothing was.
_REFUSALS = {401: "it requires another credential", 403: "it forbids this", 429: "it has had too many requests"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Redirects that repeat the same request.
_UNDONE = frozenset({307, 308})
_SESSION = "mcp-session-id"


class Trouble(IntEnum):
    """Our own codes, outside the ranges reserved by JSON-RPC and MCP."""

    NOT_ALLOWED = -31901
    """The server may not be asked from here, or redirects the request, not carried out, to where we may not go."""
    NOT_SENT = -31902
    REFUSED = -31903
    FORGOTTEN = -31904
    """The server no longer knows this connection."""
    BROKEN_OFF = -31905
    SENT_ON = -31906
    """The server redirects us for the answer, without saying what it has done itself."""


class Unreadable(httpx2.StreamError):
    """An answer that broke off or is too long. A StreamError, which the SDK treats as a single bad answer."""


def client(target: Target) -> httpx2.AsyncClient:
    """A client that reaches nothing but this target's server, within limits of time and size."""
    # A compressed answer could be any size once decompressed.
    headers = {"Accept-Encoding": "identity"}
    if target.bearer:
        headers["Authorization"] = f"Bearer {target.bearer}"
    return httpx2.AsyncClient(
        transport=GuardedTransport(target.outside),
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
        trust_env=False,
        max_redirects=MAX_REDIRECTS,
        headers=headers,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to the address that was checked, and requests the named host from it."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        # A connection is for one host: two names at the same address do not share it.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._stream_due = -math.inf
        self._inner = httpx2.AsyncHTTPTransport(verify=certificates.trusted(), trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            await self._in_turn()
        if request.method != "DELETE":
            return await self._answered(request)
        try:
            async with asyncio.timeout(PARTS_WITHIN):
                response = await self._answered(request)
                await response.aclose()  # nothing the server says after this matters
        except TimeoutError:
            return _answer(Trouble.BROKEN_OFF, f"The server did not end the session within {PARTS_WITHIN:g} s.")
        return httpx2.Response(response.status_code)

    async def _in_turn(self) -> None:
        """Wait if streams are requested without pause: all connections share one loop."""
        now = asyncio.get_running_loop().time()
        self._stream_due = max(self._stream_due, now - STREAMS_AT_ONCE * STREAMS_EVERY) + STREAMS_EVERY
        if self._stream_due > now:
            await asyncio.sleep(self._stream_due - now)

    async def _answered(self, request: httpx2.Request) -> httpx2.Response:
        try:
            address = await asyncio.to_thread(self._outside.address_of, request.url)
        except OutboundRefused as error:
            return _answer(Trouble.NOT_ALLOWED, str(error))
        onward = httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,  # with the original Host
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": ascii_host(request.url)},
        )
        try:
            response = await self._inner.handle_async_request(onward)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _answer(Trouble.NOT_SENT, f"The server does not answer ({type(error).__name__}).")
        except httpx2.TransportError as error:
            return _answer(Trouble.BROKEN_OFF, f"The connection broke off ({type(error).__name__}).")
        refusal = _refusal(request, response) or await asyncio.to_thread(self._sent_on, request, response)
        if refusal is not None:
            await response.aclose()
            return refusal
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        # The reader limits the size of each event: a stream of them may be open for hours.
        limit = None if events else MAX_ANSWER_BYTES
        packed = response.headers.get("content-encoding", "identity").lower() != "identity"
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=[(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"],
            stream=_Bounded(response.stream, 0 if packed else limit),
            extensions=response.extensions,
        )

    def _sent_on(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response | None:
        """Why a server's redirect is not followed. None if there is none, or if it stays on the same server."""
        if response.status_code not in _REDIRECTS or "location" not in response.headers:
            return None
        try:
            where = request.url.join(response.headers["location"])
        except httpx2.InvalidURL:
            return _answer(Trouble.SENT_ON, "The server redirects to something that is not an address.")
        if _is_within(request.url, where):
            return None
        why = f"The server redirects to {where.host or 'nowhere'}, but only its own address may be asked."
        try:
            self._outside.address_of(where)
        except OutboundRefused as error:
            why = f"The server redirects: {error}"
        return _answer(Trouble.NOT_ALLOWED if response.status_code in _UNDONE else Trouble.SENT_ON, why)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """An answer of limited size. One that is compressed, although the server was asked not to, is not read at all."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._inner, self._limit = inner, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._inner:
                size += len(part)
                if self._limit is not None and size > self._limit:
                    raise Unreadable(f"The answer is compressed, or longer than {MAX_ANSWER_BYTES} bytes.")
                yield part
        except httpx2.TransportError as error:
            raise Unreadable(f"The answer broke off ({type(error).__name__}).") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def _refusal(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response | None:
    """Why a server refused a request outright. None if it accepted it, or says itself what is wrong."""
    status = response.status_code
    if status in _REFUSALS:
        return _answer(Trouble.REFUSED, f"The server answered {status}: {_REFUSALS[status]}.", status)
    if status == httpx2.codes.NOT_FOUND and _SESSION in request.headers:
        return _answer(Trouble.FORGOTTEN, "The server no longer knows this connection.", status)
    return None


def _is_within(url: httpx2.URL, where: httpx2.URL) -> bool:
    """Whether a redirect stays on the server, or only becomes safer. The SDK then follows it if it can."""
    if where.userinfo and where.userinfo != url.userinfo:
        return False
    safer = (url.scheme, url.port, where.scheme, where.port) == ("http", None, "https", None)
    return url.host == where.host and (safer or (url.scheme, url.port) == (where.scheme, where.port))


def _answer(code: Trouble, message: str, status: int = httpx2.codes.BAD_GATEWAY) -> httpx2.Response:
    """An answer that the SDK takes for the server's own, to the one request that failed."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=json.dumps(body).encode())
