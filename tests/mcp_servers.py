"""MCP servers for tests: our own peer in a process, and an HTTP server that answers as a test tells it to."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from agentapp.models import Tool, ToolSource
from agentapp.tools import mcp_client, mcp_source
from agentapp.tools.base import ToolContext
from benchmarks.servers import free_port
from tests.processes import until

SCRIPT = Path(__file__).with_name("mcp_peer.py")
LOOPBACK = ip_network("127.0.0.0/8")


class Peer:
    """A server, what its tools did, and the row of the source that leads to it."""

    def __init__(self, folder: Path, location: str, *options: str) -> None:
        self.folder, self.location, self.options = folder, location, options
        self.source = ToolSource(name="peer", kind="mcp", location=location)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> list[list[Any]]:
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls_of(self, tool: str) -> list[Any]:
        return [words[1] for words in self.log if words[0] == tool]

    @property
    def pid(self) -> int:
        """The process started last."""
        return int((self.folder / "pid").read_text())

    def promise(self, **changes: Any) -> None:
        """Have the tools promise something else, as in note={"description": "…"}, or remove one: note=None."""
        (self.folder / "tools.json").write_text(json.dumps(changes))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def serve(self) -> None:
        """Start it, unless the product starts it."""
        port = self.source.location.rpartition(":")[2].partition("/")[0]
        log = (self.folder / "output").open("ab")
        command = [sys.executable, str(SCRIPT), str(self.folder), "--port", port, *self.options]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: answers(int(port)), "the peer to listen")

    def tool(self, remote: str, effect_class: str = "irreversible", **columns: Any) -> Tool:
        """The row of one of its tools, as listed now."""
        offered = mcp_source.offered(self.source, mcp_source.listed(self.source, 30).tools, {}, set())
        found = next(tool for tool in offered.tools if tool.wire["tool"] == remote)
        return Tool(
            source=self.source, name=found.name, description=found.description, input_schema=found.input_schema,
            output_schema=found.output_schema, wire=found.wire, version=found.version,
            effect_class=effect_class, **columns,
        )  # fmt: skip


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def context(cancelled: threading.Event | None = None, seconds: float = 60, **fields: Any) -> ToolContext:
    return ToolContext(
        run_id="r1", step=1, call_id="c1", agent="clerk", conversation_id="", customer="", actor="", route="",
        idempotency_key="key-1", deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        cancelled=cancelled or threading.Event(), **fields,
    )  # fmt: skip


def run(tool: Tool, arguments: dict[str, Any], told: ToolContext | None = None) -> Any:
    return mcp_source.make(tool).run(arguments, told or context())


def command(folder: Path, *options: str, **described: Any) -> dict[str, Any]:
    words = [sys.executable, str(SCRIPT), str(folder), *options]
    return {"command": words, "cwd": "/", "environment": {}, "inherit": ["PATH"], "credentials": {}, **described}


def forgotten(peer: Peer) -> None:
    for name in ("log", "tools.json"):
        (peer.folder / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def kept_peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Peer]]:
    """Servers shared by all tests of a module: each takes a second to start."""
    found: dict[str, Peer] = {}
    yield found
    mcp_client.close_all()
    for peer in found.values():
        if peer.process is not None:
            peer.process.kill()
            peer.process.wait()


def kept(kind: str, peers: dict[str, Peer], factory: pytest.TempPathFactory, settings: Any) -> Peer:
    options = ["--old"] if "old" in kind else []
    if kind not in peers:
        folder = factory.mktemp("peer")
        served = f"http://127.0.0.1:{free_port()}/mcp" if "served" in kind else ""
        peers[kind] = Peer(folder, served or "stdio:peer", *options)
        # A source has one connection, and each kind keeps its own.
        peers[kind].source.name = f"peer-{len(peers)}"
        if served:
            peers[kind].serve()
    peer = peers[kind]
    peer.source.location = peer.location
    settings.MCP_COMMANDS = {"peer": command(peer.folder, *options)}
    settings.OUTBOUND_NETWORKS = [LOOPBACK]
    forgotten(peer)
    return peer


@pytest.fixture
def started(kept_peers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory, settings: Any) -> Peer:
    """A server that the product starts, as a command from the settings."""
    return kept("started", kept_peers, tmp_path_factory, settings)


@pytest.fixture
def served(kept_peers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory, settings: Any) -> Peer:
    """A server reached over HTTP."""
    return kept("served", kept_peers, tmp_path_factory, settings)


@pytest.fixture(params=["started", "started, old", "served", "served, old"])
def peer(request: Any, kept_peers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory, settings: Any) -> Peer:
    """A server reached in either way, with either protocol."""
    return kept(request.param, kept_peers, tmp_path_factory, settings)


# --- A server that answers as a test tells it to ------------------------------------------------

type Answer = tuple[int, dict[str, str], bytes]
ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


class Scripted:
    """Speaks the old protocol by hand. `at` maps a method to a function from the request to the answer."""

    def __init__(self) -> None:
        self.at: dict[str, Callable[[dict[str, Any]], Answer | None]] = {}
        self.greets_with: dict[str, str] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                scripted.headers.append(dict(self.headers))
                scripted.asked.append(body.get("method", ""))
                self.answer(scripted.answer(body))

            def do_GET(self) -> None:
                scripted.asked.append("GET")
                self.answer(scripted.at["GET"]({}) if "GET" in scripted.at else (405, {}, b""))

            def do_DELETE(self) -> None:
                scripted.asked.append("DELETE")
                self.answer(scripted.at["DELETE"]({}) if "DELETE" in scripted.at else (200, {}, b""))

            def answer(self, found: Answer | None) -> None:
                if found is None:  # break off
                    self.close_connection = True
                    return
                status, headers, body = found
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                # The client hangs up once it has read enough.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.source = ToolSource(name="scripted", kind="mcp", location=self.url)

    def answer(self, request: dict[str, Any]) -> Answer | None:
        method = request.get("method", "")
        if method in self.at:
            return self.at[method](request)
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }  # fmt: skip
            return said(request, result, **self.greets_with)
        if method == "tools/list":
            result = {"tools": [ECHO]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
        else:
            return 202 if "id" not in request else 400, {}, b""
        return said(request, result)

    def tool(self, effect_class: str = "irreversible") -> Tool:
        described = {"description": "The server does not say what echo does.", "input_schema": ECHO["inputSchema"]}
        wire = {"tool": "echo", "server": self.source.location}
        return Tool(source=self.source, name="echo", **described, wire=wire, effect_class=effect_class)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def said(request: dict[str, Any], result: dict[str, Any], **headers: str) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
    return 200, {"Content-Type": "application/json", **headers}, body


@pytest.fixture
def scripted(settings: Any) -> Iterator[Scripted]:
    settings.OUTBOUND_NETWORKS = [LOOPBACK]
    found = Scripted()
    yield found
    mcp_client.close_all()
    found.close()
