"""Connections to MCP servers: shared, lost, reopened, and kept to where they may lead."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentapp import event_loop
from agentapp.deadline import within
from agentapp.environment import env, read_commands
from agentapp.models import Tool, ToolSource
from agentapp.reasons import Reason
from agentapp.tools import mcp_client, mcp_connection, mcp_http, mcp_source, mcp_target
from agentapp.tools.base import OutcomeUnknown, ToolError
from agentapp.tools.mcp_source import CannotBeAsked
from tests.mcp_servers import ECHO, Answer, Peer, Scripted, command, context, run, said
from tests.processes import until

# None of it depends on the tests' database.
pytestmark = pytest.mark.apart


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text()


def killed_while(peer: Peer, tool: Tool) -> BaseException:
    """How a call of `slow` ends if its server is killed once it has begun."""
    ended: list[BaseException] = []

    def call() -> None:
        try:
            run(tool, {"text": "a"})
        except BaseException as error:
            ended.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    until(lambda: peer.calls_of("slow"), "the call to begin")
    peer.kill()
    calling.join(60)
    return ended[0]


# --- Lost and reopened --------------------------------------------------------------------------


def test_a_write_whose_server_is_killed_is_unknown_and_not_sent_again(peer: Peer) -> None:
    tool = peer.tool("slow")
    assert isinstance(killed_while(peer, tool), OutcomeUnknown)
    if peer.process is not None:
        peer.serve()
    assert run(peer.tool("add"), {"a": 1, "b": 1}).data == {"sum": 2}
    assert peer.calls_of("slow") == [{"text": "a"}]


def test_a_server_that_was_killed_between_two_calls_is_connected_to_anew(peer: Peer) -> None:
    tool = peer.tool("note")
    run(tool, {"text": "before"})
    peer.kill()
    if peer.process is not None:
        peer.serve()
    run(tool, {"text": "after"})
    assert peer.calls_of("note") == [{"text": "before"}, {"text": "after"}]


def test_a_read_whose_server_ends_is_asked_for_once_more(started: Peer) -> None:
    tool = started.tool("die", "read")
    with pytest.raises(ToolError) as raised:
        run(tool, {"text": "a"})
    assert raised.value.retryable
    assert len(started.calls_of("die")) == 2


def test_a_write_that_its_server_dies_of_is_sent_once(started: Peer) -> None:
    with pytest.raises(OutcomeUnknown, match=r"The server has ended"):
        run(started.tool("die"), {"text": "a"})
    assert len(started.calls_of("die")) == 1


def test_a_server_that_cannot_be_reached_says_that_nothing_was_done(served: Peer) -> None:
    tool = served.tool("note")
    served.kill()
    with pytest.raises(ToolError, match="nothing was done") as raised:
        run(tool, {"text": "a"})
    assert raised.value.retryable
    served.serve()


def test_the_first_attempt_to_connect_may_time_out(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "CONNECT_SECONDS", 1.0)
    never, first = threading.Event(), []

    def hang_once(request: dict[str, Any]) -> Answer | None:
        if not first:
            monkeypatch.setattr(mcp_connection, "CONNECT_SECONDS", 30.0)  # for the attempts that follow
            first.append(request)
            never.wait(30)
        return 404, {}, b""

    scripted.at["server/discover"] = hang_once
    assert run(scripted.tool(), {}).data == "done"
    never.set()
    assert first


def test_a_connection_is_tried_three_times(scripted: Scripted) -> None:
    def broken(request: dict[str, Any]) -> Answer | None:
        return None

    scripted.at["initialize"] = broken
    with pytest.raises(CannotBeAsked, match="broke off"):
        mcp_source.listed(scripted.source, 30)
    assert scripted.asked.count("initialize") == 3


def test_a_command_that_is_not_there_is_said_so_at_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MCP_COMMANDS = {"gone": {**command(Path("/")), "command": ["/no/such/program"]}}
    opened: list[object] = []
    original = mcp_connection.Connection.open
    monkeypatch.setattr(mcp_connection.Connection, "open", lambda *given: opened.append(given) or original(*given))
    with pytest.raises(CannotBeAsked, match="could not be started"):
        mcp_source.listed(ToolSource(name="gone", location="stdio:gone"), 30)
    assert len(opened) == 1


# --- Shared -------------------------------------------------------------------------------------


def test_threads_share_one_connection(started: Peer) -> None:
    tool = started.tool("add", "read")
    pid = started.pid
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: run(tool, {"a": n, "b": 1}).data["sum"], range(24)))
    assert found == list(range(1, 25))
    assert started.pid == pid


def test_a_call_that_breaks_off_takes_no_other_with_it(scripted: Scripted) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def call(request: dict[str, Any]) -> Answer | None:
        if request["params"]["arguments"].get("text") == "break":
            return None
        begun.set()
        go_on.wait(30)
        return said(request, {"content": [{"type": "text", "text": "done"}]})

    scripted.at["tools/call"] = call
    tool = scripted.tool()
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(run, tool, {"text": "go on"})
        assert begun.wait(30)
        with pytest.raises(OutcomeUnknown):
            run(tool, {"text": "break"})
        go_on.set()
        assert other.result(30).data == "done"


def test_a_connection_that_is_given_up_stays_open_for_a_write_that_lists_the_tools_over_it(scripted: Scripted) -> None:
    listing, go_on, lists = threading.Event(), threading.Event(), count(1)

    def hold_one_and_break_the_next(request: dict[str, Any]) -> Answer | None:
        match next(lists):
            case 1:
                listing.set()
                go_on.wait(30)
            case 2:
                return None
        return said(request, {"tools": [ECHO]})

    scripted.at["tools/list"] = hold_one_and_break_the_next
    tool = scripted.tool()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(run, tool, {})
        assert listing.wait(30)
        assert run(tool, {}).data == "done"
        go_on.set()
        assert first.result(30).data == "done"
    assert scripted.asked.count("tools/call") == 2


def test_a_source_that_is_configured_otherwise_gets_a_connection_of_its_own(started: Peer, settings: Any) -> None:
    started.tool("note")
    before = started.pid
    settings.MCP_COMMANDS["peer"] = command(started.folder, environment={"MODE": "other"})
    started.tool("note")
    assert started.pid != before
    until(lambda: not is_alive(before), "the server that nobody asks any more to end")


def test_closing_everything_ends_the_servers_that_were_started(started: Peer) -> None:
    started.tool("note")
    pid = started.pid
    mcp_client.close_all()
    assert not is_alive(pid)


def test_a_server_that_has_said_its_last_and_stays_is_ended_all_the_same(started: Peer, settings: Any) -> None:
    settings.MCP_COMMANDS["peer"] = command(started.folder, "--lingers")
    started.tool("note")
    pid = started.pid
    mcp_client.close_all()
    assert not is_alive(pid)


# --- Held to where it may lead ------------------------------------------------------------------


class Canary:
    """Listens, and counts who connects."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    @property
    def visitors(self) -> int:
        self._socket.setblocking(False)
        try:
            self._socket.accept()
        except BlockingIOError:
            return 0
        return 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001"])
