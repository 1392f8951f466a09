"""Converts our messages to the client library's, and its response to our reply."""

import dataclasses
import json
import re
import uuid
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_ai import messages as wire
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from agentapp.llm import schemas
from agentapp.llm.contract import Request
from agentapp.llm.settings import SENT
from agentapp.messages import (
    MAX_CALLS,
    AssistantMessage,
    ChatMessage,
    Note,
    Reply,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
)
from approvals.digest import MalformedJSON, canonical, parse, storable

ANTHROPIC_MAX_TOKENS = 20_000
"""Anthropic requires a limit. Above about 21,000 tokens the library would take the reply as a stream."""

MAX_CALL_ID = 200
_CENT_MILLIONTH = Decimal("0.00000001")
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_NAME = re.compile(r"[^A-Za-z0-9_-]")


def settings(request: Request) -> ModelSettings:
    chosen: dict[str, Any] = {name: value for name, value in request.settings.items() if name in SENT}
    chosen["timeout"] = request.timeout
    # The library would tell some models that a certain tag in a user's turn speaks for the system.
    # We send no such tag, and the author of a ticket must not be able to either.
    chosen["framing_announcement"] = "never"
    if _provider(request) == "anthropic":
        chosen.setdefault("max_tokens", ANTHROPIC_MAX_TOKENS)
    if request.tools:
        choice = request.tool_choice
        if _provider(request) != "google":  # Google has no such switch
            chosen["parallel_tool_calls"] = request.parallel_tool_calls
        chosen["tool_choice"] = choice if choice in ("auto", "required", "none") else [choice]
    return cast(ModelSettings, chosen)


def _provider(request: Request) -> str:
    return request.model.partition(":")[0]


def parameters(request: Request) -> ModelRequestParameters:
    return ModelRequestParameters(function_tools=[_definition(tool, request) for tool in request.tools])


def _definition(tool: ToolSpec, request: Request) -> ToolDefinition:
    """One tool. Its schema is part of the contract, so it is sent unchanged unless `strict` is chosen."""
    schema, enforced = schemas.as_object(tool.input_schema), None
    if _provider(request) == "openai":
        chosen = request.settings.get("strict")
        narrowed = schemas.strict(schema) if chosen is True else None
        if narrowed is not None:
            schema, enforced = narrowed, True
        elif chosen is False or not schemas.is_closed(schema):
            # None would let the library choose strict if the provider can enforce the schema. For this
            # it closes open objects for OpenAI, and the model could then not fill them.
            enforced = False
    return ToolDefinition(
        name=tool.name, description=storable(tool.description), parameters_json_schema=schema, strict=enforced
    )


def history(request: Request) -> list[wire.ModelMessage]:
    """The conversation: questions and answers in turn, with results before anything said after them."""
    names = {tool.name for tool in request.tools}
    turns: list[wire.ModelMessage] = []
    asked: list[ChatMessage] = []
    for message in request.messages:
        if not isinstance(message, AssistantMessage):
            asked.append(message)
            continue
        if not message.text and not message.tool_calls:
            # Only reasoning, or nothing: no provider accepts that in a history.
            continue
        if asked:
            turns.append(_asked(asked, request))
        turns.append(_response(message, names))
        asked = []
    if asked:
        turns.append(_asked(asked, request))
    if turns and isinstance(turns[0], wire.ModelResponse):
        # Providers require the user to begin.
        turns.insert(0, wire.ModelRequest(parts=[wire.UserPromptPart("(The conversation begins.)")]))
    for turn in reversed(turns):
        if isinstance(turn, wire.ModelRequest):
            turn.instructions = storable(request.instructions) or None
            break
    return turns


def _asked(messages: Iterable[ChatMessage], request: Request) -> wire.ModelRequest:
    names = {tool.name for tool in request.tools}
    # OpenAI has no flag for a failed call: the library would wrap the text, which already says so.
    failed: Literal["success", "failed"] = "success" if _provider(request) == "openai" else "failed"
    results: list[wire.ModelRequestPart] = []
    said: list[wire.ModelRequestPart] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(
                wire.ToolReturnPart(
                    tool_name=_name(message.name, names),
                    content=storable(message.text),
                    tool_call_id=message.call_id,
                    outcome="success" if message.ok else failed,
                )
            )
        else:
            said.append(wire.UserPromptPart(storable(message.text)))
    return wire.ModelRequest(parts=[*results, *said])


