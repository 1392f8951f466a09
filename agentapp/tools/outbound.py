"""Requests to addresses that people configure. They never reach an internal network that the settings do not name.

A name is resolved here, all of its addresses are checked, and the connection goes to one of those: a name that resolves
differently in the meantime changes nothing. A redirect is checked like the first request. Nothing is taken from the
environment, because a proxy would resolve names by itself.
"""

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import httpx2

from agentapp.deadline import DeadlineExceeded, within
from agentapp.messages import Note, ToolResult
from agentapp.reasons import Reason
from approvals import certificates

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network

MAX_REDIRECTS = 3
# The waiting side gives up first and says why. Only then is what it left behind cut.
_CUT_AFTER_SECONDS = 1.0
# Not public, although Python says so: a cloud's own services, and ranges reserved for other purposes.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("168.63.129.16/32", "fec0::/10", "5f00::/16", "3fff::/20", "::ffff:0:0:0/96"))
)
# IPv6 forms that lead, through a gateway, to the IPv4 address they contain.
_EMBEDDING = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))


class OutboundRefused(Exception):
    """A request may not be made, or its answer not be accepted. The message tells the person who configured it why."""


@dataclass(frozen=True)
class Outside:
    """Where requests may go: to these hosts, or to any if empty; to public addresses and those in `networks`.

    Plain http may go only to `networks`.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def address_of(self, url: httpx2.URL) -> Address:
        """The address to connect to. Raises OutboundRefused unless every address the host has may be reached."""
        if url.scheme not in ("http", "https"):
            raise OutboundRefused(f"{url.scheme or 'This'} is not a way to reach a server: give an https address.")
        if url.userinfo:
            raise OutboundRefused("The address contains a user name or password: give them as a credential.")
        # A name with non-ASCII characters is looked up as it is sent: read differently, it may be another host.
        asked, host = ascii_host(url).rstrip(".").lower(), url.host.rstrip(".").lower()
        if self.hosts and self.hosts.isdisjoint({asked, host}):
            raise OutboundRefused(f"{host} is not among the hosts that may be asked: {', '.join(sorted(self.hosts))}.")
        found = _resolved(asked, url.port or (443 if url.scheme == "https" else 80))
        for address in found:
            if not self._is_named(address):
                if not is_public(address):
                    raise OutboundRefused(f"{host} leads to {address}, which is not a public address.")
                if url.scheme == "http":
                    raise OutboundRefused(f"{host} may be asked over https only.")
        return found[0]

    def _is_named(self, address: Address) -> bool:
        return any(address in network for network in self.networks if network.version == address.version)


def ascii_host(url: httpx2.URL) -> str:
    """The host of an address as it is sent in a request."""
    return url.raw_host.decode("ascii")


def is_public(address: Address) -> bool:
    """Whether an address, and any address embedded in it, belongs to the public network."""
    inner = _inner(address)
    set_aside = address.is_multicast or any(address in network for network in _NOT_PUBLIC)
    return address.is_global and not set_aside and (inner is None or is_public(inner))


def _inner(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if any(address in network for network in _EMBEDDING):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def _resolved(host: str, port: int) -> list[Address]:
    if not host:
        raise OutboundRefused("The address names no host.")
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [ipaddress.ip_address(str(answer[4][0]).split("%")[0]) for answer in answers]
    except (OSError, UnicodeError, ValueError) as error:
        raise OutboundRefused(f"{host} has no address.") from error


class _Connections:
    """A client's connections, cut when its time is up, which ends the wait of anything that reads.

    httpx2 limits only each single wait: a server that sends a byte now and then, even of its headers, would be
    read for ever, by a thread that nobody waits for any more.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_over = False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def note(self, event: str, said: Mapping[str, Any]) -> None:
        """Called by httpx2 for each thing it does."""
        if event != "connection.connect_tcp.complete":
            return
        connected = said["return_value"].get_extra_info("socket")
        with self._lock:
            # A duplicate of our own: TLS replaces the original, and a closed descriptor's number may be reused.
            self._open.append(connected.dup())
            if self._is_over:
                _shut(connected)

    def let_go(self) -> None:
        self._timer.cancel()
        with self._lock:
            while self._open:
                self._open.pop().close()

    def _cut(self) -> None:
        with self._lock:
            self._is_over = True
            for connected in self._open:
                _shut(connected)


def _shut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the server closed it first
        connected.shutdown(socket.SHUT_RDWR)


