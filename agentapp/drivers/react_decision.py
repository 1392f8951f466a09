"""What a ReAct reply decides, or why it decides nothing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentapp.drivers.json_in_text import objects
from agentapp.messages import ToolSpec
from agentapp.reasons import Reason
from approvals.digest import MalformedJSON, parse

TYPES = "Decision type must be call_tool or final_answer."


class NoDecision(Exception):
    """A reply has no usable decision. The message tells the model what to correct."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Decision:
    """Call a tool, or answer."""

    type: Literal["call_tool", "final_answer"]
    thought: str
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    answer: str = ""


def read_decision(text: str, tools: Sequence[ToolSpec], choice: str) -> Decision:
    """The decision in a text. `choice` as in `StepRequest.tool_choice`. Raises NoDecision."""
    found = _extracted(text)
    thought = found.get("thought")
    thought = thought if isinstance(thought, str) else ""
    offered = callable_tools(tools, choice)
    if found.get("type") == "final_answer":
        if must_call(offered, choice):
            raise _invalid("A tool must be called first: decision type must be call_tool.")
        return Decision("final_answer", thought, answer=_answer(found.get("answer")))
    if found.get("type") != "call_tool":
        raise _invalid(TYPES)
    tool = _tool(found.get("tool"), offered)
    return Decision("call_tool", thought, tool.name, _arguments(found.get("args"), tool.input_schema))


def callable_tools(tools: Sequence[ToolSpec], choice: str) -> list[ToolSpec]:
    """The tools that a decision may name under a choice."""
    if choice in ("auto", "required"):
        return list(tools)
    return [tool for tool in tools if tool.name == choice and choice != "none"]


def must_call(offered: Sequence[ToolSpec], choice: str) -> bool:
    """Whether an answer does not count yet. If there is no tool to call, it always counts."""
    return bool(offered) and choice not in ("auto", "none")


def normalised(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the schema's defaults filled in, without nulls and without what the tool does not take.

    A null stays if it is the only way to say nothing: in a required argument that may be null.
    """
    properties: dict[str, Any] = schema.get("properties", {})
    is_open = schema.get("additionalProperties") not in (None, False)
    kept = {
        name: value
        for name, value in arguments.items()
        if (name in properties or is_open) and (value is not None or _needs_null(name, schema))
    }
    defaults = {name: s["default"] for name, s in properties.items() if isinstance(s, dict) and "default" in s}
    return {**{name: value for name, value in defaults.items() if name not in kept}, **kept}


def _extracted(text: str) -> dict[str, Any]:
    """The first object that has a type, else the first object. Anything after it may be made up."""
    found = list(objects(text))
    if found:
        return next((candidate for candidate in found if "type" in candidate), found[0])
    problem = "The reply holds no JSON object."
    if "{" in text:
        try:
            parse(text[text.index("{") :].strip())
        except MalformedJSON as error:
            problem = str(error)
    raise NoDecision(Reason.DECISION_EXTRACTION, f"{problem} {TYPES}")


def _answer(answer: Any) -> str:
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        raise _invalid("Answer is required when type=final_answer.")
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _tool(name: Any, tools: Sequence[ToolSpec]) -> ToolSpec:
    if not isinstance(name, str) or not name.strip():
        raise _invalid("Tool name is required when type=call_tool.")
    tool = next((tool for tool in tools if tool.name == name.strip()), None)
    if tool is None:
        listed = ", ".join(tool.name for tool in tools) or "none"
        raise _invalid(f"Requested tool is not available. Available tools: {listed}.")
    return tool


def _arguments(arguments: Any, schema: dict[str, Any]) -> dict[str, Any]:
    required = [name for name in schema.get("required", []) if isinstance(name, str)]
    if arguments is None:
        if required:
            raise _invalid("Arguments are required when type=call_tool.")
        arguments = {}
    if not isinstance(arguments, dict):
        raise _invalid('Arguments must be a JSON object, as in {"name": "value"}.')
    taken = normalised(arguments, schema)
    missing = [name for name in required if name not in taken]
    if missing:
        raise _invalid(f"Required arguments are missing: {', '.join(missing)}.")
    return taken


def _needs_null(name: str, schema: dict[str, Any]) -> bool:
    return name in schema.get("required", []) and _takes_null(schema.get("properties", {}).get(name, {}))


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    type_ = schema.get("type")
    if type_ == "null" or (isinstance(type_, list) and "null" in type_):
        return True
    return any(_takes_null(option) for key in ("anyOf", "oneOf") for option in schema.get(key, []))


def _invalid(message: str) -> NoDecision:
    return NoDecision(Reason.DECISION_VALIDATION, message)
