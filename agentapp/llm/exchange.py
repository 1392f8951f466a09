"""One request to one provider, in the event loop, within its deadline."""

import asyncio
import logging

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from agentapp import history
from agentapp.llm import conversion, failures, providers
from agentapp.llm.contract import ModelError, Request
from agentapp.llm.event_loop import EventLoop, event_loop
from agentapp.messages import Reply

GRACE_SECONDS = 5
"""How long the loop may take to notice that a deadline has passed."""

logger = logging.getLogger(__name__)


def complete(request: Request) -> Reply:
    """See `agentapp.llm.complete`."""
    try:
        history.check(request.messages, adjacent=False)
    except history.BrokenHistory as broken:
        raise ModelError(f"Nothing was sent to {request.model}: {broken}", code="broken_history") from broken
    access = providers.access(request.model)

    async def ask(loop: EventLoop) -> ModelResponse | ModelError:
        return await _ask(request, access, loop)

    try:
        answer = event_loop().submit(ask, request.timeout + GRACE_SECONDS)
    except TimeoutError:
        answer = failures.timed_out(request.model, request.timeout)
    if isinstance(answer, ModelError):
        raise answer
    return conversion.reply(answer, request)


async def _ask(request: Request, access: providers.Access, loop: EventLoop) -> ModelResponse | ModelError:
    """The response, or the error as a value: raised here, it would carry the provider's own along."""
    messages = conversion.history(request)
    try:
        async with asyncio.timeout(request.timeout) as deadline:
            response = await model_request(
                _model(access, loop),
                messages,
                model_settings=conversion.settings(request),
                model_request_parameters=conversion.parameters(request),
            )
    except Exception as error:
        # Whatever a reply of an unknown shape does to the library is the reply's fault: no reply came.
        if isinstance(error, TimeoutError) and deadline.expired():
            return failures.timed_out(request.model, request.timeout)
        logger.info("%s: no reply: %s", request.model, type(error).__name__)
        return failures.model_error(error, request.model, providers.secrets())
    # A model may have nothing to add, but then it says that it stopped.
    return response if response.parts or response.finish_reason else failures.empty(request.model)


def _model(access: providers.Access, loop: EventLoop) -> Model:
    if access not in loop.clients:
        loop.clients[access] = access.build()
    model: Model = loop.clients[access]
    return model
