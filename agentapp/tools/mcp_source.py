"""Tools of MCP servers: turns what a server lists into contracts, and the answer to a call into a result's envelope.

What a server says about its own tools is shown to people but never trusted: each tool starts as an act that cannot be
undone, whose results may contain text from outside.
"""

import functools
import hashlib
import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agentapp.messages import MAY_HAVE_ACTED, ToolResult
from agentapp.reasons import Reason
from agentapp.tools import mcp_target, outbound, schema, source_changes
from agentapp.tools.base import OutcomeUnknown, Tool, ToolContext, ToolError
from agentapp.tools.context import Cancelled
from agentapp.tools.credentials import redacted
from agentapp.tools.results import of_value
from agentapp.tools.sources import Row, only_a_contract
from approvals.digest import canonical, storable, storable_json

if TYPE_CHECKING:  # importing the SDK takes a second, and most processes never ask a server
    import mcp_types as types

    from agentapp.tools.mcp_connection import Call, Listing

MAX_NAME, MAX_REMOTE_NAME, MAX_TITLE, MAX_DESCRIPTION, MAX_SCHEMA_BYTES = 64, 500, 500, 8000, 64 * 1024
MAX_METADATA_CHARS = 16_000
# Nobody has said which tools it overlaps with, so agents with guidance look at it with all others in view.
OVERLAP: Literal["always"] = "always"
# Where a server that acts once per key finds the key.
IDEMPOTENCY_KEY = "countersign/idempotency-key"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Offered:
    """The tools that a server lists, and why others were left out."""

    tools: list[Tool]
    left_out: list[str]


class McpTool(Tool):
    """A tool whose arguments and context go to its server rather than to a function."""

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call it. See `Tool.run`."""
        result: ToolResult = self.function(arguments, context)
        return of_value(result)


def make(row: Row) -> Tool:
    """The code that runs for a call of an MCP server's tool, made from its row."""
    return McpTool(
        name=row.name,
        description=row.description,
        input_schema=row.input_schema,
        output_schema=row.output_schema,
        wire=row.wire,
        overlap=OVERLAP,
        function=functools.partial(_call, row),
        contract=None,
    )


# --- What a server lists ----------------------------------------------------------------------


class CannotBeAsked(Exception):
    """A server did not say what it offers. The message tells people why."""


def listed(source: mcp_target.Source, seconds: float) -> "Listing":
    """What a server offers now. Raises CannotBeAsked."""
    from agentapp.tools import mcp_client
    from agentapp.tools.mcp_connection import Lost, Refused, Unreachable

    try:
        target = mcp_target.of_source(source)
    except mcp_target.NotSetUp as error:
        raise CannotBeAsked(str(error)) from error
    try:
        return mcp_client.list_tools(target, seconds)
    except (Lost, Refused, Unreachable) as error:
        raise CannotBeAsked(storable(_shown(error, target))) from error


def offered(
    source: mcp_target.Source, listed: "tuple[types.Tool, ...]", names: Mapping[str, str], taken: Container[str]
) -> Offered:
    """The contracts of what a server lists. `names` are the names its tools already have; `taken` those of others."""
    tools: list[Tool] = []
    left_out: list[str] = []
    given: set[str] = set()
    seen: set[str] = set()
    for tool in listed:
        problem = _problem(tool) or (f"{tool.name[:MAX_NAME]} is listed twice." if tool.name in seen else "")
        seen.add(tool.name)
        if problem:
            left_out.append(problem)
            continue
        name = names.get(tool.name) or _name(tool.name, source.name, {*names.values(), *given}, taken)
        given.add(name)
        tools.append(_contract(tool, name, source.location))
    return Offered(tools, left_out)


def _contract(tool: "types.Tool", name: str, location: str) -> Tool:
    claims = tool.annotations.model_dump(exclude_none=True) if tool.annotations else {}
    claims |= {"title": tool.title} if tool.title else {}
    claims |= {"title": claims["title"][:MAX_TITLE]} if "title" in claims else {}
    return McpTool(
        name=name,
        **_promise(tool),
        wire={"tool": tool.name, "server": location},
        claims=storable_json(claims),
        overlap=OVERLAP,
        function=only_a_contract,
        contract=None,
    )


