"""What a tool declares besides its schema, checked against what it takes and returns.

An unknown name is an error where the tool is defined; otherwise it would silently not be masked, locked or looked up.
"""

import collections.abc
import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin

from pydantic import TypeAdapter

from agentapp.tools import sentences
from agentapp.tools.fields import Fields, fields_of
from agentapp.tools.schema import unknown_names

_LOOKS = ("snapshot", "preview", "outcome", "undo")
# These are also given what the call returned.
_TOLD_RESULT = ("outcome", "undo")
_NAMES = ("locked", "secret", "pii")
# Any of these parameters may be left out.
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NUMBER = (Decimal, int, float)
_WORDS = {str: "text", bool: "true or false", int: "a whole number", Decimal: "a number"}


@dataclass(frozen=True)
class EffectLine:
    """One line of what leaves, what changes or who is told. Texts are templates over the arguments."""

    title: str
    detail: str = ""
    icon: str = "zap"


class Declared(Protocol):
    """The parts of a tool that are checked here; `base.Tool` explains them."""

    @property
    def name(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def output_schema(self) -> dict[str, Any] | None: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def locked(self) -> tuple[str, ...]: ...
    @property
    def snapshot(self) -> Callable[..., Any] | None: ...
    @property
    def effects(self) -> tuple[EffectLine, ...]: ...
    @property
    def business_key(self) -> str: ...
    @property
    def limits(self) -> Mapping[str, int]: ...


def check(tool: Declared) -> None:
    """Raises ValueError, naming the tool and what is wrong with its definition."""
    for wrong in _problems(tool):
        raise ValueError(f"The tool {tool.name!r} {wrong}")


def _problems(tool: Declared) -> Iterator[str]:
    """What is wrong, in order: later checks rely on what earlier ones checked."""
    yield from _of_kinds(tool)
    yield from _of_templates(tool)
    for option in _LOOKS:
        if (function := getattr(tool, option)) is not None:
            yield from _of_function(tool, option, function)
    for name in unknown_names(tool.input_schema, tool.locked):
        yield f"locks {name!r}, which is not an argument; it has {_arguments(tool)}."
    given = _given(tool)
    for option, word in (("secret", "secret"), ("pii", "personal")):
        for name in getattr(tool, option):
            if not given.may_have(name):
                yield f"marks {name!r} as {word}, which it neither takes nor returns; it has {_arguments(tool)}."


def doubts(tool: Declared) -> list[str]:
    """Marks that may be meant for another argument. Nothing is certain where results may have any field."""
    known = fields_of(tool.input_schema).names
    marked = {name for option in ("secret", "pii") for name in getattr(tool, option)}
    found = []
    for name in sorted(marked - known):
        near = difflib.get_close_matches(name, sorted(known - marked), n=1, cutoff=0.75)
        found += [
            f"{tool.name} marks {name!r}, which is not one of its arguments; did you mean {each!r}?" for each in near
        ]
    return found


def _of_kinds(tool: Declared) -> Iterator[str]:
    """Options whose type is not the declared one."""
    for field in fields(tool):  # type: ignore[arg-type]
        value = getattr(tool, field.name)
        if field.name in _NAMES:
            if not isinstance(value, (tuple, list, set, frozenset)) or not all(isinstance(name, str) for name in value):
                yield f"has {field.name}={value!r}, which is not a tuple of names, such as ('pin',)."
        elif wrong := _misfit(field.type, value):
            yield f"has {field.name}={value!r}, which is not {wrong}."
    if not isinstance(tool.effects, (tuple, list)) or not all(isinstance(line, EffectLine) for line in tool.effects):
        yield "has effects that are not a tuple of EffectLine."
    if not isinstance(tool.limits, Mapping):
        yield "has limits that are not a mapping from a name to a number."
    for kind, most in tool.limits.items():
        if not isinstance(kind, str) or isinstance(most, bool) or not isinstance(most, int) or most < 0:
            yield f"has the limit {kind!r}: {most!r}, which is not a whole number."


def _misfit(kind: Any, value: Any) -> str:
    """What a value should have been. Empty if it is right, or if its declared type is not a plain one."""
    among = [kind]
    if get_origin(kind) in (Union, UnionType):
        among = [each for each in get_args(kind) if each is not NoneType]
        if value is None or len(among) > 1:
            return ""
    [one] = among
    if get_origin(one) is Literal:
        return "" if value in get_args(one) else f"one of {', '.join(get_args(one))}"
    if get_origin(one) is collections.abc.Callable:
        return "" if callable(value) else "a function"
    if one not in _WORDS:
        return ""
    is_one = isinstance(value, _NUMBER if one is Decimal else one) and (one is bool or not isinstance(value, bool))
    return "" if is_one else _WORDS[one]


def _of_templates(tool: Declared) -> Iterator[str]:
    known = set(tool.input_schema.get("properties", {}))
    texts = [getattr(tool, option) for option in ("title", "sentence", "button", "confirm")]
    texts += [text for line in tool.effects for text in (line.title, line.detail)]
    looks_up = tool.snapshot is not None
    for text, may_say in [*((text, looks_up) for text in texts), (tool.business_key, False)]:
        if problem := sentences.check_template(text, known, may_say):
            yield f"has a wrong template. {problem}"


def _of_function(tool: Declared, option: str, function: Callable[..., Any]) -> Iterator[str]:
    """Parameters of one of the tool's other functions that no call can fill, unless they have a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        yield f"has {option}={function!r}, whose parameters cannot be read."
        return
    more = {"result"} if option in _TOLD_RESULT else set()
    wanted = [each.name for each in parameters if each.default is each.empty and each.kind not in _ANY]
    for name in unknown_names(tool.input_schema, [name for name in wanted if name not in more]):
        yield f"has a function as {option} that takes {name!r}, which is not an argument; it has {_arguments(tool)}."
    if named := [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY and each.default is each.empty]:
        yield f"has a function as {option} that takes {named[0]!r} by position, but it is given by name."


def _given(tool: Declared) -> Fields:
    """The fields that can be marked: of arguments and results, at any depth, and any field of what is looked up."""
    looked_up = any(getattr(tool, option) is not None for option in _LOOKS)
    results = fields_of(tool.output_schema) if tool.output_schema is not None else _of_results(tool.function)
    known = fields_of(tool.input_schema)
    return Fields(known.names | results.names, known.others or results.others or looked_up)


def _of_results(function: Callable[..., Any]) -> Fields:
    """The fields of the type that a function is annotated to return."""
    try:
        returns = inspect.get_annotations(function, eval_str=True)["return"]
        return fields_of(TypeAdapter(returns).json_schema(mode="serialization", by_alias=False))
    except Exception:  # it is not annotated, or with a type that has no schema
        return Fields(frozenset(), others=True)


def _arguments(tool: Declared) -> str:
    return ", ".join(sorted(tool.input_schema.get("properties", {}))) or "none"
