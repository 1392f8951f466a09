"""Sends one request to one provider, in the event loop, within its deadline."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model

from agentapp import history
from agentapp.event_loop import EventLoop, event_loop
from agentapp.llm import bounded, conversion, failures, providers
from agentapp.llm.contract import ModelError, Request
from agentapp.messages import Reply

GRACE_SECONDS = 5
"""How long the loop may take to notice that a deadline has passed."""

logger = logging.getLogger(__name__)


@dataclass
class _Heard:
    """What has arrived of a reply so far. Written in the event loop, read by the waiting thread."""

    text: str = ""
    told: str = ""
    size: int = 0
    asked_at: float = field(default_factory=time.monotonic)
    first_after: float | None = None
    """Seconds until the first piece of anything arrived: text, a thought or a call."""


def complete(request: Request, watch: Callable[[str], None] | None = None) -> Reply:
    """See `agentapp.llm.complete`."""
    try:
        history.check(request.messages, adjacent=False)
    except history.BrokenHistory as broken:
        raise ModelError(f"Nothing was sent to {request.model}: {broken}", code="broken_history") from broken
    access = providers.access(request.model)

    heard = _Heard() if watch is not None else None

    async def ask(loop: EventLoop) -> ModelResponse | ModelError:
        return await _ask(request, access, loop, heard)

    def tell() -> None:
        text = heard.text if heard is not None else ""
        if watch is not None and heard is not None and text != heard.told:
            heard.told = text
            watch(conversion.without_thoughts(text))

    try:
        answer = event_loop().submit(ask, request.timeout + GRACE_SECONDS, tell if heard is not None else None)
    except TimeoutError:
        answer = failures.timed_out(request.model, request.timeout)
    if isinstance(answer, ModelError):
        raise answer
    reply = conversion.reply(answer, request)
    return replace(reply, first_token_seconds=heard.first_after if heard is not None else None)


async def _ask(
    request: Request, access: providers.Access, loop: EventLoop, heard: _Heard | None
) -> ModelResponse | ModelError:
    """The response, or the error as a value: if raised here, it would carry the provider's own error along."""
    messages = conversion.history(request)
    try:
        async with asyncio.timeout(request.timeout) as deadline:
            response = await _respond(_model(access, loop), messages, request, heard)
    except Exception as error:
        # If a reply of unknown shape breaks the library, that counts as no reply.
        if isinstance(error, TimeoutError) and deadline.expired():
            return failures.timed_out(request.model, request.timeout)
        logger.info("%s: no reply: %s", request.model, type(error).__name__)
        return failures.model_error(error, request.model, providers.secrets())
    if heard is not None and not conversion.says_that_it_ended(response):
        return failures.broken_off(request.model)
    # A model may have nothing to add, but then its reply says that it stopped.
    return response if response.parts or response.finish_reason else failures.empty(request.model)


async def _respond(model: Model, messages: list[ModelMessage], request: Request, heard: _Heard | None) -> ModelResponse:
    """The whole response, streamed if somebody listens."""
    settings, parameters = conversion.settings(request), conversion.parameters(request)
    if heard is None:
        return await model_request(model, messages, model_settings=settings, model_request_parameters=parameters)
    opened = model_request_stream(model, messages, model_settings=settings, model_request_parameters=parameters)
    async with opened as stream:
        async for event in stream:
            if heard.first_after is None:
                heard.first_after = time.monotonic() - heard.asked_at
            heard.size += conversion.size_of(event)
            if heard.size > bounded.MAX_REPLY_BYTES:
                raise bounded.Unread(bounded.TOO_LONG)
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                heard.text = "\n\n".join(filter(None, (heard.text, event.part.content)))
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                heard.text += event.delta.content_delta
    return conversion.as_if_whole(stream.get())


def _model(access: providers.Access, loop: EventLoop) -> Model:
    if access not in loop.clients:
        loop.clients[access] = access.build()
    model: Model = loop.clients[access]
    return model
