"""An MCP server for tests: does, and does wrong, what it is told.

`mcp_peer.py FOLDER` speaks on its standard streams, with `--port` over HTTP, with `--old` the protocol from before
2026. FOLDER/log lists what its tools did; FOLDER/tools.json overrides what they promise below (null: gone).
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("folder", type=Path)
OPTIONS.add_argument("--port", type=int)
OPTIONS.add_argument("--old", action="store_true")
OPTIONS.add_argument("--lingers", action="store_true", help="say nothing more once the input ends, and stay")
GIVEN = OPTIONS.parse_args()
FOLDER: Path = GIVEN.folder
PAGE = 7
BUS = InMemorySubscriptionBus()
LISTENERS = ListenHandler(BUS)
# The SDK takes standard output for itself.
WIRE = os.dup(1)

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "add": {
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
    },
    "note": {"description": "Write a note.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    "order": {
        "description": "Order things.",
        "inputSchema": {
            "type": "object",
            "properties": {"lines": {"type": "array", "items": {"type": "object"}}, "to": {"type": "object"}},
        },
    },
    "slow": {"description": "Take a minute.", "inputSchema": TEXT},
    "die": {"description": "Note, and end without an answer.", "inputSchema": TEXT},
    "fail": {"description": "Fail, and say so.", "inputSchema": NOTHING},
    "reject": {"description": "Answer with an error of the protocol.", "inputSchema": {"type": "object"}},
    "texts": {"description": "Several texts.", "inputSchema": NOTHING},
    "picture": {"description": "A text, a picture and a file.", "inputSchema": NOTHING},
    "large": {"description": "A large text.", "inputSchema": {"type": "object", "properties": {"kb": {}}}},
    "noise": {"description": "Print what is no message.", "inputSchema": NOTHING},
    "flood": {"description": "A line without end.", "inputSchema": NOTHING},
    "environment": {"description": "What it was started with.", "inputSchema": NOTHING},
    "asks": {"description": "Ask the client for roots, a sample and a form.", "inputSchema": NOTHING},
    "change": {
        "description": "Change what the tools promise, or end word of it.",
        "inputSchema": {"type": "object"},
    },
    "shop.find/all": {"description": "A name that no provider takes.", "inputSchema": NOTHING},
}


def note(*words: object) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(json.dumps(words) + "\n")


def promised() -> list[types.Tool]:
    said = FOLDER / "tools.json"
    changed = json.loads(said.read_text()) if said.exists() else {}
    merged = {name: {**TOOLS.get(name, {}), **(changed.get(name) or {})} for name in {**TOOLS, **changed}}
    return [
        types.Tool.model_validate({"name": name, **described})
        for name, described in merged.items()
        if changed.get(name, {}) is not None
    ]


async def list_tools(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    start = int(params.cursor) if params is not None and params.cursor else 0
    tools = promised()
    following = str(start + PAGE) if start + PAGE < len(tools) else None
    return types.ListToolsResult(tools=tools[start : start + PAGE], next_cursor=following)


def said(*texts: str, **others: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], **others)


async def call_tool(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    meta = dict(params.meta or {})
    note(params.name, arguments, {name: meta[name] for name in meta if name.startswith("countersign/")})
    match params.name:
        case "add":
            total = arguments["a"] + arguments["b"]
            return said(str(total), structured_content={"sum": total}, _meta={"took": "no time"})
        case "slow":
            try:
                await anyio.sleep(60)
            except anyio.get_cancelled_exc_class():
                note("slow was cancelled")
                raise
        case "die":
            os._exit(1)
        case "fail":
            return said("The account is closed.", is_error=True)
        case "reject":
            raise MCPError(arguments.get("code", types.INVALID_PARAMS), "There is no such account.")
        case "texts":
            return said("one", "two", "three")
        case "picture":
            return picture()
        case "large":
            return said("x" * 1024 * int(arguments["kb"]))
        case "noise":
            os.write(WIRE, b'Listening on port 7000\n{"jsonrpc": \n[1, 2]\n')
        case "flood":
            await anyio.to_thread.run_sync(os.write, WIRE, b"x" * 5 * 1024 * 1024)
            await anyio.sleep(60)
        case "environment":
            return said(json.dumps({"environment": dict(os.environ), "folder": os.getcwd()}))
        case "asks":
            return said(json.dumps(await answers_of(context)))
        case "change" if not arguments:
            LISTENERS.close()
        case "change":
            (FOLDER / "tools.json").write_text(json.dumps(arguments))
            await tell(context)
    return said(f"done {arguments.get('text', '')}".strip())


def picture() -> types.CallToolResult:
    encoded = base64.b64encode(b"\x89PNG" + b"\0" * 996).decode()
    text = types.TextResourceContents(uri="file:///notes.txt", mime_type="text/plain", text="a note")
    blob = types.BlobResourceContents(uri="file:///data.bin", mime_type="application/x-data", blob=encoded)
    return types.CallToolResult(
        content=[
            types.TextContent(text="Here."),
            types.ImageContent(data=encoded, mime_type="image/png"),
            types.AudioContent(data=encoded, mime_type="audio/wav"),
            types.EmbeddedResource(resource=text),
            types.EmbeddedResource(resource=blob),
            types.ResourceLink(uri="file:///more.txt", name="more"),
        ]
    )


async def answers_of(context: ServerRequestContext[Any]) -> dict[str, str]:
    """What a client answers when it is asked for something in the middle of a call."""
    asked = {
        "roots": types.ListRootsRequest(),
        "sample": types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[], max_tokens=5)),
    }
    found = {}
    for name, request in asked.items():
        try:
            await context.session.send_request(request, types.Result)
            found[name] = "answered"
        except Exception as error:
            found[name] = str(error)
    return found


async def tell(context: ServerRequestContext[Any]) -> None:
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await BUS.publish(ToolsListChanged())
    else:
        await context.session.send_tool_list_changed()


def server() -> Server[Any]:
    return Server(
        "peer",
        version="1.0",
        title="A peer",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=LISTENERS,
    )


NEW = "server/discover"
UNKNOWN = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")


async def on_standard_streams() -> None:
    made = server()
    options = made.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (reading, writing), anyio.create_task_group() as group:
        forward, heard = anyio.create_memory_object_stream[Any](0)

        async def filtered() -> None:
            """Answers what an old server does not know: the SDK would take it for the new protocol's greeting."""
            async with forward:
                async for item in reading:
                    if GIVEN.old and getattr(item.message, "method", "") == NEW:
                        unknown = types.JSONRPCError(jsonrpc="2.0", id=item.message.id, error=UNKNOWN)
                        await writing.send(SessionMessage(unknown))
                    else:
                        await forward.send(item)

        group.start_soon(filtered)
        await made.run(heard, writing, options)


class Old:
    """The same over HTTP."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", []))
        if GIVEN.old and headers.get(b"mcp-method") == NEW.encode():
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.app(scope, receive, send)


if __name__ == "__main__":
    (FOLDER / "pid").write_text(str(os.getpid()))
    print(f"Started with {dict(os.environ)}", file=sys.stderr, flush=True)
    if GIVEN.port:
        uvicorn.run(Old(server().streamable_http_app()), host="127.0.0.1", port=GIVEN.port, log_level="warning")
    else:
        asyncio.run(on_standard_streams())
    if GIVEN.lingers:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(1)
        os.closerange(3, 256)  # the copies of it
        signal.pause()