def _response(message: AssistantMessage, names: set[str]) -> wire.ModelResponse:
    """An earlier reply: the provider's own parts if they still match ours, else ours."""
    calls = {call.id: _call_part(call, names) for call in message.tool_calls}
    kept = _provider_response(message)
    if kept is None:
        text: list[wire.ModelResponsePart] = [wire.TextPart(storable(message.text))] if message.text else []
        return wire.ModelResponse(parts=[*text, *calls.values()])
    parts: list[wire.ModelResponsePart] = []
    for part in kept.parts:
        if isinstance(part, wire.ToolCallPart):
            ours = calls[part.tool_call_id]
            parts.append(_call_again(part, ours.tool_call_id, ours.tool_name, ours.args))
        elif message.text or not isinstance(part, wire.TextPart):
            parts.append(part)
    return dataclasses.replace(kept, parts=parts)


def _provider_response(message: AssistantMessage) -> wire.ModelResponse | None:
    """The stored parts, or None if there are none or they have a different text or different calls."""
    if not message.provider_parts:
        return None
    try:
        stored = wire.ModelMessagesTypeAdapter.validate_python(message.provider_parts)
    except ValidationError:
        return None
    if len(stored) != 1 or not isinstance(stored[0], wire.ModelResponse):
        return None
    response = stored[0]
    calls = [(part.tool_call_id, part.tool_name) for part in response.parts if isinstance(part, wire.ToolCallPart)]
    same_calls = calls == [(call.id, storable(call.name)) for call in message.tool_calls]
    # A driver may have dropped the text; that alone does not invalidate signed reasoning.
    same_text = message.text in ("", _text(response))
    return response if same_calls and same_text else None


def _call_part(call: ToolCall, names: set[str]) -> wire.ToolCallPart:
    """A call as every provider accepts it: with an object of arguments, even if the model wrote something else."""
    try:
        arguments = call.arguments_text if isinstance(parse(call.arguments_text), dict) else None
    except MalformedJSON:
        arguments = None
    if arguments is None:
        arguments = json.dumps({"malformed": storable(call.arguments_text)})
    return wire.ToolCallPart(tool_name=_name(call.name, names), args=arguments, tool_call_id=call.id)


def _name(name: str, names: set[str]) -> str:
    """A tool's name as providers accept it in a history. Models may make up names that providers reject."""
    return name if name in names else _NAME.sub("_", name)[:64] or "unknown"


def reply(response: wire.ModelResponse, request: Request) -> Reply:
    """What the model answered. Reasoning never becomes text."""
    response, dropped = _with_fewer_calls(response)
    response = _normalised(response, {call_id for message in request.messages for call_id in _call_ids(message)})
    calls = tuple(
        ToolCall(id=part.tool_call_id, name=part.tool_name, arguments_text=_arguments_text(part.args))
        for part in response.parts
        if isinstance(part, wire.ToolCallPart)
    )
    refusal = "" if response.parts else str((response.provider_details or {}).get("refusal") or "")
    return Reply(
        text=_text(response) or storable(refusal),
        tool_calls=calls,
        usage=usage(response),
        model=storable(response.model_name or request.model.partition(":")[2])[:120],
        finish_reason=response.finish_reason or "",
        provider_parts=_provider_parts(response),
        notes=(Note("calls_dropped", {"kept": MAX_CALLS, "dropped": dropped}),) if dropped else (),
    )


def _with_fewer_calls(response: wire.ModelResponse) -> tuple[wire.ModelResponse, int]:
    """The response without its calls beyond the maximum, and how many were dropped."""
    calls = [part for part in response.parts if isinstance(part, wire.ToolCallPart)]
    beyond = {id(part) for part in calls[MAX_CALLS:]}
    if not beyond:
        return response, 0
    parts = [part for part in response.parts if id(part) not in beyond]
    return dataclasses.replace(response, parts=parts), len(beyond)


