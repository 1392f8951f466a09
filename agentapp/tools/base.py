"""`@tool`, what it makes of a function or class, and the context a tool may ask for."""

import asyncio
import dataclasses
import hashlib
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, overload

from pydantic import ValidationError

from agentapp.messages import ToolResult, Trust
from agentapp.tools.schema import FunctionContract, contract_of, plain_json, validator

Effect = Literal["read", "reversible", "compensable", "irreversible"]


class ToolError(Exception):
    """A tool could not do what it was asked. The message is read by the model, so say what to do next.

    `retryable` says that the same call may work later. A tool that raises anything else, or this, has
    not had its effect: one that cannot know raises OutcomeUnknown.
    """

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable, self.retry_after = retryable, retry_after


class Cancelled(BaseException):
    """A tool has stopped because it was told to, and has not had its effect. Raised by `ToolContext.check`.

    Not an Exception, so that a tool that catches whatever goes wrong does not catch this.
    """


class OutcomeUnknown(Exception):
    """The tool asked for its effect and does not know whether it happened. A person finds out."""


@dataclass(frozen=True)
class EffectLine:
    """One line of what leaves, changes or is told. Texts are templates over the arguments."""

    title: str
    detail: str = ""
    icon: str = "zap"


@dataclass(frozen=True)
class ToolContext:
    """What a tool is told beside its arguments. The model never sees it and cannot set it."""

    run_id: str
    step: int
    call_id: str
    agent: str
    conversation_id: str
    customer: str
    actor: str
    route: str
    idempotency_key: str
    deadline: datetime
    attempt: int = 1
    state: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the run is cancelled or the deadline has passed: nobody waits for the call any more."""

    def check(self) -> None:
        """Stop here if told to. For a tool at work on something long, before it has had its effect."""
        if self.cancelled.is_set():
            raise Cancelled


@dataclass(frozen=True)
class Tool:
    """A callable with a contract. What it *may* do is decided by the row an admin controls."""

    name: str
    description: str
    input_schema: dict[str, Any]
    function: Callable[..., Any]
    contract: FunctionContract | None
    context_parameter: str = ""
    effect: Effect | None = None
    title: str = ""
    sentence: str = ""
    effects: tuple[EffectLine, ...] = ()
    button: str = ""
    snapshot: Callable[..., dict[str, Any]] | None = None
    idempotency: Literal["none", "key"] = "none"
    repeatable: bool = False
    trust: Trust = "untrusted_content"
    locked: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    timeout: int = 30
    max_attempts: int = 3
    owner: str = ""
    output_schema: dict[str, Any] | None = None
    business_key: str = ""
    """A template over the arguments; calls for which it says the same are one act, in any run."""
    return_direct: bool = False
    additional_arguments: Literal["reject", "drop"] = "reject"
    cost: Decimal = Decimal(0)
    """Of one call, in US dollars."""
    result_max_kb: int = 16
    stop_on_failure: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in a unit test. The runtime calls `run`."""
        return self.function(*args, **kwargs)

    @property
    def version(self) -> str:
        """Digest of everything an approval rests on: name, words, schema, templates."""
        parts = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "effect": self.effect,
            "title": self.title,
            "sentence": self.sentence,
            "effects": [dataclasses.asdict(line) for line in self.effects],
            "button": self.button,
            "snapshot": self.snapshot is not None,
            "output_schema": self.output_schema,
            "business_key": self.business_key,
            "return_direct": self.return_direct,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool with arguments that passed its schema. Exceptions are the caller's to classify."""
        try:
            values = self.contract.coerce(arguments) if self.contract else dict(arguments)
        except ValidationError as error:
            problems = "; ".join(
                f"{'/'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)
            )
            raise ToolError(f"The arguments do not fit: {problems}.") from error
        if self.context_parameter:
            values[self.context_parameter] = context
        value = self.function(**values)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        return value if isinstance(value, ToolResult) else ToolResult(data=plain_json(value))

    def snapshot_of(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The state of the world a decision about this call rests on. Empty when the tool names none."""
        if self.snapshot is None:
            return {}
        values = self.contract.coerce(arguments) if self.contract else dict(arguments)
        wanted = inspect.signature(self.snapshot).parameters
        found = self.snapshot(**{name: value for name, value in values.items() if name in wanted})
        snapshot: dict[str, Any] = plain_json(found)
        return snapshot


@overload
def tool(target: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    target: None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    input_schema: dict[str, Any] | None = None,
    effect: Effect | None = None,
    title: str = "",
    sentence: str = "",
    effects: tuple[EffectLine, ...] = (),
    button: str = "",
    snapshot: Callable[..., dict[str, Any]] | None = None,
    idempotency: Literal["none", "key"] = "none",
    repeatable: bool = False,
    trust: Trust = "untrusted_content",
    locked: tuple[str, ...] = (),
    secret: tuple[str, ...] = (),
    timeout: int = 30,
    max_attempts: int = 3,
    owner: str = "",
    output_schema: dict[str, Any] | None = None,
    business_key: str = "",
    return_direct: bool = False,
    additional_arguments: Literal["reject", "drop"] = "reject",
    cost: Decimal = ...,
    result_max_kb: int = 16,
    stop_on_failure: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(target: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, sync or async, or of a class with a `run` method.

    Name, schema, descriptions and defaults come from the signature and its Google-style docstring;
    `input_schema` replaces them. A parameter annotated ToolContext is filled in by the runtime.
    `effect` says what a call does to the world; a tool that does not say is taken to do the worst.
    Raises ValueError when there is no description or the schema is not valid.
    """
    if target is not None:
        return _make(target, {})
    return lambda function: _make(function, options)


def _make(target: Callable[..., Any], options: dict[str, Any]) -> Tool:
    options = dict(options)
    function, fallback_name, fallback_doc = target, target.__name__, inspect.getdoc(target) or ""
    if inspect.isclass(target):
        instance: Any = target()
        function = instance.run
        fallback_doc = inspect.getdoc(function) or fallback_doc
        options.setdefault("snapshot", getattr(instance, "snapshot", None))
    name = options.pop("name", "") or fallback_name
    description, schema = options.pop("description", ""), options.pop("input_schema", None)
    context_parameter = _context_parameter(function)
    hidden = {context_parameter} if context_parameter else set()
    contract = None if schema is not None else contract_of(function, name, fallback_doc, hidden)
    input_schema = schema if schema is not None else contract.schema if contract else {}
    description = description or (contract.description if contract else fallback_doc.strip())
    if not description:
        raise ValueError(f"The tool {name!r} needs a description: a docstring, or description='…'.")
    validator(input_schema)
    return Tool(
        name=name,
        description=description,
        input_schema=input_schema,
        function=function,
        contract=contract,
        context_parameter=context_parameter,
        **options,
    )


def _context_parameter(function: Callable[..., Any]) -> str:
    for name, annotation in inspect.get_annotations(function, eval_str=True).items():
        if annotation is ToolContext and name != "return":
            return name
    return ""


async def _awaited(value: Any) -> Any:
    return await value
