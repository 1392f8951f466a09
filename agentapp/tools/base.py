"""`@tool`, the Tool it makes of a function or class, and the context a tool may ask for."""

import asyncio
import copy
import dataclasses
import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack, overload

from pydantic import BaseModel, ValidationError

from agentapp import isolation
from agentapp.messages import MAX_TIMEOUT_SECONDS, StopRun, ToolResult, Trust
from agentapp.tools import declared, results, schema
from agentapp.tools.context import OutcomeUnknown, ToolContext
from agentapp.tools.counting import LimitReached
from agentapp.tools.declared import EffectLine
from agentapp.tools.injection import Injected, NotConfigured, injected_parameters
from agentapp.tools.parameters import check_parameters
from agentapp.tools.results import InvalidArguments, Response, ToolError, Wording

__all__ = [
    "EffectLine", "Injected", "LimitReached", "OutcomeUnknown", "StopRun", "Tool", "ToolContext", "ToolError",
    "ToolResult", "tool",
]  # fmt: skip

log = logging.getLogger(__name__)

Effect = Literal["read", "reversible", "compensable", "irreversible"]
# The largest values that the rows of tools can hold.
_AT_MOST = {"timeout": MAX_TIMEOUT_SECONDS, "max_attempts": 2**15 - 1, "result_max_kb": 2**31 - 1}


@dataclass(frozen=True)
class Tool:
    """A callable with a contract. What it *may* do is decided by the row an admin controls."""

    name: str
    description: str
    input_schema: dict[str, Any]
    function: Callable[..., Any]
    contract: schema.FunctionContract | None
    context_parameter: str = ""
    injected: Mapping[str, Injected] = field(default_factory=lambda: MappingProxyType({}))
    effect: Effect | None = None
    title: str = ""
    sentence: str = ""
    effects: tuple[EffectLine, ...] = ()
    button: str = ""
    confirm: str = ""
    """A template of what people type to approve a critical call, such as {customer_id}. Empty: the button's text."""
    snapshot: Callable[..., dict[str, Any]] | None = None
    preview: Callable[..., list[dict[str, Any]]] | None = None
    """A dry run: {"name", "before", "after"} for each thing a call would change, looked up without writing."""
    outcome: Callable[..., dict[str, Any]] | None = None
    """The state after the call, by the names used in its preview; `result` is what the call returned."""
    undone_by: str = ""
    """The tool that takes a call back. `undo` makes its arguments from those of the call and its `result`."""
    undo: Callable[..., dict[str, Any]] | None = None
    idempotency: Literal["none", "key"] = "none"
    repeatable: bool = False
    trust: Trust = "untrusted_content"
    locked: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    pii: tuple[str, ...] = ()
    """Arguments, and fields of results, that hold personal data."""
    timeout: int = 30
    max_attempts: int = 3
    owner: str = ""
    output_schema: dict[str, Any] | None = None
    business_key: str = ""
    """A template over the arguments. Calls for which it gives the same text are one act, across all runs."""
    return_direct: bool = False
    additional_arguments: Literal["reject", "drop"] = "reject"
    cost: Decimal = Decimal(0)
    """The cost of one call, in US dollars."""
    result_max_kb: int = 16
    stop_on_failure: bool = False
    wire: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """How a call reaches a source that is not our code. Part of the contract: it says what is asked of whom."""
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What a source says about the tool beyond its contract."""
    response: Response = "content"
    on_error: Wording = False
    """What the model reads of a ToolError: its own text (False or True), this text, or what this function returns."""
    on_invalid: Wording = False
    """What the model reads if arguments fit the schema but not the types. False: every problem. Else as on_error."""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """For agents with guidance: by argument, the settings that `parameters.PARAMETER_SCHEMA` lists."""
    overlap: Literal["none", "auto", "always"] = "auto"
    """How agents with guidance evaluate it. auto: with the tools it overlaps with. none: alone. always: alone, but with
    all others in view.
    """
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How much of what it counts one call may do, such as {"recipients": 100}. Beyond that the call is stopped."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in a unit test. The runtime calls `run`."""
        return self.function(*args, **kwargs)

    def __post_init__(self) -> None:
        if self.outcome is not None and self.preview is None:
            raise ValueError(f"The tool {self.name!r} has an outcome but no preview to compare it with.")
        if bool(self.undone_by) != (self.undo is not None):
            raise ValueError(f"The tool {self.name!r} needs both undone_by and undo, or neither.")
        for option, most in _AT_MOST.items():
            given = getattr(self, option)
            if type(given) is not int or not 1 <= given <= most:
                wrong = f"has a {option} that is not a whole number between 1 and {most}: {given!r}."
                raise ValueError(f"The tool {self.name!r} {wrong}")

    @property
    def hidden(self) -> frozenset[str]:
        """The parameters that the runtime fills in."""
        return frozenset({*self.injected, self.context_parameter} - {""})

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
            # Left out unless used, so that tools without them keep their version.
            **({"confirm": self.confirm} if self.confirm else {}),
            **({"preview": True, "outcome": self.outcome is not None} if self.preview else {}),
            **({"undone_by": self.undone_by} if self.undone_by else {}),
            **({"parameters": {name: dict(said) for name, said in self.parameters.items()}} if self.parameters else {}),
            **({"overlap": self.overlap} if self.overlap != "auto" else {}),
            **({"wire": dict(self.wire)} if self.wire else {}),
            **({"limits": dict(self.limits)} if self.limits else {}),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool with arguments that passed its schema. It gets a copy, so it cannot change the caller's.

        Raises ToolError if the tool leaves its errors to the caller, whatever else the function raises, and, for a
        mocked run, Isolated without calling anything.
        """
        _only_for_real(self.name)
        try:
            values = self._values(arguments)
        except ValidationError as error:
            refusal = InvalidArguments(self._misfit(error))
            if self.on_invalid is False:
                raise refusal from error
            return results.of_error(refusal)
        values |= self._filled_in(context)
        try:
            value = self.function(**values)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        except ToolError as error:
            if self.on_error is False:
                raise
            message = results.worded(self.on_error, error, str(error) or "Tool execution error")
            return results.of_error(error, message)
        return results.of_value(value, self.response)

    def misfit(self, arguments: dict[str, Any]) -> str:
        """What is wrong with arguments that fit the schema but not the types. Empty if nothing is wrong."""
        if isolation.is_on():
            return ""  # validators are code of the tool too
        try:
            self._values(arguments)
        except ValidationError as error:
            return self._misfit(error)
        except Exception:  # a validator is the tool's own code; its failure is reported when the tool runs
            log.exception("The arguments of %s could not be checked", self.name)
        return ""

    def _misfit(self, error: ValidationError) -> str:
        if self.on_invalid is False:
            return f"The arguments do not fit: {_problems(error)}."
        return results.worded(self.on_invalid, error, "Tool input validation error")

    def _values(self, arguments: dict[str, Any]) -> dict[str, Any]:
        own = copy.deepcopy(arguments)
        return self.contract.coerce(own) if self.contract else own

    def _filled_in(self, context: ToolContext) -> dict[str, Any]:
        values: dict[str, Any] = {self.context_parameter: context} if self.context_parameter else {}
        try:
            return values | {name: source.value(context) for name, source in self.injected.items()}
        except NotConfigured as error:
            log.error("%s cannot run: %s", self.name, error)
            raise ToolError(f"{self.name} is not set up here, so nothing was done. A person must set it up.") from error

    def snapshot_of(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The state of the world that a decision about this call rests on. Empty if the tool looks up none."""
        snapshot: dict[str, Any] = self.says(self.snapshot, arguments) if self.snapshot else {}
        return snapshot

    def says(self, function: Callable[..., Any], arguments: dict[str, Any], **more: Any) -> Any:
        """What one of the tool's other functions returns for a call, as JSON. It is given the arguments it names."""
        _only_for_real(self.name)
        values = self._values(arguments) | more
        wanted = inspect.signature(function).parameters
        return schema.plain_json(function(**{name: value for name, value in values.items() if name in wanted}))