class GuardedTransport(httpx2.BaseTransport):
    """Connects to the address that was checked, and requests the named host from it. Reads for a limited time."""

    def __init__(self, outside: Outside, seconds: float) -> None:
        self._outside = outside
        self._connections = _Connections(seconds)
        # A connection is for one host: two names at the same address do not share it.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._inner = httpx2.HTTPTransport(verify=certificates.trusted(), trust_env=False, limits=limits)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        address = self._outside.address_of(request.url)
        return self._inner.handle_request(
            httpx2.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=request.headers,  # with the original Host
                stream=request.stream,
                extensions={
                    **request.extensions,
                    "sni_hostname": ascii_host(request.url),
                    "trace": self._connections.note,
                },
            )
        )

    def close(self) -> None:
        self._connections.let_go()
        self._inner.close()


def client(outside: Outside, seconds: float) -> httpx2.Client:
    """A client that reaches only `outside`; the caller closes it. `seconds` limits each wait of a request and, with a
    little more, the request as a whole.
    """
    return httpx2.Client(
        transport=GuardedTransport(outside, seconds + _CUT_AFTER_SECONDS),
        timeout=seconds,
        trust_env=False,
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        # A compressed answer could be any size once decompressed.
        headers={"Accept-Encoding": "identity"},
    )


def refusal(url: str, why: str, *, may_have_acted: bool = False) -> ToolResult:
    """The result of a call to this address that was not let out, with a note for the record.

    `may_have_acted`: its server received the call and redirected it to an address that is not allowed.
    """
    note = Note("outbound.refused", {"host": httpx2.URL(url).host[:253], "why": why[:500]})
    if may_have_acted:
        message = f"The call was sent, but no answer came. {why}"
        return ToolResult("fatal_error", None, message, Reason.OUTCOME_UNKNOWN, notes=(note,))
    message = f"The request was not allowed out, so nothing was done: {why} A person must check it."
    return ToolResult("fatal_error", None, message, Reason.TOOL_FAILURE, notes=(note,))


def fetch(url: str, outside: Outside, max_bytes: int, seconds: float = 10.0) -> bytes:
    """A document from the outside, within limits of size and time. Raises OutboundRefused."""
    try:
        # A server can send a byte now and then, even of its headers, where nothing else limits the time.
        return within(seconds, _read, url, outside, max_bytes, seconds)
    except DeadlineExceeded as error:
        raise OutboundRefused(f"The answer took longer than {seconds:g} seconds.") from error


@dataclass(frozen=True)
class Answer:
    """What a server answered: its status and the beginning of its text."""

    status: int
    beginning: str


def post(
    url: str, outside: Outside, content: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
) -> Answer:
    """Post some bytes, and read the beginning of the answer. Redirects are not followed. Raises OutboundRefused."""
    try:
        return within(seconds, _posted, url, outside, content, headers, max_bytes, seconds)
    except DeadlineExceeded as error:
        raise OutboundRefused(f"No answer came in {seconds:g} seconds.") from error


def _posted(
    url: str, outside: Outside, content: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
) -> Answer:
    until, found = time.monotonic() + seconds, b""
    try:
        with (
            client(outside, seconds) as asking,
            asking.stream("POST", url, content=content, headers=dict(headers), follow_redirects=False) as response,
        ):
            for part in response.iter_raw():
                found += part
                if len(found) >= max_bytes or time.monotonic() > until:
                    break
    except httpx2.InvalidURL as error:
        raise OutboundRefused(f"This is not an address: {error}") from error
    except httpx2.HTTPError as error:
        raise _unanswered(error, f"No answer came in {seconds:g} seconds.") from error
    return Answer(response.status_code, found[:max_bytes].decode(errors="replace"))


def _read(url: str, outside: Outside, max_bytes: int, seconds: float) -> bytes:
    until, parts, size = time.monotonic() + seconds, [], 0
    try:
        with client(outside, seconds) as asking, asking.stream("GET", url) as response:
            if response.status_code != httpx2.codes.OK:
                raise OutboundRefused(f"The server answered {response.status_code}.")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise OutboundRefused("The server compressed its answer although it was asked not to.")
            for part in response.iter_raw():
                parts.append(part)
                size += len(part)
                if size > max_bytes:
                    raise OutboundRefused(f"The answer is longer than {max_bytes} bytes.")
                if time.monotonic() > until:
                    raise OutboundRefused(f"The answer took longer than {seconds:g} seconds.")
    except httpx2.InvalidURL as error:
        raise OutboundRefused(f"This is not an address: {error}") from error
    except httpx2.HTTPError as error:
        raise _unanswered(error, f"The answer took longer than {seconds:g} seconds.") from error
    return b"".join(parts)


def _unanswered(error: httpx2.HTTPError, late: str) -> OutboundRefused:
    """One silence can last as long as all the time there is: which of the two is noticed first makes no difference."""
    if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout):
        return OutboundRefused(late)
    return OutboundRefused(f"The server could not be reached ({type(error).__name__}).")
