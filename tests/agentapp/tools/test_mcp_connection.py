"""One connection to an MCP server: how long its list of tools is trusted, and what its server says unasked."""

import json
from typing import Any

import pytest

from agentapp.reasons import Reason
from agentapp.tools import mcp_client, mcp_connection, source_changes
from tests.mcp_servers import ECHO, Answer, Peer, Scripted, run, said
from tests.processes import until

# None of it depends on the tests' database.
pytestmark = pytest.mark.apart


# --- The list that is kept ----------------------------------------------------------------------


def test_a_read_that_a_kept_list_does_not_have_as_agreed_is_looked_for_in_a_new_one(scripted: Scripted) -> None:
    tool = scripted.tool("read")
    run(tool, {})
    scripted.at["tools/list"] = lambda request: said(request, {"tools": [{**ECHO, "description": "Say it again."}]})
    tool.description = "Say it again."
    assert run(tool, {}).data == "done"
    tool.description = "Say it twice."
    assert run(tool, {}).reason == Reason.ACTION_CHANGED


def test_a_list_is_not_kept_that_its_server_changes_meanwhile(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(source_changes, "source_changed", told.append)

    def change_meanwhile(request: dict[str, Any]) -> Answer:
        del scripted.at["tools/list"]
        changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        status, _, listed = said(request, {"tools": [ECHO]})
        return status, {"Content-Type": "text/event-stream"}, f"data: {changed}\n\ndata: {listed.decode()}\n\n".encode()

    scripted.at["tools/list"] = change_meanwhile
    for _ in range(3):
        run(scripted.tool("read"), {})
    assert told
    assert scripted.asked.count("tools/list") == 2


def test_a_connection_whose_stream_of_changes_ends_makes_way_for_a_new_one(started: Peer) -> None:
    change, before = started.tool("change"), started.pid
    # A client that has just connected may not be listening yet.
    until(lambda: run(change, {}) and started.pid != before, "a new connection")


# --- What a server says by itself ---------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources whose change a worker was told of, by earlier connections too."""
    found: list[str] = []
    monkeypatch.setattr(source_changes, "source_changed", found.append)
    mcp_client.close_all()  # kept connections may have been told of a change just now
    return found


def test_a_change_of_tools_is_told_to_a_worker(peer: Peer, told: list[str]) -> None:
    change = peer.tool("change")
    # A client that has just connected may not be listening yet.
    until(lambda: run(change, {"note": None}) and peer.source.name in told, "the change to be told")


def test_a_change_soon_after_another_is_told_as_well(
    started: Peer, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "HEEDS_CHANGES_EVERY", 3.0)
    monkeypatch.setattr(started.source, "name", "told twice")
    change = started.tool("change")
    until(lambda: run(change, {"note": None}) and told.count("told twice"), "the first change to be told")
    run(change, {"add": None})
    until(lambda: told.count("told twice") > 1, "the second change to be told")