class Options(TypedDict, total=False):
    """The options of `@tool(...)`; Tool explains them."""

    name: str
    description: str
    input_schema: dict[str, Any] | None
    args_schema: type[BaseModel] | None
    infer_schema: bool
    parse_docstring: bool
    examples: list[dict[str, Any]]
    effect: Effect | None
    title: str
    sentence: str
    effects: tuple[EffectLine, ...]
    button: str
    confirm: str
    snapshot: Callable[..., dict[str, Any]] | None
    preview: Callable[..., list[dict[str, Any]]] | None
    outcome: Callable[..., dict[str, Any]] | None
    undone_by: str
    undo: Callable[..., dict[str, Any]] | None
    idempotency: Literal["none", "key"]
    repeatable: bool
    trust: Trust
    locked: tuple[str, ...]
    secret: tuple[str, ...]
    pii: tuple[str, ...]
    timeout: int
    max_attempts: int
    owner: str
    output_schema: dict[str, Any] | None
    business_key: str
    return_direct: bool
    additional_arguments: Literal["reject", "drop"]
    cost: Decimal
    result_max_kb: int
    stop_on_failure: bool
    response: Response
    on_error: Wording
    on_invalid: Wording
    parameters: Mapping[str, Mapping[str, Any]]
    overlap: Literal["none", "auto", "always"]
    limits: Mapping[str, int]