def _promise(tool: "types.Tool") -> dict[str, Any]:
    """The parts of a contract that come from its server, as they are kept."""
    said = (tool.description or tool.title or f"The server does not say what {tool.name} does.").strip()
    said = said if len(said) <= MAX_DESCRIPTION else said[: MAX_DESCRIPTION - 1] + "…"
    found: dict[str, Any] = storable_json(
        {"description": said, "input_schema": tool.input_schema, "output_schema": tool.output_schema}
    )
    return found


def _problem(tool: "types.Tool") -> str:
    """Why a tool cannot be offered. Empty if it can."""
    name = storable(tool.name[:MAX_NAME])
    if tool.name != storable(tool.name) or not 0 < len(tool.name) <= MAX_REMOTE_NAME:
        return f"{name}: this name cannot be stored."
    for words, found in (("arguments", tool.input_schema), ("result", tool.output_schema)):
        if found is None:
            continue
        if len(json.dumps(found)) > MAX_SCHEMA_BYTES:
            return f"{name}: the schema of its {words} is larger than {MAX_SCHEMA_BYTES // 1024} KB."
        try:
            canonical(found)
            schema.validator(storable_json(found))
        except (schema.InvalidSchema, ValueError, RecursionError) as error:
            return f"{name}: the schema of its {words} cannot be used. {str(error)[:200]}"
    if tool.input_schema.get("type") != "object" or not isinstance(tool.input_schema.get("properties", {}), dict):
        return f"{name}: its arguments are not an object."
    return ""


def _name(remote: str, source: str, given: Container[str], taken: Container[str]) -> str:
    """A name that every provider accepts and no other tool has: its own, or its own after the source's."""
    own = _NOT_IN_NAMES.sub("_", remote) or "tool"
    digest = hashlib.sha256(f"{source} {remote}".encode()).hexdigest()[:8]
    prefixed = f"{_NOT_IN_NAMES.sub('_', source)}_{own}"
    for name in (own, prefixed, f"{prefixed[: MAX_NAME - 9]}_{digest}"):
        if len(name) <= MAX_NAME and name not in given and name not in taken:
            return name
    # Only a server that chose its names on purpose can collide here: it must not get another tool's settings.
    name, number = f"tool_{digest}", 2
    while name in given or name in taken:
        name, number = f"tool_{digest}_{number}", number + 1
    return name


# --- A call -----------------------------------------------------------------------------------


