"""Typed functions → JSON Schema, and arguments checked against one (draft 2020-12, no remote references)."""

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import jsonschema_rs
from griffe import Docstring, DocstringSectionKind
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

MAX_PROBLEMS = 10


@dataclass(frozen=True)
class ArgumentProblem:
    """One thing wrong with arguments. `field` is the path, as in items/0/sku; empty for the whole."""

    kind: str
    field: str
    sentence: str


@dataclass(frozen=True)
class FunctionContract:
    """What a function's signature and docstring say about its arguments."""

    description: str
    schema: dict[str, Any]
    model: type[BaseModel]

    def coerce(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as the types the signature names, defaults filled in. Raises pydantic.ValidationError."""
        values = self.model.model_validate(arguments)
        return {name: getattr(values, name) for name in self.model.model_fields}


class InvalidSchema(ValueError):
    """A tool's schema is not valid JSON Schema, or needs something from elsewhere."""


class _Untitled(GenerateJsonSchema):
    """Schemas without the titles pydantic makes up from names; people write better ones."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def contract_of(function: Callable[..., Any], name: str, docstring: str, hidden: set[str]) -> FunctionContract:
    """The contract of a typed function. `hidden` parameters are filled in by the runtime, not the model.

    Raises ValueError for a parameter without a type, or a docstring that names one that is not there.
    """
    annotations = inspect.get_annotations(function, eval_str=True)
    description, described = _read_docstring(docstring)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in hidden:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"The tool {name!r} takes *{parameter.name}; its arguments must be named.")
        if parameter.name not in annotations:
            raise ValueError(f"The parameter {parameter.name!r} of the tool {name!r} needs a type.")
        fields[parameter.name] = _field(parameter, annotations[parameter.name], described.get(parameter.name, ""))
    unknown = set(described) - set(fields) - hidden
    if unknown:
        raise ValueError(f"The docstring of {name!r} describes {sorted(unknown)[0]!r}, which it does not take.")
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema(schema_generator=_Untitled)
    schema.pop("title", None)
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return FunctionContract(description, schema, model)


def check_arguments(schema: dict[str, Any], arguments: Any) -> list[ArgumentProblem]:
    """What is wrong with arguments; an empty list when nothing is. Missing fields come first."""
    problems = [_problem(error) for error in validator(schema).iter_errors(arguments)]
    problems.sort(key=lambda problem: problem.kind != "missing")
    return problems[:MAX_PROBLEMS]


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """The compiled form of a schema, kept. Raises InvalidSchema."""
    return _compiled(json.dumps(schema, sort_keys=True))


def plain_json(value: Any) -> Any:
    """A tool's return value as JSON values: models, dataclasses, dates and decimals included."""
    return TypeAdapter(Any).dump_python(value, mode="json")


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator(
            # Messages are kept and shown; an argument may be a secret, so they never quote one.
            json.loads(text),
            retriever=_nothing_remote,
            validate_formats=True,
            mask="the value",
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidSchema(f"Not a usable JSON Schema: {str(error).splitlines()[0]}") from error


def _nothing_remote(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}")


def _problem(error: Any) -> ArgumentProblem:
    kind = error.kind.name
    path = "/".join(str(part) for part in error.instance_path)
    if kind == "required":
        name = error.kind.property
        return ArgumentProblem("missing", f"{path}/{name}".strip("/"), f"{name} is missing.")
    if kind == "additionalProperties":
        name = error.kind.unexpected[0]
        return ArgumentProblem("extra", f"{path}/{name}".strip("/"), f"{name} is not an argument of this tool.")
    sentence = str(error.message)
    if len(sentence) > 300:
        sentence = sentence[:299] + "…"
    return ArgumentProblem("invalid", path, f"{path or 'The arguments'}: {sentence}.")


def _field(parameter: inspect.Parameter, annotation: Any, description: str) -> Any:
    default = ... if parameter.default is parameter.empty else parameter.default
    if description and not _has_description(annotation):
        annotation = Annotated[annotation, Field(description=description)]
    elif get_origin(annotation) is Annotated:
        texts = [item for item in get_args(annotation)[1:] if isinstance(item, str)]
        if texts:
            annotation = Annotated[annotation, Field(description=texts[0])]
    return (annotation, default)


def _has_description(annotation: Any) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    return any(isinstance(i, str) or (isinstance(i, FieldInfo) and i.description) for i in get_args(annotation)[1:])


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description and the described arguments of a Google-style docstring."""
    if not text.strip():
        return "", {}
    description, described = [], {}
    for section in Docstring(text, lineno=1).parse("google", warnings=False):
        if section.kind is DocstringSectionKind.text:
            description.append(section.value)
        elif section.kind is DocstringSectionKind.parameters:
            described.update({item.name: item.description for item in section.value})
    return "\n\n".join(description).strip(), described