def size_of(event: wire.ModelResponseStreamEvent) -> int:
    """How much one piece of a streamed reply adds."""
    if isinstance(event, wire.PartStartEvent):
        added: Any = getattr(event.part, "content", None) or getattr(event.part, "args", None)
    elif isinstance(event, wire.PartDeltaEvent):
        added = getattr(event.delta, "content_delta", None) or getattr(event.delta, "args_delta", None)
    else:
        added = None
    return len(added) if isinstance(added, str) else len(json.dumps(added)) if isinstance(added, dict) else 0


def without_thoughts(text: str) -> str:
    """A text that is still being written, without the model's thoughts."""
    return _THOUGHT.sub("", text).lstrip()


def says_that_it_ended(response: wire.ModelResponse) -> bool:
    """Whether a streamed response reached its end. The library makes up a reason if the provider gave none."""
    return not {"finish_reason", "refusal"}.isdisjoint(response.provider_details or {})


def as_if_whole(response: wire.ModelResponse) -> wire.ModelResponse:
    """A streamed response, in the form it would have had in one piece.

    The library finds the tags around a thought only if each comes in its own piece.
    """
    if not any(isinstance(part, wire.TextPart) and _THOUGHT.search(part.content) for part in response.parts):
        return response
    parts: list[wire.ModelResponsePart] = []
    for part in response.parts:
        if not isinstance(part, wire.TextPart):
            parts.append(part)
            continue
        parts += [wire.ThinkingPart(found[1]) for found in _THOUGHT.finditer(part.content)]
        if text := without_thoughts(part.content):
            parts.append(dataclasses.replace(part, content=text))
    return dataclasses.replace(response, parts=parts)


def usage(response: wire.ModelResponse) -> Usage:
    """Tokens as the provider counted them, priced by the library's price list."""
    try:
        cost = response.cost().total_price.quantize(_CENT_MILLIONTH, ROUND_HALF_UP)
    except (LookupError, ValueError, TypeError, ArithmeticError, AssertionError):
        cost = None
    counted = response.usage
    return Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cached_tokens=counted.cache_read_tokens,
        cost=cost,
    )


def _call_again(part: wire.ToolCallPart, call_id: str, name: str, arguments: Any) -> wire.ToolCallPart:
    """The same call with our id, name and arguments, and everything that the provider attached to it."""
    return wire.ToolCallPart(
        tool_name=name,
        args=arguments,
        tool_call_id=call_id,
        id=part.id,
        provider_name=part.provider_name,
        provider_details=part.provider_details,
    )


def _call_ids(message: ChatMessage) -> list[str]:
    return [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []


def _normalised(response: wire.ModelResponse, taken: set[str]) -> wire.ModelResponse:
    """The response with storable text, and each call with an id that is unique in the conversation."""
    parts: list[wire.ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, wire.ToolCallPart):
            call_id = part.tool_call_id
            if not call_id or call_id in taken or len(call_id) > MAX_CALL_ID or call_id != storable(call_id):
                call_id = f"call_{uuid.uuid4().hex}"
            taken.add(call_id)
            parts.append(_call_again(part, call_id, storable(part.tool_name), part.args))
        elif isinstance(part, wire.TextPart | wire.ThinkingPart):
            parts.append(dataclasses.replace(part, content=storable(part.content)))
        else:
            parts.append(part)
    return dataclasses.replace(response, parts=parts)


def _text(response: wire.ModelResponse) -> str:
    return response.text or ""


def _arguments_text(arguments: Any) -> str:
    """The arguments as the model wrote them. An empty text means no arguments."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    try:
        return canonical(arguments or {})
    except MalformedJSON:
        return json.dumps(arguments)


def _provider_parts(response: wire.ModelResponse) -> list[dict[str, Any]] | None:
    """The response as JSON if it contains what our own fields cannot hold: signatures, ids, reasoning."""
    if all(_is_plain(part) for part in response.parts):
        return None
    bare = dataclasses.replace(response, usage=type(response.usage)())
    dumped: list[dict[str, Any]] = wire.ModelMessagesTypeAdapter.dump_python([bare], mode="json")
    return dumped


def _is_plain(part: wire.ModelResponsePart) -> bool:
    if not isinstance(part, wire.TextPart | wire.ToolCallPart):
        return False
    return part.id is None and not part.provider_details
