"""MCP servers written by others: listed, called, killed, restarted."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentapp.models import Tool, ToolSource
from agentapp.refreshing import refresh
from agentapp.tools import mcp_client, mcp_source
from agentapp.tools.base import OutcomeUnknown
from agentapp.tools.mcp_connection import Call
from benchmarks.servers import free_port
from tests.conftest import Clerk, call, calls, says
from tests.mcp_servers import LOOPBACK, answers, context, run
from tests.processes import until

# One of them needs a database, and any will do.
pytestmark = pytest.mark.apart

PEERS = Path(__file__).parents[3] / ".peers/node_modules/@modelcontextprotocol"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    mcp_client.close_all()


def start(settings: Any, *words: str) -> ToolSource:
    """The source of a server that the product starts."""
    settings.MCP_COMMANDS = {
        "theirs": {"command": list(words), "cwd": "/", "environment": {}, "inherit": ["PATH"], "credentials": {}}
    }
    return ToolSource(name="theirs", kind="mcp", location="stdio:theirs")


def tools(source: ToolSource, effect_class: str = "irreversible") -> dict[str, Tool]:
    offered = mcp_source.offered(source, mcp_source.listed(source, 60).tools, {}, set())
    assert offered.left_out == []
    return {
        tool.wire["tool"]: Tool(
            source=source, name=tool.name, description=tool.description, input_schema=tool.input_schema,
            output_schema=tool.output_schema, wire=tool.wire, effect_class=effect_class,
        )
        for tool in offered.tools
    }  # fmt: skip


def node() -> str:
    found = shutil.which("node")
    assert found is not None, "these servers need Node"
    assert PEERS.exists(), "make test brings these servers into .peers/"
    return found


@pytest.fixture
def everything(settings: Any) -> ToolSource:
    return start(settings, node(), str(PEERS / "server-everything/dist/index.js"), "stdio")


# --- From npm -----------------------------------------------------------------------------------


@pytest.mark.peers
def test_everything_is_listed_and_called(everything: ToolSource) -> None:
    found = tools(everything)
    assert {"echo", "get-sum", "get-structured-content", "get-tiny-image", "get-env"} <= set(found)
    assert run(found["echo"], {"message": "hi"}).data == "Echo: hi"
    assert "5" in run(found["get-sum"], {"a": 2, "b": 3}).data
    weather = run(found["get-structured-content"], {"location": "New York"})
    assert set(weather.data) == {"temperature", "conditions", "humidity"}
    kinds = [block["type"] for block in run(found["get-tiny-image"], {}).data if isinstance(block, dict)]
    assert kinds == ["image"]


@pytest.mark.peers
def test_everything_sees_no_variable_that_was_not_named(
    everything: ToolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "a-canary-of-the-worker")
    printed = run(tools(everything)["get-env"], {}).data
    assert "PATH" in printed
    assert "a-canary-of-the-worker" not in printed
    assert "HOME" not in printed


@pytest.mark.peers
def test_everything_says_what_is_wrong_with_arguments(everything: ToolSource) -> None:
    result = run(tools(everything)["get-sum"], {"a": "two", "b": 3})
    assert result.status == "fatal_error"


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., BaseException]:
    """How a call that takes a minute ends if something happens to it once it was sent."""
    called: list[Call] = []
    original = mcp_client.call

    def noted(target: Any, wanted: Any, *others: Any) -> Any:
        called.append(wanted)
        return original(target, wanted, *others)

    monkeypatch.setattr(mcp_client, "call", noted)

    def ended_with(tool: Tool, then: Callable[[], None], told: threading.Event | None = None) -> BaseException:
        called.clear()
        with ThreadPoolExecutor(1) as threads:
            calling = threads.submit(run, tool, {"duration": 60, "steps": 60}, context(told))
            until(lambda: called and called[0].sent, "the call to be sent")
            then()
            error = calling.exception(60)
        assert error is not None
        return error

    return ended_with


@pytest.mark.peers
def test_everything_is_killed_in_the_middle_and_started_anew(everything: ToolSource, ends_with: Any) -> None:
    found = tools(everything)
    ended = ends_with(found["trigger-long-running-operation"], lambda: kill_child("everything"))
    assert isinstance(ended, OutcomeUnknown)
    assert run(found["echo"], {"message": "back"}).data == "Echo: back"


def kill_child(word: str) -> None:
    """Kill the one process we have started with this word in its command."""
    mine = subprocess.run(
        ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    (pid,) = [int(line.split()[0]) for line in mine.stdout.splitlines() if word in line]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.peers
def test_everything_is_told_to_stop(everything: ToolSource, ends_with: Any) -> None:
    found, told = tools(everything), threading.Event()
    assert isinstance(ends_with(found["trigger-long-running-operation"], told.set, told), OutcomeUnknown)
    assert run(found["echo"], {"message": "still here"}).data == "Echo: still here"


@pytest.fixture
def everything_served(settings: Any) -> Iterator[tuple[ToolSource, list[Any]]]:
    """The same over streamable HTTP, and a function that restarts it."""
    settings.OUTBOUND_NETWORKS = [LOOPBACK]
    port, started = free_port(), []

    def serve() -> None:
        for process in started:
            process.kill()
            process.wait()
        command = [node(), str(PEERS / "server-everything/dist/index.js"), "streamableHttp"]
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stdout=quiet, stderr=quiet))
        until(lambda: answers(port), "the server to listen")

    serve()
    yield ToolSource(name="theirs", kind="mcp", location=f"http://127.0.0.1:{port}/mcp"), serve
    mcp_client.close_all()
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.peers
def test_everything_over_http_is_listed_called_and_started_anew(everything_served: Any, ends_with: Any) -> None:
    source, start_anew = everything_served
    found = tools(source)
    assert run(found["echo"], {"message": "hi"}).data == "Echo: hi"
    assert isinstance(ends_with(found["trigger-long-running-operation"], start_anew), OutcomeUnknown)
    assert run(found["echo"], {"message": "back"}).data == "Echo: back"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "files"
    found.mkdir()
    (found / "letter.txt").write_text("Dear Ana")
    return found


@pytest.mark.peers
def test_a_file_is_read_and_none_outside_of_the_folder(settings: Any, folder: Path) -> None:
    source = start(settings, node(), str(PEERS / "server-filesystem/dist/index.js"), str(folder))
    found = tools(source, "read")
    read = run(found["read_text_file"], {"path": str(folder / "letter.txt")})
    assert "Dear Ana" in str(read.data)
    refused = run(found["read_text_file"], {"path": "/etc/hostname"})
    assert refused.status == "fatal_error"
    assert "denied" in str(refused.data)


@pytest.mark.peers
def test_a_file_is_written_once_a_person_has_approved(clerk: Clerk, dana: Any, settings: Any, folder: Path) -> None:
    source = start(settings, node(), str(PEERS / "server-filesystem/dist/index.js"), str(folder))
    source.save()
    assert refresh(source, "test").problem == ""
    clerk.agent.tools.set(Tool.objects.filter(source=source))
    new = folder / "answer.txt"
    arguments = {"path": str(new), "content": "Dear shop"}
    started = clerk.run(calls(call("a", "write_file", **arguments)), says("done"))
    assert not new.exists()
    (approval,) = clerk.open(started)
    clerk.decide(approval, dana)
    assert clerk.drive(started).state == "succeeded"
    assert new.read_text() == "Dear shop"
    assert clerk.execution(started, "a").result_status == "ok"


# --- From PyPI ----------------------------------------------------------------------------------


def test_the_time_is_told(settings: Any) -> None:
    source = start(settings, sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")
    found = tools(source, "read")
    result = run(found["get_current_time"], {"timezone": "Europe/Berlin"})
    assert (result.status, "Europe/Berlin" in str(result.data)) == ("ok", True)
    assert run(found["get_current_time"], {"timezone": "Nowhere"}).status == "fatal_error"


def test_a_repository_is_looked_at_and_committed_to(settings: Any, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=Ana", "-c", "user.email=ana@example.test"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "a.txt").write_text("one")
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "-qm", "One"], check=True)
    (repository / "a.txt").write_text("two")
    source = start(settings, sys.executable, "-m", "mcp_server_git", "--repository", str(repository))
    found = tools(source)
    assert "a.txt" in str(run(found["git_status"], {"repo_path": str(repository)}).data)
    run(found["git_add"], {"repo_path": str(repository), "files": ["a.txt"]})
    shown = subprocess.run([*git, "diff", "--cached", "--name-only"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "a.txt"
