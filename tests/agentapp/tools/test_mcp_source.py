"""Tools of MCP servers: what is made of a list, what is sent, and what is made of an answer."""

import asyncio
import json
import threading
from typing import Any

import mcp_types as types
import pytest

from agentapp.models import ToolSource
from agentapp.reasons import Reason
from agentapp.tools import mcp_source
from agentapp.tools.base import OutcomeUnknown, ToolError
from agentapp.tools.context import Cancelled
from agentapp.tools.mcp_connection import Call
from tests.mcp_servers import ECHO, Peer, Scripted, command, context, run
from tests.mcp_servers import said as answered
from tests.processes import until

# None of it depends on the tests' database.
pytestmark = pytest.mark.apart

SOURCE = ToolSource(name="files-of-ours", kind="mcp", location="stdio:files")
ANYTHING = {"type": "object", "properties": {"path": {"type": "string"}}}


def listed(*names: str, **fields: Any) -> tuple[types.Tool, ...]:
    described = {"description": "Does something.", "inputSchema": ANYTHING, **fields}
    return tuple(types.Tool.model_validate({"name": name, **described}) for name in names)


def names(*remote: str, known: dict[str, str] | None = None, taken: tuple[str, ...] = ()) -> list[str]:
    return [tool.name for tool in mcp_source.offered(SOURCE, listed(*remote), known or {}, taken).tools]


# --- What a server lists ------------------------------------------------------------------------


def test_every_page_of_a_list_is_read_and_its_schemas_are_kept(peer: Peer) -> None:
    listing = mcp_source.listed(peer.source, 30)
    offered = mcp_source.offered(peer.source, listing.tools, {}, set())
    tools = {tool.wire["tool"]: tool for tool in offered.tools}
    assert len(tools) == 16
    assert offered.left_out == []
    assert tools["order"].input_schema["properties"] == {
        "lines": {"type": "array", "items": {"type": "object"}},
        "to": {"type": "object"},
    }
    assert tools["add"].output_schema == {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
    }
    assert listing.details["title"] == "A peer"
    assert listing.details["protocol"] == ("2025-11-25" if peer.options else "2026-07-28")


def test_what_a_server_claims_of_a_tool_is_kept_and_lowers_nothing(started: Peer) -> None:
    offered = mcp_source.offered(started.source, mcp_source.listed(started.source, 30).tools, {}, set())
    note = next(tool for tool in offered.tools if tool.name == "note")
    assert note.claims == {"read_only_hint": True}
    assert note.effect is None
    assert note.trust == "untrusted_content"
    assert (note.idempotency, note.overlap) == ("none", "always")


def test_a_tool_gets_a_name_that_every_provider_takes() -> None:
    assert names("shop.find/all", "größe") == ["shop_find_all", "gr__e"]
    (long,) = names("x" * 200)
    assert len(long) == 64


def test_no_names_that_a_server_chooses_lead_to_another_tools_row() -> None:
    wanted = "x" * 100
    [third] = names(wanted, taken=())
    fourth = f"tool_{third.rpartition('_')[2]}"
    # As if people knew the tool, and had declared that it only reads.
    known = {third: third, fourth: fourth}
    assert names(third, fourth, wanted, known=known) == [third, fourth, f"{fourth}_2"]


def test_what_a_tool_is_called_is_kept_at_a_length_that_people_read() -> None:
    (tool,) = mcp_source.offered(SOURCE, listed("a", title="x" * 20_000), {}, set()).tools
    (other,) = mcp_source.offered(SOURCE, listed("a", annotations={"title": "x" * 20_000}), {}, set()).tools
    assert tool.claims == other.claims == {"title": "x" * 500}


def test_a_name_that_another_has_is_told_apart_by_its_source() -> None:
    assert names("read", taken=("read",)) == ["files-of-ours_read"]
    assert names("read.it", "read/it") == ["read_it", "files-of-ours_read_it"]
    assert len(set(names("read", "x" * 100, "x" * 101, taken=("read", "files-of-ours_read")))) == 3


def test_a_tool_keeps_the_name_it_has() -> None:
    assert names("read", known={"read": "files-of-ours_read"}) == ["files-of-ours_read"]
    assert names("a.b", "a/b", known={"a/b": "a_b"}) == ["files-of-ours_a_b", "a_b"]


def test_what_cannot_be_offered_is_left_out_with_the_reason() -> None:
    tools = (
        *listed("number", inputSchema={"type": "object", "properties": {"n": {"type": "numbre"}}}),
        *listed("remote", inputSchema={"type": "object", "properties": {"n": {"$ref": "https://a.test/s.json"}}}),
        *listed("text", inputSchema={"type": "string"}),
        *listed("large", inputSchema={"type": "object", "description": "x" * 70_000}),
        *listed("result", outputSchema={"type": "objekt"}),
        *listed("good", "good"),
    )
    offered = mcp_source.offered(SOURCE, tools, {}, set())
    assert [tool.name for tool in offered.tools] == ["good"]
    assert [sentence.split()[0].rstrip(":") for sentence in offered.left_out] == [
        "number", "remote", "text", "large", "result", "good",
    ]  # fmt: skip