@overload
def tool(target: Callable[..., Any], /) -> Tool: ...
@overload
def tool(target: str = "", /, **options: Unpack[Options]) -> Callable[[Any], Tool]: ...
def tool(target: Any = "", /, **options: Any) -> Any:
    """Make a tool from a typed function, sync or async, or from a class or object with `run` or `arun`.

    Use it bare, with a name, or with options. Name, schema, descriptions and defaults come from the
    signature and its Google-style docstring. `input_schema` or `args_schema` (a pydantic model)
    replaces the schema; `infer_schema=False` makes it a single text. The runtime fills in parameters
    annotated ToolContext or Injected. `effect` says what a call does to the world; without it, the
    worst is assumed. Raises ValueError if there is no description, the schema is not valid, an
    example does not fit it, or an option has the wrong type or names something that does not exist.
    """
    if callable(target):
        return _make(target, {})
    return lambda made_of: _make(made_of, {"name": target, **options} if target else options)


def _make(target: Any, options: dict[str, Any]) -> Tool:
    options = dict(options)
    function, own_name, docstring = target, getattr(target, "__name__", ""), inspect.getdoc(target) or ""
    if not inspect.isroutine(target):
        function, own_name, docstring = _of_class(target, options)
    name = options.pop("name", "") or own_name
    injected = injected_parameters(function, {item.name for item in dataclasses.fields(ToolContext)})
    context_parameter = _context_parameter(function)
    hidden = {*injected, context_parameter} - {""}
    given, contract = options.pop("input_schema", None), None
    if given is None:
        contract = _contract_of(function, name, docstring, hidden, options)
    for used in ("args_schema", "infer_schema", "parse_docstring"):
        options.pop(used, None)
    description = options.pop("description", "") or (contract.description if contract else docstring.strip())
    if not description:
        raise ValueError(f"The tool {name!r} needs a description: a docstring, or description='…'.")
    input_schema = given if contract is None else contract.schema
    schema.validator(input_schema)
    if options.get("output_schema") is not None:
        schema.validator(options["output_schema"])
    check_parameters(name, input_schema, options.get("parameters", {}))
    examples = options.pop("examples", [])
    if unknown := sorted(options.keys() - Options.__optional_keys__):
        raise TypeError(f"The tool {name!r} has no option {unknown[0]!r}.")
    made = Tool(
        name=name,
        description=description + _examples(name, input_schema, examples),
        input_schema=input_schema,
        function=function,
        contract=contract,
        context_parameter=context_parameter,
        injected=MappingProxyType(injected),
        **options,
    )
    declared.check(made)
    return made


def _of_class(target: Any, options: dict[str, Any]) -> tuple[Callable[..., Any], str, str]:
    """The function, name and docstring of a class tool. Options set as attributes are added to `options`."""
    made_of = target if inspect.isclass(target) else type(target)
    instance = target() if inspect.isclass(target) else target
    for option in ("name", "description", "args_schema", "snapshot", "preview", "outcome", "undone_by", "undo"):
        if hasattr(instance, option):
            options.setdefault(option, getattr(instance, option))
        elif option in inspect.get_annotations(made_of):
            raise ValueError(f"The class tool {made_of.__name__!r} annotates {option} but gives it no value.")
    # The worker is sync: if both exist, use the one that needs no event loop.
    function = getattr(instance, "run", None) or getattr(instance, "arun", None)
    if not callable(function):
        raise ValueError(f"The class tool {made_of.__name__!r} needs a method run or arun.")
    return function, made_of.__name__, inspect.getdoc(function) or inspect.getdoc(made_of) or ""


def _contract_of(
    function: Callable[..., Any], name: str, docstring: str, hidden: set[str], options: dict[str, Any]
) -> schema.FunctionContract:
    if not options.get("infer_schema", True):
        return schema.contract_of_text(function, name, docstring, hidden)
    plain = "" if options.get("parse_docstring", True) else docstring.strip()
    read = "" if plain else docstring
    if options.get("args_schema") is not None:
        contract = schema.contract_of_model(options["args_schema"], function, name, read, hidden)
    else:
        contract = schema.contract_of(function, name, read, hidden)
    return dataclasses.replace(contract, description=plain) if plain else contract


def _examples(name: str, input_schema: dict[str, Any], examples: list[dict[str, Any]]) -> str:
    """Examples of correct calls, as the model reads them. Raises ValueError for one that does not fit the schema."""
    for example in examples:
        problems = schema.check_arguments(input_schema, example)
        if problems:
            raise ValueError(f"An example of the tool {name!r} does not fit: {problems[0].sentence}")
    lines = [json.dumps(example, ensure_ascii=False) for example in examples]
    return "\n\nExamples of arguments:\n" + "\n".join(lines) if lines else ""


def _only_for_real(name: str) -> None:
    if isolation.is_on():
        raise isolation.Isolated(f"{name} was called on behalf of a mocked run.")


def _problems(error: ValidationError) -> str:
    """What pydantic found, without quoting what was sent: it may be a secret."""
    found = error.errors(include_input=False, include_url=False)
    return "; ".join(f"{'/'.join(map(str, item['loc'])) or 'together'}: {item['msg']}" for item in found)


def _context_parameter(function: Callable[..., Any]) -> str:
    for name, annotation in inspect.get_annotations(function, eval_str=True).items():
        if annotation is ToolContext and name != "return":
            return name
    return ""


async def _awaited(value: Any) -> Any:
    return await value
