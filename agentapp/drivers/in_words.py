"""What a model says to a person who asks about a call it has proposed: words, and what it would propose instead."""

import dataclasses
from collections.abc import Callable

from agentapp import llm
from agentapp.drivers.base import Driver, Runtime, StepRequest
from agentapp.drivers.timeouts import timeout_of
from agentapp.messages import Reply


def in_words(driver: Driver, runtime: Runtime, state: StepRequest) -> Reply:
    """The answer to the question that comes last in the messages. Raises ModelError.

    The tools are described as usual, because some providers refuse a history with calls of tools that
    they are not told about. A call counts only if the request lets the model make one; it is not run.
    """
    own: Callable[[StepRequest], Reply] | None = getattr(driver, "in_words", None)
    reply = own(state) if own else _plainly(runtime, state)
    return reply if state.tool_choice != "none" else dataclasses.replace(reply, tool_calls=())


def _plainly(runtime: Runtime, state: StepRequest) -> Reply:
    return runtime.complete(
        llm.Request(
            model=state.agent["model"],
            instructions=state.agent["instructions"],
            messages=state.messages,
            tools=state.tools,
            settings=state.agent["model_settings"],
            tool_choice=state.tool_choice,
            timeout=timeout_of(state.agent["model_settings"]),
        )
    )