def test_a_description_is_held_to_a_length_and_to_what_can_be_stored() -> None:
    (tool,) = mcp_source.offered(SOURCE, listed("a", description="\0" + "x" * 20_000), {}, set()).tools
    assert len(tool.description) == mcp_source.MAX_DESCRIPTION
    assert "\0" not in tool.description


# --- Results ------------------------------------------------------------------------------------


def test_a_structured_result_is_preferred_and_metadata_is_kept_apart(peer: Peer) -> None:
    result = run(peer.tool("add"), {"a": 2, "b": 3})
    assert (result.status, result.data) == ("ok", {"sum": 5})
    assert result.metadata["meta"]["took"] == "no time"


def test_every_text_of_a_result_is_kept(started: Peer) -> None:
    assert run(started.tool("texts"), {}).data == ["one", "two", "three"]


def test_what_is_no_text_is_described_by_its_kind_and_size(started: Peer) -> None:
    text, image, audio, note, file, link = run(started.tool("picture"), {}).data
    assert text == "Here."
    assert image == {"type": "image", "mime_type": "image/png", "bytes": 1000}
    assert (audio["type"], audio["bytes"]) == ("audio", 1000)
    assert note["text"] == "a note"
    assert (file["uri"], file["bytes"]) == ("file:///data.bin", 1000)
    assert (link["type"], link["uri"]) == ("resource_link", "file:///more.txt")


def test_a_tool_that_says_it_failed_is_an_error_with_its_words(peer: Peer) -> None:
    result = run(peer.tool("fail"), {})
    assert (result.status, result.reason) == ("fatal_error", Reason.TOOL_FAILURE)
    assert result.data == "The account is closed."


def test_a_write_that_its_tool_says_failed_may_have_acted_and_a_read_has_not(peer: Peer) -> None:
    written, read = run(peer.tool("fail"), {}), run(peer.tool("fail", "read"), {})
    assert (written.doubt, read.doubt) == ({"may_have_acted": True}, {})
    assert "not that nothing was done" in written.message
    assert read.message == "The tool says that it failed."


def test_a_call_that_the_server_would_not_take_has_done_nothing(peer: Peer) -> None:
    with pytest.raises(ToolError, match=r"did not accept the call\. There is no such account") as raised:
        run(peer.tool("reject"), {})
    assert not raised.value.retryable


def test_an_error_that_does_not_say_whether_it_acted_leaves_a_write_unknown(peer: Peer) -> None:
    with pytest.raises(OutcomeUnknown, match="There is no such account"):
        run(peer.tool("reject"), {"code": types.INTERNAL_ERROR})
    with pytest.raises(ToolError) as raised:
        run(peer.tool("reject", "read"), {"code": types.INTERNAL_ERROR})
    assert raised.value.retryable


def test_a_result_beyond_the_limit_names_it(peer: Peer) -> None:
    with pytest.raises(ToolError, match="4194304 byte"):
        run(peer.tool("large", "read"), {"kb": 5000})
    with pytest.raises(OutcomeUnknown, match="4194304 byte"):
        run(peer.tool("large"), {"kb": 5000})


def test_a_line_without_end_ends_the_connection_and_not_the_worker(started: Peer) -> None:
    with pytest.raises(OutcomeUnknown, match="4194304 byte"):
        run(started.tool("flood"), {})
    assert run(started.tool("add"), {"a": 1, "b": 1}).data == {"sum": 2}


def test_lines_that_are_no_message_are_passed_over(started: Peer) -> None:
    assert run(started.tool("noise"), {}).data == "done"


@pytest.mark.parametrize(
    ("kind", "told", "words"),
    [
        ({"resultType": "input_required", "requestState": "s"}, ToolError, "did not accept the call"),
        ({"resultType": "task"}, OutcomeUnknown, "of an unsupported kind"),
    ],
)
def test_an_answer_that_looks_like_a_result_is_of_the_kind_that_it_names(
    scripted: Scripted, kind: dict[str, Any], told: type[Exception], words: str
) -> None:
    kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    scripted.at["server/discover"] = lambda request: answered(request, {**found, **kept})
    scripted.at["tools/list"] = lambda request: answered(request, {"tools": [ECHO], **kept})
    scripted.at["tools/call"] = lambda request: answered(request, {"content": [], **kind})
    with pytest.raises(told, match=words):
        run(scripted.tool(), {})
    assert scripted.asked.count("tools/call") == 1


