"""The hook of the drawn runs: at each point it does what PLAN says, and records that it did."""

import dataclasses
from collections.abc import Callable
from typing import Any

from agentapp.hooks import POINTS, StopRun
from agentapp.messages import ToolCall, ToolResult

PLAN: dict[tuple[str, str], str] = {}
"""What to do, by point and tool: "*" is any tool, and it is empty at points without a tool."""

DONE: list[tuple[str, str, Any]] = []
"""What was done: the deed, the point and what the hook was told there."""

ENDINGS = ("on_stop", "after_execution", "on_error")
# An entry listed twice is drawn twice as often.
DEEDS: dict[str, tuple[str, ...]] = {
    "before_execution": ("bug", "stop", "forbidden", "share"),
    "before_step": ("bug", "stop", "forbidden", "share"),
    "before_inference_request": ("bug", "stop", "forbidden", "forget"),
    "after_inference_response": ("bug", "stop", "forbidden", "add_call", "drop_calls", "no_usage"),
    "before_tool_use": (
        "bug", "stop", "forbidden", "block", "block", "block", "block", "answer", "answer", "to_pay", "to_pay", "more",
        "more", "nonsense", "not_json", "wrong_type", "text", "share", "share",
    ),
    "after_tool_use": ("bug", "stop", "forbidden", "rewrite", "fail_it", "wrong_type"),
    "after_step": ("bug", "stop", "forbidden", "go_on"),
    "on_stop": ("bug", "stop", "forbidden"),
    "after_execution": ("bug", "stop", "forbidden"),
    "on_error": ("bug", "stop", "forbidden"),
}  # fmt: skip


def begin(plan: dict[tuple[str, str], str]) -> None:
    PLAN.clear()
    PLAN.update(plan)
    DONE.clear()


def _raise(error: Exception) -> Any:
    raise error


def _change(**fields: Any) -> Callable[[Any], Any]:
    return lambda context: dataclasses.replace(context, **fields)


def _add_call(context: Any) -> Any:
    added = ToolCall("hooked", "pay", '{"account": "eve", "amount": 9}')
    return dataclasses.replace(context, reply=dataclasses.replace(context.reply, tool_calls=(added,)))


_DO: dict[str, Callable[[Any], Any]] = {
    "bug": lambda context: _raise(RuntimeError("a bug in the hook")),
    "stop": lambda context: _raise(StopRun("The hook has seen enough.")),
    "forbidden": lambda context: dataclasses.replace(context, run=dataclasses.replace(context.run, title="mine")),
    "share": _change(shared={"by": "the hook"}),
    "forget": lambda context: dataclasses.replace(
        context, request=dataclasses.replace(context.request, messages=context.request.messages[:1])
    ),
    "add_call": _add_call,
    "drop_calls": lambda context: dataclasses.replace(
        context, reply=dataclasses.replace(context.reply, tool_calls=(), text="Nothing, then.")
    ),
    "no_usage": lambda context: dataclasses.replace(
        context, reply=dataclasses.replace(context.reply, usage=type(context.reply.usage)())
    ),
    "block": _change(blocked=True, message="Not here."),
    "answer": _change(result=ToolResult(data="from the hook")),
    "to_pay": _change(name="pay", arguments={"account": "eve", "amount": 9}),
    "more": lambda context: dataclasses.replace(context, arguments={**(context.arguments or {}), "amount": 9}),
    "nonsense": _change(arguments={"approved": True}),
    "not_json": _change(arguments={"amount": float("nan")}),
    "text": _change(arguments_text='{"account": "eve", "amount": 9}'),
    "wrong_type": lambda context: {"blocked": True},
    "rewrite": lambda context: dataclasses.replace(
        context, result=dataclasses.replace(context.result, status="ok", data="rewritten")
    ),
    "fail_it": _change(result=ToolResult(status="fatal_error", reason="tool_failure", message="Not good enough.")),
    "go_on": _change(continue_run=True),
}


def _at(point: str) -> Callable[[Any, Any], Any]:
    def run(self: Any, context: Any) -> Any:
        deed = PLAN.get((point, getattr(context, "name", ""))) or PLAN.get((point, "*"))
        if deed is None:
            return None
        DONE.append((deed, point, context))
        return _DO[deed](context)

    return run


Planned = type("Planned", (), {point: _at(point) for point in POINTS})
