"""Code at ten points of the loop: what a hook is told, what it may change, how hooks are found and run.

A hook never sees a row. It gets a copy of plain values and returns None if nothing changes, or a changed
copy. Hooks run in descending priority, and each sees what the one before returned.
"""

import copy
import dataclasses
import inspect
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import NoneType
from typing import Any

from django.utils.module_loading import import_string

from agentapp import observe
from agentapp.llm import Request
from agentapp.messages import Reply, StopRun, ToolResult

__all__ = [
    "POINTS", "AfterExecution", "AfterInferenceResponse", "AfterStep", "AfterToolUse", "BeforeExecution",
    "BeforeInferenceRequest", "BeforeStep", "BeforeToolUse", "Hook", "HookFailed", "Hooks", "OnError", "OnStop",
    "RunFacts", "StopRun", "check", "find", "hook", "load",
]  # fmt: skip

log = logging.getLogger(__name__)


# --- What hooks are told -------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFacts:
    """A run as plain values."""

    id: str
    agent: str
    state: str
    route: str = ""
    conversation_id: str = ""
    customer: str = ""
    starter: str = ""
    title: str = ""
    input: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every hook is told."""

    run: RunFacts
    shared: dict[str, Any] = field(default_factory=dict)
    """What hooks pass to later hooks, and to tools as `context.state["shared"]`, within one drive of a worker."""


@dataclass(frozen=True, kw_only=True)
class BeforeExecution(Context):
    """A run begins: it has no step yet."""


@dataclass(frozen=True, kw_only=True)
class BeforeStep(Context):
    """The model is about to be asked for a decision."""

    step: int
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BeforeInferenceRequest(Context):
    """A request is about to be sent to a model."""

    step: int
    inference_id: str
    request: Request


@dataclass(frozen=True, kw_only=True)
class AfterInferenceResponse(Context):
    """A model has replied. Its usage counts as the provider reported it, however a hook changes the reply."""

    step: int
    inference_id: str
    request: Request
    reply: Reply


@dataclass(frozen=True, kw_only=True)
class BeforeToolUse(Context):
    """A call was proposed, and nothing about it has been checked. All checks apply to the call as hooks leave it."""

    step: int
    call_id: str
    name: str
    arguments: dict[str, Any] | None
    """None when the model's text is not one JSON object."""
    arguments_text: str
    blocked: bool = False
    message: str = ""
    """What the model is told about a blocked call."""
    result: ToolResult | None = None
    """Answers the call in the tool's place: the tool does not run."""


@dataclass(frozen=True, kw_only=True)
class AfterToolUse(Context):
    """A tool ran, and its result is about to be stored."""

    step: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    result: ToolResult


@dataclass(frozen=True, kw_only=True)
class AfterStep(Context):
    """A step is over: its calls are all answered, or it had none and would end the run."""

    step: int
    text: str
    calls: tuple[str, ...] = ()
    error: str = ""
    continue_run: bool = False
    """Ask the model again although it asked for no calls. The run's limits still apply."""


@dataclass(frozen=True, kw_only=True)
class OnStop(Context):
    """The run is about to end, for whatever reason. Its state is its final one."""

    reason: str
    message: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class AfterExecution(Context):
    """The run has ended."""

    reason: str
    message: str = ""
    answer: str = ""


@dataclass(frozen=True, kw_only=True)
class OnError(Context):
    """An error is about to end the run as failed."""

    message: str
    source: str = ""


@dataclass(frozen=True)
class Point:
    """One place in the loop: what its hooks get, which fields of it they may change, and to which types."""

    context: type[Context]
    mutable: Mapping[str, tuple[type, ...]]


_SHARED: dict[str, tuple[type, ...]] = {"shared": (dict,)}

