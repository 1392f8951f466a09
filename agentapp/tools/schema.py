"""Typed functions → JSON Schema, and arguments checked against one (draft 2020-12, no remote references)."""

import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from agentapp.tools import docstrings, schema_effort

MAX_PROBLEMS = 10
MOST_BACKTRACKS = 20_000
"""A third of a millisecond. Patterns that look ahead over a long text backtrack twice for each of its characters."""
TOO_MUCH = "{} nested too deeply to check against a schema that contains itself in several ways: {} less at a time."
UNEXPLAINED = "{} not what the schema says, but nested too deeply to say where."
# With one of these, a schema names arguments outside its properties.
_OPEN = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref")


@dataclass(frozen=True)
class ArgumentProblem:
    """One thing wrong with arguments. `field` is the path, such as items/0/sku; empty for the whole."""

    kind: str
    field: str
    sentence: str


@dataclass(frozen=True)
class Words:
    """What to call a value that is checked against a schema, and what to say about an unknown name."""

    whole: str
    extra: str
    subject: str = "It is"
    instead: str = "send"
    """The verb for reducing a value that is too large."""


ARGUMENTS = Words("The arguments", "is not an argument of this tool", "The arguments are")
RESULT = Words("", "is not part of such a result", "The result is", "ask for")


@dataclass(frozen=True)
class FunctionContract:
    """What a function's signature and docstring say about its arguments."""

    description: str
    schema: dict[str, Any]
    model: type[BaseModel]

    def coerce(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments converted to the signature's types, with defaults. Raises pydantic.ValidationError."""
        values = self.model.model_validate(arguments)
        return {name: getattr(values, name) for name in self.model.model_fields}


class InvalidSchema(ValueError):
    """A tool's schema is not valid JSON Schema, or needs something from elsewhere."""


class _Untitled(GenerateJsonSchema):
    """Schemas without the titles that pydantic derives from names; people write better ones."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def contract_of(function: Callable[..., Any], name: str, docstring: str, hidden: set[str]) -> FunctionContract:
    """The contract of a typed function. `hidden` parameters are filled in by the runtime, not the model.

    Raises ValueError for a parameter without a type, a default that does not fit, or a docstring that
    is malformed or describes a parameter that does not exist.
    """
    annotations = inspect.get_annotations(function, eval_str=True)
    description, described = docstrings.read(docstring)
    fields: dict[str, Any] = {}
    for parameter in _parameters(function, name, hidden):
        if parameter.name not in annotations:
            raise ValueError(f"The parameter {parameter.name!r} of the tool {name!r} needs a type.")
        fields[parameter.name] = _field(parameter, annotations[parameter.name], described.get(parameter.name, ""))
    _check_described(name, described, {*fields, *hidden})
    return _contract(name, create_model(name, __config__=ConfigDict(extra="forbid"), **fields), description)


def contract_of_model(
    model: Any, function: Callable[..., Any], name: str, docstring: str, hidden: set[str]
) -> FunctionContract:
    """The contract of a function whose arguments a pydantic model describes. Raises ValueError, naming the fault."""
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise ValueError(f"The args_schema of the tool {name!r} must be a pydantic model, not {model!r}.")
    parameters = {parameter.name: parameter for parameter in _parameters(function, name, hidden)}
    for field in model.model_fields:
        if field not in parameters:
            raise ValueError(f"The args_schema of the tool {name!r} has {field!r}, which the tool does not take.")
    for parameter in parameters.values():
        if parameter.default is parameter.empty and parameter.name not in model.model_fields:
            raise ValueError(f"The args_schema of the tool {name!r} lacks {parameter.name!r}, which the tool needs.")
    description, described = docstrings.read(docstring)
    _check_described(name, described, {*parameters, *hidden})
    contract = _contract(name, model, description or inspect.cleandoc(model.__doc__ or ""))
    for field, text in described.items():
        contract.schema["properties"].get(field, {}).setdefault("description", text)
    return contract


def contract_of_text(function: Callable[..., Any], name: str, docstring: str, hidden: set[str]) -> FunctionContract:
    """The contract of a function that takes one text, whatever its signature says. Raises ValueError."""
    parameters = list(_parameters(function, name, hidden))
    if len(parameters) != 1:
        raise ValueError(f"The tool {name!r} must take one text, but takes {len(parameters)} arguments.")
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **{parameters[0].name: (str, ...)})  # type: ignore[call-overload]
    return _contract(name, model, docstring.strip())


def _parameters(function: Callable[..., Any], name: str, hidden: set[str]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in hidden:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"The tool {name!r} takes *{parameter.name}; its arguments must be named.")
        yield parameter


def _check_described(name: str, described: dict[str, str], known: set[str]) -> None:
    unknown = sorted(set(described) - known)
    if unknown:
        raise ValueError(f"The docstring of {name!r} describes {unknown[0]!r}, which it does not take.")


def _contract(name: str, model: type[BaseModel], description: str) -> FunctionContract:
    schema = model.model_json_schema(schema_generator=_Untitled)
    schema.pop("title", None)
    schema.pop("description", None)
    schema.setdefault("properties", {})
    _close(schema)
    for field, described in schema["properties"].items():
        if "default" in described and problems_of(
            {**described, "$defs": schema.get("$defs", {})}, described["default"]
        ):
            raise ValueError(f"The default of {field!r} of the tool {name!r} does not fit its own type.")
    return FunctionContract(description, schema, model)


def _close(schema: Any) -> None:
    """Make every object in a schema refuse unknown names: pydantic would drop them after people have seen them."""
    if not isinstance(schema, dict):
        return
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    for part in ("properties", "$defs"):
        for inner in schema.get(part, {}).values():
            _close(inner)
    for part in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in schema.get(part, []):
            _close(inner)
    for part in ("items", "additionalProperties"):
        _close(schema.get(part))


def check_arguments(schema: dict[str, Any], arguments: Any) -> list[ArgumentProblem]:
    """What is wrong with arguments: an empty list if nothing is. Missing fields come first."""
    problems = problems_of(schema, arguments)
    if isinstance(arguments, dict) and "additionalProperties" not in schema:
        # A schema that does not mention additional arguments takes none.
        problems += [_extra(name, "") for name in unknown_names(schema, arguments)]
    problems.sort(key=lambda problem: problem.kind != "missing")
    return problems[:MAX_PROBLEMS]


def unknown_names(schema: dict[str, Any], names: Collection[str]) -> list[str]:
    """The names that a schema does not have, unless it says that it takes others."""
    if schema.get("additionalProperties", False) is not False or any(key in schema for key in _OPEN):
        return []
    return [name for name in names if name not in schema.get("properties", {})]


def problems_of(schema: dict[str, Any], value: Any, words: Words = ARGUMENTS) -> list[ArgumentProblem]:
    """What is wrong with any value according to a schema. Raises InvalidSchema."""
    text = json.dumps(schema, sort_keys=True)
    compiled = _compiled(text)
    looks = schema_effort.looks(text, value)
    if looks > schema_effort.MOST_LOOKS:
        return [ArgumentProblem("invalid", "", TOO_MUCH.format(words.subject, words.instead))]
    if compiled.is_valid(value):
        return []
    if looks > schema_effort.MOST_EXPLAINED:
        return [ArgumentProblem("invalid", "", UNEXPLAINED.format(words.subject))]
    many = schema_effort.may_be_wrong_in_too_many_ways(text, value)
    errors = _first_error(compiled, value) if many else compiled.iter_errors(value)
    return [problem for error in errors for problem in _problems(error, words)]


def _first_error(compiled: jsonschema_rs.Draft202012Validator, value: Any) -> list[jsonschema_rs.ValidationError]:
    """One thing wrong with a value, for when all of them would be too many to keep: they are found all at once."""
    try:
        compiled.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """The compiled form of a schema, kept. Raises InvalidSchema."""
    return _compiled(json.dumps(schema, sort_keys=True))


def plain_json(value: Any) -> Any:
    """A tool's return value as JSON values: models, dataclasses, dates and decimals included."""
    return TypeAdapter(Any).dump_python(value, mode="json", fallback=str)


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator(
            # Messages are kept and shown; an argument may be a secret, so they never quote one.
            json.loads(text),
            retriever=_nothing_remote,
            validate_formats=True,
            mask="the value",
            # Somebody else's pattern may backtrack for ever over a short text, and nothing can interrupt it.
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MOST_BACKTRACKS),
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidSchema(f"Not a usable JSON Schema: {str(error).splitlines()[0]}") from error


def _nothing_remote(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}")


def _problems(error: Any, words: Words) -> list[ArgumentProblem]:
    kind = error.kind.name
    path = "/".join(str(part) for part in error.instance_path)
    if kind == "required":
        name = error.kind.property
        return [ArgumentProblem("missing", f"{path}/{name}".strip("/"), f"{name} is missing.")]
    if kind == "additionalProperties":
        return [_extra(name, path, words) for name in error.kind.unexpected]
    sentence = str(error.message)
    if len(sentence) > 300:
        sentence = sentence[:299] + "…"
    where = path or words.whole
    said = f"{where}: {sentence}." if where else f"{sentence[:1].upper()}{sentence[1:]}."
    return [ArgumentProblem("invalid", path, said)]


def _extra(name: str, path: str, words: Words = ARGUMENTS) -> ArgumentProblem:
    return ArgumentProblem("extra", f"{path}/{name}".strip("/"), f"{name} {words.extra}.")


def _field(parameter: inspect.Parameter, annotation: Any, description: str) -> Any:
    default = ... if parameter.default is parameter.empty else parameter.default
    if not description and get_origin(annotation) is Annotated:
        description = next((item for item in get_args(annotation)[1:] if isinstance(item, str)), "")
    elif _has_description(annotation):
        description = ""
    if default is None and not _takes_none(annotation):
        annotation = annotation | None
    if description:
        annotation = Annotated[annotation, Field(description=description)]
    if default is ... and _has_default(annotation):
        return annotation
    return (annotation, default)


def _takes_none(annotation: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(None)
    except ValidationError:
        return False
    return True


def _has_default(annotation: Any) -> bool:
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return any(isinstance(mark, FieldInfo) and not mark.is_required() for mark in marks)


def _has_description(annotation: Any) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    return any(isinstance(i, str) or (isinstance(i, FieldInfo) and i.description) for i in get_args(annotation)[1:])
