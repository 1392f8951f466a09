"""Native function calling: the model is told about the tools and answers with text, calls, or both."""

import dataclasses
from typing import Any

from agentapp import llm
from agentapp.drivers.base import Runtime, StepRequest
from agentapp.drivers.json_in_text import candidates
from agentapp.drivers.timeouts import timeout_of
from agentapp.messages import Note, Reply, ToolCall
from approvals.digest import MalformedJSON, canonical, parse


class ToolCallingDriver:
    runtime: Runtime

    @staticmethod
    def check_settings(settings: object) -> list[str]:
        """What is wrong with an agent's driver settings: this driver reads none."""
        return ["This driver has no settings."] if settings else []

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
                timeout=timeout_of(model_settings),
            ),
            seen=bool(state.agent.get("streams")),
        )
        repeated = repeated_call(reply)
        if repeated is None:
            return reply
        dropped = Note("content_dropped", {"characters": len(reply.text), "call": repeated.id})
        return dataclasses.replace(reply, text="", notes=(*reply.notes, dropped))


def repeated_call(reply: Reply) -> ToolCall | None:
    """The call whose arguments the text repeats as JSON. Such a text is not an answer to anybody."""
    calls = {_canonical(call.arguments_text): call for call in reversed(reply.tool_calls)}
    calls.pop(None, None)
    if not calls:
        return None
    return next(filter(None, (calls.get(_canonical(candidate)) for candidate in candidates(reply.text))), None)


def _canonical(text: str) -> str | None:
    """One form for all spellings of the same arguments. None: not JSON."""
    try:
        return canonical(parse(text.strip()))
    except MalformedJSON:
        return None