POINTS: dict[str, Point] = {
    "before_execution": Point(BeforeExecution, _SHARED),
    "before_step": Point(BeforeStep, _SHARED),
    "before_inference_request": Point(BeforeInferenceRequest, {**_SHARED, "request": (Request,)}),
    "after_inference_response": Point(AfterInferenceResponse, {**_SHARED, "reply": (Reply,)}),
    "before_tool_use": Point(
        BeforeToolUse,
        {
            **_SHARED, "name": (str,), "arguments": (dict, NoneType), "blocked": (bool,), "message": (str,),
            "result": (ToolResult, NoneType),
        },
    ),
    "after_tool_use": Point(AfterToolUse, {**_SHARED, "result": (ToolResult,)}),
    "after_step": Point(AfterStep, {**_SHARED, "continue_run": (bool,)}),
    "on_stop": Point(OnStop, {}),
    "after_execution": Point(AfterExecution, {}),
    "on_error": Point(OnError, {}),
}  # fmt: skip


# --- Writing and finding hooks -------------------------------------------------------------------


@dataclass(frozen=True)
class Hook:
    """Functions with the points at which they run. Higher priorities run first."""

    name: str
    functions: Mapping[str, Callable[[Any], Any]]
    priority: int = 0
    in_mocked_runs: bool = False
    """It has no effect beyond what it returns, so it may run where nothing may happen."""

    def __call__(self, context: Any) -> Any:
        """Call the function itself, as in a unit test."""
        return next(iter(self.functions.values()))(context)


def hook(*points: str, priority: int = 0, in_mocked_runs: bool = False) -> Callable[[Callable[[Any], Any]], Hook]:
    """Make a hook from a function that takes the context of its points. Raises ValueError for an unknown point.

    `in_mocked_runs`: it also runs where nothing may happen, because it has no effect beyond what it returns.
    """
    _check_points(points)

    def make(function: Callable[[Any], Any]) -> Hook:
        name = f"{function.__module__}.{function.__qualname__}"
        return Hook(name, dict.fromkeys(points, function), priority, in_mocked_runs)

    return make


def find(path: str) -> Hook:
    """The hook at a dotted path: what `@hook` made, or a class with methods named like points.

    A class is instantiated for each drive. Raises ValueError, saying what is wrong.
    """
    try:
        found = import_string(path)
    except Exception as error:  # a module's own code may fail in any way
        raise ValueError(f"The hook {path!r} cannot be imported: {error}") from error
    if isinstance(found, Hook):
        return dataclasses.replace(found, name=path)
    if not inspect.isclass(found):
        raise ValueError(
            f"{path!r} is not a hook: it is neither made with @hook(…) nor a class with methods for points."
        )
    points = [point for point in POINTS if callable(getattr(found, point, None))]
    if not points:
        raise ValueError(f"The hook {path!r} has no method for any point. The points: {', '.join(POINTS)}.")
    try:
        made = found()
    except Exception as error:
        raise ValueError(f"The hook {path!r} cannot be made: {type(error).__name__}: {error}") from error
    functions = {point: getattr(made, point) for point in points}
    return Hook(path, functions, getattr(found, "priority", 0), getattr(found, "in_mocked_runs", False) is True)


def source_of(path: str) -> str:
    """The source of a hook's module, which shows what it does. Empty if there is no such hook, or no source."""
    try:
        function = next(iter(find(path).functions.values()))
        return inspect.getsource(inspect.getmodule(function) or function)
    except (ValueError, OSError, TypeError):
        return ""


def check(paths: Any) -> list[str]:
    """What is wrong with an agent's list of hooks, one sentence each."""
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return ["Hooks are a list of dotted paths."]
    problems = []
    for path in paths:
        try:
            find(path)
        except ValueError as error:
            problems.append(str(error))
    return problems


def load(agent: Mapping[str, Any], *, mocked: bool = False) -> "Hooks":
    """The hooks of an agent as a run keeps it. Raises HookFailed: a run does not go on without its hooks.

    `mocked`: only those that declare to have no effect of their own.
    """
    try:
        found = [find(path) for path in agent.get("hooks", ())]
    except ValueError as error:
        raise HookFailed(str(error)) from error
    wanted = [each for each in found if each.in_mocked_runs or not mocked]
    return Hooks(wanted, agent.get("hook_contract", "diagnostics"))