def test_an_inner_address_is_not_asked(host: str) -> None:
    canary = Canary()
    source = ToolSource(name="inner", location=f"https://{host}:{canary.port}/mcp")
    with pytest.raises(CannotBeAsked, match=r"not a public address|no address"):
        mcp_source.listed(source, 30)
    assert canary.visitors == 0


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_to_another_place_is_not_followed(scripted: Scripted, status: int) -> None:
    canary = Canary()
    where = {"Location": f"http://127.0.0.1:{canary.port}/mcp"}
    scripted.at["tools/call"] = lambda request: (status, where, b"")
    result = run(scripted.tool(), {})
    assert (result.status, result.reason) == ("fatal_error", "outcome_unknown")
    assert "only its own address" in result.message
    assert canary.visitors == 0


def test_a_redirect_within_the_server_is_followed(scripted: Scripted) -> None:
    ways = iter([(307, {"Location": "/elsewhere"}, b"")])

    def once(request: dict[str, Any]) -> Answer:
        return next(ways, None) or said(request, {"content": [{"type": "text", "text": "there"}]})

    scripted.at["tools/call"] = once
    assert run(scripted.tool(), {}).data == "there"


def test_the_credential_is_sent_and_never_shown(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "s3cret-and-long")
    scripted.source.credentials = {"bearer": "SHOP"}
    echoed = {"content": [{"type": "text", "text": "You sent Bearer s3cret-and-long."}]}
    scripted.at["tools/call"] = lambda request: said(request, echoed)
    assert run(scripted.tool(), {}).data == "You sent Bearer [redacted]."
    assert {headers["Authorization"] for headers in scripted.headers} == {"Bearer s3cret-and-long"}
    target = mcp_target.of_source(scripted.source)
    assert "s3cret" not in repr(target)


