"""Requests to configured addresses reach only what they may, however the address is written or resolved."""

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpcore2
import httpx2
import pytest

from agentapp.tools import mcp_http, outbound
from agentapp.tools.outbound import OutboundRefused, Outside, client, fetch, is_public, post
from approvals import certificates
from tests.absent import refusing, silent
from tests.processes import until

HERE = (ipaddress.ip_network("127.0.0.0/24"),)


class Server:
    """A real server on loopback. `answers` maps a path to status, headers and body; `asked` is what came in."""

    def __init__(self, address: str) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers["Host"]))
                status, headers, body = server.answers.get(self.path, (200, {}, b"hello"))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://{address}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[str], Server]]:
    made: list[Server] = []

    def start(address: str = "127.0.0.1") -> Server:
        made.append(Server(address))
        return made[-1]

    yield start
    for server in made:
        server.close()


# --- Addresses ---------------------------------------------------------------------------------

NOT_OUTSIDE = [
    *(
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "127.1",
        "0x7f000001",
        "0x7f.1",
        "2130706433",
        "127.0.0.1.",
        "0.0.0.0",
        "0",
    ),
    *("10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "168.63.129.16", "192.0.2.1"),
    *("198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "127。0。0。1"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[::7f00:1]"),
    *("[0:0:0:0:0:ffff:0a00:0001]", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::808:808]"),
    *("[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2001:0:7f00:1::]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]"),
    *("[fec0::1]", "[ff02::1]", "[2001:db8::1]", "[100::1]", "[5f00::1]", "[3fff::1]"),
]


@pytest.mark.parametrize("host", NOT_OUTSIDE)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_form_of_an_inner_address_is_reached(host: str, scheme: str) -> None:
    with pytest.raises((OutboundRefused, httpx2.InvalidURL)):
        Outside().address_of(httpx2.URL(f"{scheme}://{host}/"))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1:70/", "data:text/plain,x", "javascript:x",
        "//8.8.8.8/", "/etc/passwd", "", "https://", "https:///path", "https://user:secret@8.8.8.8/", "https://8.8.8.8@127.0.0.1/",
        "https://a..b/", "http://[::1/", "https://0177.0.0.1/", "https://name.invalid/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(OutboundRefused) as refused:
        fetch(url, Outside(), 100)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_a_public_host_is_asked_over_https_only() -> None:
    assert str(Outside().address_of(httpx2.URL("https://8.8.8.8/"))) == "8.8.8.8"
    with pytest.raises(OutboundRefused, match="https only"):
        Outside().address_of(httpx2.URL("http://8.8.8.8/"))


def test_only_hosts_that_are_listed_are_asked() -> None:
    outside = Outside(hosts=frozenset({"8.8.8.8"}))
    assert outside.address_of(httpx2.URL("https://8.8.8.8/"))
    with pytest.raises(OutboundRefused, match="not among the hosts"):
        outside.address_of(httpx2.URL("https://8.8.4.4/"))


# --- Names whose answer is not to be trusted ----------------------------------------------------


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], list[str]]]:
    """Names and a resolver's answers for them. All others are resolved as usual."""
    told: dict[str, Callable[[], list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host not in told:
            return real(host, port, *rest, **more)
        return [answer for address in told[host]() for answer in real(address, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return told


def test_one_inner_address_among_public_ones_is_enough_to_refuse(names: dict[str, Any]) -> None:
    names["shop.example"] = lambda: ["8.8.8.8", "127.0.0.1"]
    with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1"):
        Outside().address_of(httpx2.URL("https://shop.example/"))


@pytest.mark.parametrize("written", ["faß.example", "xn--fa-hia.example"])
def test_a_name_beyond_ascii_is_looked_up_as_it_is_sent(written: str, names: dict[str, Any]) -> None:
    # Older rules read it as another name, which anybody may have registered.
    names["xn--fa-hia.example"] = lambda: ["8.8.8.8"]
    names["fass.example"] = names["faß.example"] = lambda: ["8.8.4.4"]
    for listed in ("faß.example", "xn--fa-hia.example"):
        outside = Outside(hosts=frozenset({listed}))
        assert str(outside.address_of(httpx2.URL(f"https://{written}/"))) == "8.8.8.8"


def test_a_name_that_changes_its_answer_leads_nowhere_else(serve: Any, names: dict[str, Any]) -> None:
    allowed, canary = serve("127.0.0.2"), serve("127.0.0.3")
    flips = iter(range(1000))
    names["flip.example"] = lambda: ["127.0.0.2" if next(flips) % 2 == 0 else "127.0.0.3"]
    outside = Outside(networks=(ipaddress.ip_network("127.0.0.2/32"),))
    # The canary listens where a second lookup of the name would lead.
    url = f"http://flip.example:{allowed.port}/"
    refused = 0
    for _ in range(100):
        try:
            assert fetch(url, outside, 100) == b"hello"
        except OutboundRefused:
            refused += 1
    assert (len(allowed.asked), refused, canary.asked) == (50, 50, [])
    assert {host for _, host in allowed.asked} == {f"flip.example:{allowed.port}"}


# --- Answers -----------------------------------------------------------------------------------


def test_a_named_network_is_reached_without_encryption(serve: Any) -> None:
    server = serve()
    assert fetch(f"{server.url}/a", Outside(networks=HERE), 100) == b"hello"
    with pytest.raises(OutboundRefused):
        fetch(f"{server.url}/a", Outside(), 100)
    assert [path for path, _ in server.asked] == ["/a"]


@pytest.mark.parametrize(
    "target", ["http://127.1.0.1:{port}/", "http://169.254.169.254/", "file:///etc/passwd", "http://[::1]:{port}/"]
)
def test_a_redirect_is_a_request_like_the_first(serve: Any, target: str) -> None:
    server, canary = serve(), serve("127.1.0.1")
    server.answers["/"] = (302, {"Location": target.format(port=canary.port)}, b"")
    with pytest.raises(OutboundRefused):
        fetch(f"{server.url}/", Outside(networks=HERE), 100)
    assert canary.asked == []


def test_a_redirect_to_another_host_is_refused_where_hosts_are_listed(serve: Any) -> None:
    server, other = serve(), serve("127.0.0.2")
    server.answers["/"] = (307, {"Location": f"{other.url}/"}, b"")
    with pytest.raises(OutboundRefused, match="not among"):
        fetch(f"{server.url}/", Outside(frozenset({"127.0.0.1"}), HERE), 100)
    assert other.asked == []


def test_redirects_end(serve: Any) -> None:
    server = serve()
    server.answers["/"] = (302, {"Location": "/"}, b"")
    with pytest.raises(OutboundRefused):
        fetch(f"{server.url}/", Outside(networks=HERE), 100)
    assert len(server.asked) == 4


def test_an_answer_is_cut_off_where_it_is_too_long(serve: Any) -> None:
    server = serve()
    server.answers["/"] = (200, {}, b"x" * 101)
    with pytest.raises(OutboundRefused, match="longer than 100 bytes"):
        fetch(f"{server.url}/", Outside(networks=HERE), 100)
    server.answers["/"] = (200, {}, b"x" * 100)
    assert len(fetch(f"{server.url}/", Outside(networks=HERE), 100)) == 100


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_never_comes_to_an_end_is_waited_for_no_longer(said: bytes) -> None:
    """It sends something all the time, so that no single wait is long."""
    done = threading.Event()

    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(said)
            while not done.wait(0.02):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        talking = threading.Thread(target=talk, args=[listener])
        talking.start()
        try:
            with pytest.raises(OutboundRefused, match=r"took longer than 0\.2 seconds"):
                fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/", Outside(networks=HERE), 10**6, seconds=0.2)
        finally:
            done.set()
            talking.join()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda url: outbound._read(url, Outside(networks=HERE), 10, 0.05), r"took longer than 0\.05 seconds"),
        (lambda url: outbound._posted(url, Outside(networks=HERE), b"", {}, 10, 0.05), r"No answer came in 0\.05 s"),
    ],
    ids=["fetch", "post"],
)
def test_a_silence_as_long_as_all_the_time_there_is_is_said_to_be_too_long(ask: Any, words: str) -> None:
    """The limit of the one wait may be noticed before the limit of the whole."""
    with silent() as server, pytest.raises(OutboundRefused, match=words):
        ask(f"http://127.0.0.1:{server.port}/")


def _get(url: str) -> None:
    with client(Outside(networks=HERE), 0.2) as asking:
        asking.get(url)


ASKING: dict[str, Callable[[str], object]] = {
    "fetch": lambda url: fetch(url, Outside(networks=HERE), 10**6, seconds=0.2),
    "post": lambda url: post(url, Outside(networks=HERE), b"{}", {}, 2000, 0.2),
    "client": _get,
}


@pytest.mark.parametrize("how", ASKING)
def test_who_is_not_waited_for_any_more_is_read_no_longer(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its headers never end. Neither a thread nor a connection stays behind."""
    monkeypatch.setattr(outbound, "_CUT_AFTER_SECONDS", 0.1)
    before, done, left = set(threading.enumerate()), threading.Event(), threading.Event()

    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Said: ")
                while not done.wait(0.02):
                    connection.sendall(b"a")
            except OSError:
                left.set()

    def ask(url: str) -> None:
        with contextlib.suppress(OutboundRefused, httpx2.HTTPError):
            ASKING[how](url)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        talking = threading.Thread(target=talk, args=[listener])
        asking = threading.Thread(target=ask, args=[f"http://127.0.0.1:{listener.getsockname()[1]}/"])
        talking.start()
        asking.start()
        try:
            until(left.is_set, "the connection to end")
            # Those of the loop of all connections stay, and come when others need them.
            until(
                lambda: not [one for one in set(threading.enumerate()) - before if "asyncio_" not in one.name],
                "the threads to end",
            )
        finally:
            done.set()
            talking.join()
            asking.join()


def test_a_packed_answer_is_not_unpacked(serve: Any) -> None:
    server = serve()
    server.answers["/"] = (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b")
    with pytest.raises(OutboundRefused, match="compressed"):
        fetch(f"{server.url}/", Outside(networks=HERE), 100)


@pytest.mark.parametrize("status", [204, 401, 404, 500])
def test_an_answer_that_is_none_says_its_status(serve: Any, status: int) -> None:
    server = serve()
    server.answers["/"] = (status, {}, b"")
    with pytest.raises(OutboundRefused, match=str(status)):
        fetch(f"{server.url}/", Outside(networks=HERE), 100)


def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    with refusing() as port, pytest.raises(OutboundRefused, match="could not be reached"):
        fetch(f"http://127.0.0.1:{port}/", Outside(networks=HERE), 100)


def test_the_environment_names_no_proxy(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, proxy = serve(), serve("127.0.0.2")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    assert fetch(f"{server.url}/", Outside(networks=HERE), 100) == b"hello"
    assert proxy.asked == []


def test_a_body_that_is_sent_arrives_at_the_host_that_was_named(serve: Any) -> None:
    server = serve()
    with client(Outside(networks=HERE), 5.0) as asking:
        assert asking.get(f"{server.url}/x", params={"a": "ü"}).text == "hello"
    assert server.asked == [("/x?a=%C3%BC", f"127.0.0.1:{server.port}")]


def test_no_client_reads_the_authorities_of_the_machine_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again(**_: Any) -> None:
        raise AssertionError("read again")

    certificates.trusted()
    monkeypatch.setattr(httpcore2, "default_ssl_context", read_again)
    client(Outside(), 1).close()
    mcp_http.GuardedTransport(Outside())