def _check_points(points: Iterable[str]) -> None:
    unknown = [point for point in points if point not in POINTS]
    if unknown or not points:
        named = f"There is no point {unknown[0]!r}." if unknown else "A hook names at least one point."
        raise ValueError(f"{named} The points: {', '.join(POINTS)}.")


# --- Running hooks -------------------------------------------------------------------------------


class HookFailed(Exception):
    """A hook raised, or changed what it may not: the run fails, since what the hook guards would be unguarded."""

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class Hooks:
    """The hooks of one drive, with what they share."""

    def __init__(self, found: Sequence[Hook] = (), contract: str = "diagnostics") -> None:
        self.contract = contract
        self.shared: dict[str, Any] = {}
        # Sorting keeps the agent's order among hooks of one priority.
        ordered = sorted(found, key=lambda each: -each.priority)
        self._at = {point: [each for each in ordered if point in each.functions] for point in POINTS}

    def at(self, point: str) -> bool:
        """Whether any hook runs there."""
        return bool(self._at[point])

    def run[C: Context](
        self, point: str, context: C, violated: Callable[[str, str, str], None] | None = None
    ) -> tuple[C, tuple[str, ...]]:
        """The context as the hooks of a point leave it, and the names of those that changed it.

        `violated` is told (hook, point, field) under the diagnostic contract. Raises StopRun and HookFailed.
        """
        changers = []
        for each in self._at[point]:
            given = dataclasses.replace(context, shared=self.shared)
            try:
                returned, changed = self._run_one(each, point, given)
            except (StopRun, HookFailed) as raised:
                _tell(each, point, context, (), type(raised).__name__)
                raise
            _tell(each, point, context, changed)
            for name in changed:
                if name not in POINTS[point].mutable:
                    self._check_contract(each, point, name, violated)
            if changed:
                changers.append(each.name)
                context = returned
                self.shared = returned.shared
        return context, tuple(changers)

    def _run_one[C: Context](self, each: Hook, point: str, context: C) -> tuple[C, list[str]]:
        """What one hook returns, and the fields it changed. It works on a copy, so only what it returns counts."""
        source = f"hook:{each.name}"
        try:
            returned = each.functions[point](copy.deepcopy(context))
        except StopRun as stop:
            stop.source = stop.source or source
            raise
        except Exception as error:
            log.exception("Hook %s failed on %s", each.name, point)
            raise HookFailed(
                f"Hook {each.name!r} failed on {point!r} ({type(error).__name__}); see the worker's log.",
                source,
            ) from error
        if returned is None:
            return context, []
        if type(returned) is not type(context):
            raise HookFailed(
                f"Hook {each.name!r} returned {type(returned).__name__} on {point!r}; it must return None or a changed"
                " copy of its context.",
                source,
            )
        for name, types in POINTS[point].mutable.items():
            if not isinstance(getattr(returned, name), types):
                raise HookFailed(f"Hook {each.name!r} gave {name!r} on {point!r} a value of the wrong type.", source)
        return returned, changed_fields(context, returned)

    def _check_contract(
        self, each: Hook, point: str, name: str, violated: Callable[[str, str, str], None] | None
    ) -> None:
        if self.contract == "strict":
            raise HookFailed(f"Hook {each.name!r} cannot mutate {name!r} on {point!r}.", f"hook:{each.name}")
        if self.contract == "diagnostics" and violated is not None:
            violated(each.name, point, name)


def _tell(each: Hook, point: str, context: Context, changed: Sequence[str], raised: str = "") -> None:
    data = {"hook": each.name, "point": point, "changed": list(changed), "raised": raised}
    observe.emit("hook.executed", uuid.UUID(context.run.id), data)


def changed_fields(before: Context, after: Context) -> list[str]:
    """The fields in which two contexts differ. Python treats 1, 1.0 and True as equal; a tool may not."""
    pairs = [(f.name, getattr(before, f.name), getattr(after, f.name)) for f in dataclasses.fields(before)]
    return [name for name, was, now in pairs if was != now or repr(was) != repr(now)]
