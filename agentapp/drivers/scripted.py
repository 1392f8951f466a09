"""Replays a list of replies, so that runs, tests and demos need no model."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from agentapp import llm
from agentapp.drivers.base import ModelError, Runtime, StepRequest
from agentapp.messages import Reply, ToolCall, Usage
from agentapp.script import ScriptError, check_script
from approvals.digest import MalformedJSON, canonical


class ScriptedDriver:
    """Step n is the n-th reply of the run's script or, without one, of the agent's `script` in its driver settings.

    A reply passes the same hooks as a model's.
    """

    runtime: Runtime | None = None

    @staticmethod
    def check_settings(settings: object) -> list[str]:
        """What is wrong with an agent's driver settings, as sentences."""
        given = settings if isinstance(settings, dict) else {}
        problems = [f"{name} is not a setting of this driver." for name in given if name != "script"]
        try:
            if given.get("script", []) != []:
                check_script(given["script"])
        except ScriptError as error:
            problems.append(str(error))
        return problems

    def bind(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def next_step(self, state: StepRequest) -> Reply:
        return replayed(self.runtime, state, _reply_of(state))

    def in_words(self, state: StepRequest) -> Reply:
        """The `answer` of the reply whose calls people ask about."""
        answer = _reply_of(state).get("answer")
        if answer is None:
            raise ModelError(f"The script has no answer about step {state.step}.", code="script_ended")
        return replayed(self.runtime, state, answer)


def replayed(runtime: Runtime | None, state: StepRequest, reply: Mapping[str, Any]) -> Reply:
    """One reply of a script, through the hooks that a model's reply would pass. Raises ModelError if it is an error."""
    if "error" in reply:
        raise ModelError(reply["error"], code="scripted")
    calls = tuple(_call(call) for call in reply.get("tool_calls", ()))
    scripted = Reply(
        text=reply.get("text", ""),
        tool_calls=calls,
        usage=usage_of(reply.get("usage", {})),
        model="scripted",
        finish_reason="tool_call" if calls else "stop",
    )
    if runtime is None:
        return scripted
    request = llm.Request("scripted", state.agent.get("instructions", ""), state.messages, state.tools)
    return runtime.replay(request, scripted)


def _reply_of(state: StepRequest) -> dict[str, Any]:
    script = state.script if state.script is not None else _script_of(state)
    if not 1 <= state.step <= len(script):
        raise ModelError(f"The script has no reply for step {state.step}.", code="script_ended")
    return script[state.step - 1]


def _script_of(state: StepRequest) -> list[dict[str, Any]]:
    """What an agent always says, for example one that other agents ask in a test or a demo."""
    script: list[dict[str, Any]] = state.agent.get("driver_settings", {}).get("script", [])
    try:
        if script != []:
            check_script(script)
    except ScriptError as error:
        raise ModelError(f"The agent's script cannot be replayed: {error}", code="script_invalid") from error
    return script


def _call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call["arguments"]
    if not isinstance(arguments, str):
        try:
            arguments = canonical(arguments)
        except MalformedJSON as error:
            raise ModelError(
                f"The script's call {call['id']!r} cannot be sent: {error}", code="script_invalid"
            ) from error
    return ToolCall(id=call["id"], name=call["name"], arguments_text=arguments)


def usage_of(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cached_tokens=usage.get("cached_tokens", 0),
        # Through its text, so that 0.1 stays 0.1.
        cost=Decimal(str(usage.get("cost", 0))),
    )
