"""Conditions in CEL: what is wrong with how one is written, and whether it holds for the names it is given. Pure."""

import functools
import re
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from django.core.exceptions import ValidationError

# The package would load its own command line first, with a terminal editor: a fifth of every process's start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel  # noqa: E402

# The name a macro binds, as `item` in args.items.exists(item, item > 3).
_LOOP_NAME = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
# The start of a loop, a bracket, `in` (which searches a list), or lists being joined.
_PARTS = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(|[()]|\bin\b|\+")
# Strings, and comments, in which an apostrophe does not begin a string.
_TEXTS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|//[^\n]*)""")
_SYNTAX = re.compile(r"<input>:\d+:(\d+): (?:Syntax error: )?(.*?)(?: expecting .*)?$", re.MULTILINE)
_NESTED = "Recursion limit"
_TOKEN = re.compile(r"'(.*)'")

# A longer condition can be a chain so deep that reading or evaluating it kills the process with a signal that nothing
# catches. The parser itself limits brackets, and the chains that fit within this limit need only a fraction of a
# thread's stack.
MAX_CHARS = 2000
# Nested loops of one condition may go round at most this often. Nothing interrupts them, and the whole process waits.
MOST_ROUNDS = 1_000_000

Context = cel.Context
"""What a condition is evaluated with: names and their values."""

Functions = Mapping[str, Callable[..., Any]]
_NONE: Functions = MappingProxyType({})


class TooMuch(ValueError):
    """A condition is not evaluated because it would take too long over these values."""


def check(text: str, names: Collection[str]) -> None:
    """Refuse a condition that does not compile, uses other names, or is too long. Raises ValidationError."""
    if not text.strip():
        return
    if len(text) > MAX_CHARS:
        raise ValidationError(_too_long(text))
    try:
        _, looked_at = _compiled(text)
    except ValueError as error:
        raise ValidationError(f"The condition does not compile: {_why(str(error))}") from error
    unknown = sorted(looked_at - set(names))
    if unknown:
        raise ValidationError(f"Unknown name {unknown[0]!r}; a condition can look at {', '.join(names)}.")


def names_in(text: str) -> frozenset[str]:
    """What a condition looks at, such as args or customer. Raises ValueError if it does not compile or is too long."""
    return _compiled(text)[1] if text.strip() else frozenset()


def is_true(text: str, names: Mapping[str, Any] | Context, functions: Functions = _NONE) -> bool:
    """Whether a condition holds; an empty one does. Raises whatever stops the evaluation.

    A context made once serves many conditions, but not those with nested loops. Functions need names, not a context.
    """
    if not text.strip():
        return True
    if (depth := depth_of(text)) > 1:
        if isinstance(names, Context):
            raise TypeError("nested loops need the names themselves, which are checked first")
        _must_end(text, depth, names)
    context = names if isinstance(names, Context) else Context(variables=dict(names))
    for name, function in functions.items():
        context.add_function(name, function)
    value = _compiled(text)[0].execute(context)
    if not isinstance(value, bool):
        raise TypeError(f"it gave {type(value).__name__}, not true or false")
    return value


@functools.lru_cache(maxsize=1024)
def depth_of(text: str) -> int:
    """How deeply the loops of a condition are nested: those of its macros, and those of `in`, which searches a list."""
    deepest, opened = 0, [0]
    for part in _PARTS.findall(_TEXTS.sub("", text)):
        if part.endswith("("):
            opened.append(opened[-1] + (part != "("))
        elif part == ")":
            opened = opened[:-1] or [0]
        deepest = max(deepest, opened[-1] + (part == "in" and opened[-1] > 0))
    return deepest


def _must_end(text: str, depth: int, names: Mapping[str, Any]) -> None:
    """Raises TooMuch if nested loops would go round too often."""
    longest, left = 0, list(names.values())
    while left:
        value = left.pop()
        if isinstance(value, Mapping | list | tuple):
            longest = max(longest, len(value))
            left += value.values() if isinstance(value, Mapping) else value
    put_together = 1 + text.count("+")
    if (longest * put_together) ** depth > MOST_ROUNDS:
        raise TooMuch(f"its loops would go round {longest:,} to the power of {depth} times")


def _why(error: str) -> str:
    """What the compiler says, for somebody who does not know the grammar."""
    found = _SYNTAX.search(error)
    if found is None:
        return error
    place, problem = found[1], found[2]
    if _NESTED in error:
        return "it is nested too deeply."
    if "'<EOF>'" in problem and "mismatched" in problem:
        return f"it ends at character {place}, where something is missing."
    if ("token" not in problem and "input '" not in problem) or (token := _TOKEN.search(problem)) is None:
        return f"{problem.strip()}, at character {place}."
    advice = " Use == for equality." if token[1].strip() == "=" else ""
    return f"{token[1].strip()!r} is not allowed at character {place}.{advice}"


def _too_long(text: str) -> str:
    return f"The condition has {len(text):,} characters; at most {MAX_CHARS:,} are allowed."


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> tuple[cel.Program, frozenset[str]]:
    """A compiled condition and the names it looks at. Every condition is read and evaluated through here."""
    if len(text) > MAX_CHARS:
        raise ValueError(_too_long(text))
    program = cel.compile(text)
    return program, frozenset(program.variables()) - frozenset(_LOOP_NAME.findall(text))