def test_one_that_asks_for_something_in_between_does_so_in_every_protocol(scripted: Scripted) -> None:
    asks = {"content": [], "resultType": "input_required", "requestState": "s"}
    scripted.at["tools/call"] = lambda request: answered(request, asks)
    with pytest.raises(ToolError, match=r"did not accept the call\. It asks for more input"):
        run(scripted.tool(), {})
    assert scripted.asked.count("tools/call") == 1
    scripted.at["tools/call"] = lambda request: answered(request, {"content": [], "resultType": "complete"})
    assert run(scripted.tool(), {}).status == "ok"
    assert scripted.asked.count("initialize") == 1


# --- What is sent -------------------------------------------------------------------------------


def test_a_server_gets_the_environment_it_is_given_and_no_other(
    started: Peer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "s3cret-and-long")
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-servers")
    monkeypatch.setenv("REGION", "north")
    settings.MCP_COMMANDS["peer"] = command(
        started.folder, cwd=str(started.folder), environment={"MODE": "test"}, inherit=["PATH", "REGION", "ABSENT"],
        credentials={"SHOP_TOKEN": "SHOP"},
    )  # fmt: skip
    said = json.loads(run(started.tool("environment"), {}).data)
    assert said["folder"] == str(started.folder)
    # Python itself may set how it reads text.
    assert set(said["environment"]) - {"LC_CTYPE"} == {"PATH", "REGION", "MODE", "SHOP_TOKEN"}
    assert said["environment"]["SHOP_TOKEN"] == "[redacted]"


def test_a_credential_that_is_not_set_is_named_and_nothing_is_sent(started: Peer, settings: Any) -> None:
    tool = started.tool("note")
    settings.MCP_COMMANDS["peer"] = command(started.folder, credentials={"SHOP_TOKEN": "SHOP"})
    with pytest.raises(ToolError, match="CREDENTIAL_SHOP is not set here"):
        run(tool, {"text": "a"})
    assert started.calls_of("note") == []


def test_the_key_of_a_call_goes_along_where_the_tool_honours_it(peer: Peer) -> None:
    run(peer.tool("note"), {"text": "a"})
    run(peer.tool("note", idempotency="key"), {"text": "b"})
    notes = [words for words in peer.log if words[0] == "note"]
    assert [words[2] for words in notes] == [{}, {"countersign/idempotency-key": "key-1"}]


def test_a_tool_that_the_server_has_changed_is_not_called(peer: Peer) -> None:
    tool = peer.tool("note")
    peer.promise(note={"description": "Write a note, and send it to everybody."})
    result = run(tool, {"text": "a"})
    assert (result.status, result.reason) == ("refused", Reason.ACTION_CHANGED)
    peer.promise(note=None)
    assert run(tool, {"text": "a"}).status == "refused"
    assert peer.calls_of("note") == []


def test_a_tool_whose_source_leads_elsewhere_now_is_not_called(started: Peer, settings: Any) -> None:
    tool = started.tool("note")
    settings.MCP_COMMANDS["other"] = settings.MCP_COMMANDS["peer"]
    tool.source.location = "stdio:other"
    with pytest.raises(ToolError, match="leads elsewhere now"):
        run(tool, {"text": "a"})
    assert started.calls_of("note") == []


def test_a_server_that_asks_for_something_in_between_is_told_no(peer: Peer) -> None:
    answers = json.loads(run(peer.tool("asks"), {}).data)
    assert set(answers) == {"roots", "sample"}
    assert "answered" not in answers.values()


# --- Being told to stop -------------------------------------------------------------------------


def stopped_while(peer: Peer, effect_class: str) -> BaseException:
    """How a call ends that is told to stop once it has begun."""
    tool, told, ended = peer.tool("slow", effect_class), threading.Event(), []

    def call() -> None:
        try:
            run(tool, {"text": "a"}, context(told))
        except BaseException as error:
            ended.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    until(lambda: peer.calls_of("slow"), "the call to begin")
    told.set()
    calling.join(30)
    return ended[0]


def test_a_write_that_is_told_to_stop_is_unknown_and_its_server_is_told(peer: Peer) -> None:
    assert isinstance(stopped_while(peer, "irreversible"), OutcomeUnknown)
    until(lambda: ["slow was cancelled"] in peer.log, "the server to be told")


def test_a_read_that_is_told_to_stop_has_done_nothing(peer: Peer) -> None:
    assert isinstance(stopped_while(peer, "read"), Cancelled)
    until(lambda: ["slow was cancelled"] in peer.log, "the server to be told")


def test_a_call_that_is_given_up_is_not_sent_and_one_that_is_sent_says_so_to_who_gives_it_up() -> None:
    given_up, sent = (Call("note", {}, fits=lambda tool: True) for _ in range(2))
    assert not given_up.give_up()
    with pytest.raises(asyncio.CancelledError):
        given_up.begin()
    assert not given_up.sent
    sent.begin()
    assert sent.give_up()