def test_a_credential_that_is_refused_is_said_so_without_it(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "s3cret-and-long")
    scripted.source.credentials = {"bearer": "SHOP"}
    scripted.at["initialize"] = lambda request: (401, {}, b"s3cret-and-long is wrong")
    with pytest.raises(CannotBeAsked, match=r"^The server answered 401: it requires another credential\.$"):
        mcp_source.listed(scripted.source, 30)
    assert scripted.asked.count("initialize") == 1


def test_a_credential_of_several_lines_is_not_sent(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "one\r\nX-Other: two")
    scripted.source.credentials = {"bearer": "SHOP"}
    with pytest.raises(CannotBeAsked, match="CREDENTIAL_SHOP cannot be sent"):
        mcp_source.listed(scripted.source, 30)
    assert scripted.headers == []


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"Content-Type": "text/html"}, b"<h1>Welcome</h1>"),
        (200, {"Content-Type": "application/json"}, b"{"),
        (200, {"Content-Type": "application/json"}, b"[" * 100_000),
        (200, {"Content-Type": "application/json"}, b"x" * 5 * 1024 * 1024),
        (200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"\x1f\x8b"),
        (202, {}, b""),
        (500, {"Content-Type": "text/plain"}, b"Traceback"),
        (502, {}, b""),
    ],
    ids=["html", "half", "deep", "large", "packed", "accepted", "500", "502"],
)
def test_an_answer_that_cannot_be_read_leaves_a_write_unknown(scripted: Scripted, answer: Answer) -> None:
    scripted.at["tools/call"] = lambda request: answer
    with pytest.raises(OutcomeUnknown):
        run(scripted.tool(), {})
    assert scripted.asked.count("tools/call") == 1


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_call_that_is_refused_at_the_door_has_done_nothing(scripted: Scripted, status: int) -> None:
    scripted.at["tools/call"] = lambda request: (status, {}, b"")
    with pytest.raises(ToolError, match=f"answered {status}"):
        run(scripted.tool(), {})


def test_a_list_without_end_is_given_up(scripted: Scripted) -> None:
    scripted.at["tools/list"] = lambda request: said(request, {"tools": [], "nextCursor": "more"})
    with pytest.raises(CannotBeAsked, match="more than 50 pages"):
        mcp_source.listed(scripted.source, 30)


