"""Native function calling: the model is told the tools and answers with text, calls, or both."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings

from agentapp import llm
from agentapp.drivers.base import Runtime, StepRequest
from agentapp.messages import Reply
from approvals.digest import MalformedJSON, canonical, parse

MAX_TIMEOUT = 600
"""Seconds: the longest an agent's settings may give one reply."""

MAX_SCANS = 50
"""How many places of a text are looked at as the beginning of an object."""

_FENCE = re.compile(r"```[\w-]*\s*\n(.*?)```", re.DOTALL)


class ToolCallingDriver:
    runtime: Runtime

    def bind(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def next_step(self, state: StepRequest) -> Reply:
        model_settings: dict[str, Any] = state.agent["model_settings"]
        reply = self.runtime.complete(
            llm.Request(
                model=state.agent["model"],
                instructions=state.agent["instructions"],
                messages=state.messages,
                tools=state.tools,
                settings=model_settings,
                parallel_tool_calls=state.agent["parallel_tool_calls"],
                tool_choice=state.tool_choice,
                timeout=_timeout(model_settings),
            )
        )
        return dataclasses.replace(reply, text="") if repeats_arguments(reply) else reply


def repeats_arguments(reply: Reply) -> bool:
    """Whether the text says over again, as JSON, what one of the calls says. Without calls it never does."""
    arguments = {_canonical(call.arguments_text) for call in reply.tool_calls} - {None}
    return any(_canonical(candidate) in arguments for candidate in _candidates(reply.text)) if arguments else False


def _timeout(model_settings: dict[str, Any]) -> float:
    seconds: Any = model_settings.get("timeout")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_TIMEOUT:
        return settings.MODEL_TIMEOUT_SECONDS
    return float(seconds)


def _candidates(text: str) -> Iterator[str]:
    """The texts in a text that may be JSON: all of it, what fences enclose, and every object in its prose."""
    yield text
    yield from _FENCE.findall(text)
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(MAX_SCANS):
        if start < 0:
            return
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            # An empty pair of braces in a sentence is no repetition.
            if found:
                yield text[start:end]
        start = text.find("{", end)


def _canonical(text: str) -> str | None:
    """One form for all spellings of the same arguments. None: not JSON."""
    try:
        return canonical(parse(text.strip()))
    except MalformedJSON:
        return None