def _call(row: Row, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    from agentapp.tools import mcp_client
    from agentapp.tools.mcp_connection import Call, Late, Lost, NotAllowed, Refused, SentOn, Unreachable

    target = _target(row)
    wanted = Call(
        tool=row.wire["tool"],
        arguments=arguments,
        fits=lambda tool: tool is not None and _is_as_agreed(row, tool),
        changes_nothing=not row.consequential,
        meta={IDEMPOTENCY_KEY: context.idempotency_key} if row.idempotency == "key" else {},
    )
    try:
        answer = mcp_client.call(target, wanted, context.deadline, lambda: _stop_if_told(context, wanted))
    except mcp_client.ToolChanged:
        source_changes.source_changed(row.source.name)
        message = (
            f"The server now offers another {row.name} than people know, so nothing was sent. A person must check it."
        )
        return ToolResult("refused", message=message, reason=Reason.ACTION_CHANGED)
    except NotAllowed as error:
        return outbound.refusal(target.url, _shown(error, target))
    except Unreachable as error:
        message = f"The server could not be reached, so nothing was done. {_shown(error, target)}"
        raise ToolError(message, retryable=not error.final) from error
    except Refused as error:
        raise ToolError(f"The server did not accept the call. {_shown(error, target)}") from error
    except SentOn as error:
        may_have_acted = wanted.sent and row.consequential
        return outbound.refusal(target.url, _shown(error, target), may_have_acted=may_have_acted)
    except Lost as error:
        sent = wanted.give_up()
        if sent and row.consequential:
            raise OutcomeUnknown(f"The call was sent, but no answer came. {_shown(error, target)}") from error
        message = f"The server did not answer{'' if sent else ', so nothing was done'}. {_shown(error, target)}"
        if isinstance(error, Late):
            return ToolResult("retryable_error", message=message, reason=Reason.TOOL_TIMEOUT)
        raise ToolError(message, retryable=True) from error
    return _result(answer, target, row)


def _target(row: Row) -> mcp_target.Target:
    if row.wire.get("server") != row.source.location:
        raise ToolError(f"The source of {row.name} leads elsewhere now, so nothing was sent. A person must check it.")
    try:
        return mcp_target.of_source(row.source)
    except mcp_target.NotSetUp as error:
        raise ToolError(f"{error} Nothing was sent; a person must set it up.") from error


def _is_as_agreed(row: Row, tool: "types.Tool") -> bool:
    agreed = {
        "description": row.description,
        "input_schema": row.input_schema,
        "output_schema": row.output_schema,
    }
    return _promise(tool) == agreed


def _stop_if_told(context: ToolContext, wanted: "Call") -> None:
    if not context.cancelled.is_set():
        return
    if wanted.give_up() and not wanted.changes_nothing:
        raise OutcomeUnknown("The call was told to stop while it ran.")
    raise Cancelled


# --- Its result -------------------------------------------------------------------------------


def _result(answer: "types.CallToolResult", target: mcp_target.Target, row: Row) -> ToolResult:
    """The envelope. Structured content is preferred; otherwise every text is kept, and anything else is described."""
    blocks = [_block(block) for block in answer.content]
    texts = [block for block in blocks if isinstance(block, str)]
    data: Any = blocks[0] if len(blocks) == 1 else blocks or None
    beside: dict[str, Any] = {"meta": answer.meta} if answer.meta else {}
    if answer.structured_content is not None:
        data = answer.structured_content
        if len(texts) < len(blocks):
            beside["content"] = [block for block in blocks if not isinstance(block, str)]
    data, beside = _without_secrets(storable_json([data, beside]), target)
    if len(json.dumps(beside)) > MAX_METADATA_CHARS:
        beside = {"left_out": f"It is longer than {MAX_METADATA_CHARS} characters."}
    if answer.is_error:
        message, doubt = "The tool says that it failed.", {}
        if row.consequential:  # servers say this both of a payment whose answer was late and of refused arguments
            message, doubt = "The tool says that it failed, but not that nothing was done.", {MAY_HAVE_ACTED: True}
        return ToolResult("fatal_error", data, message, Reason.TOOL_FAILURE, metadata=beside, control=doubt)
    return ToolResult(data=data, metadata=beside)


def _block(block: "types.ContentBlock") -> Any:
    """One part of a result: text as it is, anything else described by its kind and size."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return {"type": block.type, "mime_type": block.mime_type, "bytes": _bytes(block.data)}
        case "resource":
            resource = block.resource
            found = {"type": "resource", "uri": str(resource.uri), "mime_type": resource.mime_type}
            if hasattr(resource, "text"):
                return {**found, "text": resource.text}
            return {**found, "bytes": _bytes(resource.blob)}
        case _:
            return {"type": block.type, "uri": str(block.uri), "name": block.name, "mime_type": block.mime_type}


def _bytes(encoded: str) -> int:
    """How many bytes a base64 text encodes."""
    return len(encoded.rstrip("=")) * 3 // 4


def _shown(error: Exception, target: mcp_target.Target) -> str:
    return str(_without_secrets(str(error), target))


def _without_secrets(value: Any, target: mcp_target.Target) -> Any:
    """The same value without the secrets the server was given: some servers print whatever they are given."""
    return redacted(value, set(target.secrets))