def test_a_list_that_is_too_long_on_all_its_pages_together_is_given_up(scripted: Scripted) -> None:
    numbers = count(1)

    def page(request: dict[str, Any]) -> Answer:
        number = next(numbers)
        return said(request, {"tools": [{**ECHO, "name": f"n{number}", "title": "x" * 3_000_000}], "nextCursor": "on"})

    scripted.at["tools/list"] = page
    with pytest.raises(CannotBeAsked, match="longer than 8388608 bytes"):
        mcp_source.listed(scripted.source, 30)
    assert scripted.asked.count("tools/list") == 3


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the deadline of whatever is being waited for be over, however quick or slow this machine is."""
    ahead = [0.0]
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))

    def pass_by() -> None:
        ahead[0] += 3600.0

    return pass_by


def test_a_server_that_hangs_is_given_up_at_the_deadline(scripted: Scripted, time_is_up: Any) -> None:
    never, tool = threading.Event(), scripted.tool()
    run(tool, {})
    scripted.at["tools/call"] = lambda request: time_is_up() or (never.wait(60) and None)
    with pytest.raises(OutcomeUnknown, match="in time"):
        within(60, run, tool, {}, context(seconds=60))
    never.set()


def test_a_server_that_has_hung_once_is_asked_over_a_new_connection(scripted: Scripted, time_is_up: Any) -> None:
    never, tool = threading.Event(), scripted.tool()
    run(tool, {})
    scripted.at["tools/call"] = lambda request: time_is_up() or (never.wait(60) and None)
    scripted.at["notifications/cancelled"] = lambda request: never.wait(60) and None
    with pytest.raises(OutcomeUnknown, match="in time"):
        within(60, run, tool, {}, context(seconds=60))
    until(lambda: "notifications/cancelled" in scripted.asked, "the server to be told")
    scripted.at.clear()
    assert run(tool, {}).data == "done"
    assert scripted.asked.count("initialize") == 2
    never.set()


def test_a_server_whose_list_was_not_waited_for_is_asked_over_a_new_connection(scripted: Scripted) -> None:
    never = threading.Event()
    scripted.at["tools/list"] = lambda request: never.wait(60) and None
    with pytest.raises(CannotBeAsked, match="did not list its tools within"):
        mcp_source.listed(scripted.source, 1)
    scripted.at.clear()
    assert mcp_source.listed(scripted.source, 30).tools
    assert scripted.asked.count("initialize") == 2
    never.set()


def test_a_started_server_that_hangs_makes_way_for_a_new_one(
    started: Peer, time_is_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, before = started.tool("add", "read"), started.pid
    os.kill(before, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        # Whichever it is asked first: for its tools, if the list is no longer believed, or to call one.
        asked = mcp_connection.Connection._asked
        patched.setattr(mcp_connection.Connection, "_asked", lambda *request: time_is_up() or asked(*request))
        hung = within(60, run, tool, {"a": 1, "b": 2}, context(seconds=60))
    assert hung.reason == Reason.TOOL_TIMEOUT
    assert run(tool, {"a": 1, "b": 2}).data == {"sum": 3}
    assert started.pid != before
    until(lambda: not is_alive(before), "the server that hangs to end")


def test_a_server_that_does_not_let_go_holds_up_no_end(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    never, limits = threading.Event(), []

    def limit(seconds: float) -> asyncio.Timeout:
        limits.append((asyncio.get_running_loop(), asyncio.timeout(seconds)))
        return limits[-1][1]

    def hang(request: dict[str, Any]) -> None:
        for loop, limited in limits:  # it is over once the server has been told
            loop.call_soon_threadsafe(limited.reschedule, loop.time())
        never.wait(60)

    monkeypatch.setattr(mcp_http, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": limit}))
    monkeypatch.setattr(mcp_http, "PARTS_WITHIN", 60.0)
    scripted.greets_with = {"Mcp-Session-Id": "one"}
    scripted.at["DELETE"] = hang
    run(scripted.tool(), {})
    mcp_client.close_all()
    assert scripted.asked[-1] == "DELETE"
    never.set()


def test_a_stream_that_ends_at_once_is_not_asked_for_all_the_time(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "STREAMS_AT_ONCE", 3)
    monkeypatch.setattr(mcp_http, "STREAMS_EVERY", 3600.0)
    scripted.greets_with = {"Mcp-Session-Id": "one"}
    scripted.at["GET"] = lambda request: (200, {"Content-Type": "text/event-stream"}, b"retry: 0\n\n")
    tool = scripted.tool("read")
    run(tool, {})
    until(lambda: scripted.asked.count("GET") >= 3, "the stream to be asked for")
    for _ in range(50):
        run(tool, {})
    assert scripted.asked.count("GET") == 3


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_a_write_whose_server_hangs_before_it_is_sent_has_done_nothing(
    scripted: Scripted, method: str, time_is_up: Any
) -> None:
    never = threading.Event()
    scripted.at[method] = lambda request: time_is_up() or (never.wait(60) and None)
    result = within(60, run, scripted.tool(), {}, context(seconds=60))
    assert (result.status, result.reason) == ("retryable_error", "tool_timeout")
    assert "nothing was done" in result.message
    assert "tools/call" not in scripted.asked
    never.set()


# --- The setting --------------------------------------------------------------------------------


def test_commands_are_read_from_one_setting() -> None:
    found = read_commands('{"files": {"command": ["node", "server.js"], "credentials": {"TOKEN": "FILES"}}}')
    assert found["files"] == {
        "command": ["node", "server.js"], "cwd": "/", "environment": {}, "inherit": ["PATH"],
        "credentials": {"TOKEN": "FILES"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        "[]", "{", '{"A b": {"command": ["x"]}}', '{"a": {"command": "rm -rf /"}}', '{"a": {"command": []}}',
        '{"a": {"command": ["x"], "shell": true}}', '{"a": {"command": ["x"], "environment": {"A": 1}}}',
        '{"a": {"command": ["x"], "inherit": "PATH"}}', '{"a": "x"}',
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_read_is_refused_without_repeating_it(
    raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_COMMANDS", raw)
    with pytest.raises(ImproperlyConfigured) as raised:
        env("MCP_COMMANDS", {}, read_commands, "commands")
    assert "rm -rf" not in str(raised.value)


@pytest.mark.parametrize(
    "location", ["", "stdio:unknown", "ftp://a.test/", "file:///etc/passwd", "https://u:p@a.test/", "https://"]
)
def test_a_location_that_leads_nowhere_is_said_so(location: str, settings: Any) -> None:
    settings.MCP_COMMANDS = {}
    assert mcp_target.problem_of(location)
    with pytest.raises(CannotBeAsked):
        mcp_source.listed(ToolSource(name="nowhere", location=location), 5)
