"""Conditions in CEL: what is wrong with one that is written, and what one says of the names it is given. Pure."""

import functools
import re
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from django.core.exceptions import ValidationError

# The package loads its own command line first, with a terminal's editor: a fifth of every process's start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel  # noqa: E402

# The name a macro binds, as `item` in args.items.exists(item, item > 3).
_LOOP_NAME = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
# A loop begins, a bracket opens or closes, a list is looked through, or lists are put together.
_PARTS = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(|[()]|\bin\b|\+")
# Texts, and remarks, in which an apostrophe begins no text.
_TEXTS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|//[^\n]*)""")
_SYNTAX = re.compile(r"<input>:\d+:(\d+): Syntax error: (.*?)(?: expecting .*)?$", re.MULTILINE)
_TOKEN = re.compile(r"'(.*)'")

# What is longer can be a chain that ends the process where it is read or evaluated, by a signal that nothing catches.
# Brackets the reader counts itself; of chains, no more fits in here than a thread's stack carries many times over.
MAX_CHARS = 2000
# Loops within loops go so often round for one condition at most: nothing interrupts them, and nothing else of the
# process goes on meanwhile.
MOST_ROUNDS = 1_000_000

Context = cel.Context
"""What a condition is evaluated with: names and their values."""

Functions = Mapping[str, Callable[..., Any]]
_NONE: Functions = MappingProxyType({})


class TooMuch(ValueError):
    """A condition is not evaluated: over these values it would take too long."""


def check(text: str, names: Collection[str]) -> None:
    """Refuse a condition that does not compile, looks at other names or has no end. Raises ValidationError."""
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
    """What a condition looks at, as args or customer. Raises ValueError when it does not compile or is too long."""
    return _compiled(text)[1] if text.strip() else frozenset()


def is_true(text: str, names: Mapping[str, Any] | Context, functions: Functions = _NONE) -> bool:
    """Whether a condition holds; an empty one does. Raises whatever stops it from being evaluated.

    A context that was made once does for many conditions, without loops in loops; functions are added to names only.
    """
    if not text.strip():
        return True
    if (depth := depth_of(text)) > 1:
        if isinstance(names, Context):
            raise TypeError("loops within loops are given the names themselves, which are looked at first")
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
    """How many loops of a condition stand within each other: of its macros, and of `in`, which looks through a list."""
    deepest, opened = 0, [0]
    for part in _PARTS.findall(_TEXTS.sub("", text)):
        if part.endswith("("):
            opened.append(opened[-1] + (part != "("))
        elif part == ")":
            opened = opened[:-1] or [0]
        deepest = max(deepest, opened[-1] + (part == "in" and opened[-1] > 0))
    return deepest


def _must_end(text: str, depth: int, names: Mapping[str, Any]) -> None:
    """Raises TooMuch where loops within loops would go round too often."""
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
    """What the compiler says, for somebody who does not know its grammar."""
    found = _SYNTAX.search(error)
    if found is None:
        return error
    place, problem = found[1], found[2]
    if "'<EOF>'" in problem and "mismatched" in problem:
        return f"it ends at character {place}, where something is missing."
    if (token := _TOKEN.search(problem)) is None:
        return f"{problem.strip()}, at character {place}."
    advice = " Equal is written ==." if token[1].strip() == "=" else ""
    return f"{token[1].strip()!r} cannot stand at character {place}.{advice}"


def _too_long(text: str) -> str:
    return f"The condition has {len(text):,} characters; at most {MAX_CHARS:,} are evaluated."


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> tuple[cel.Program, frozenset[str]]:
    """A condition made ready, and the names it looks at. None is read or evaluated but what comes from here."""
    if len(text) > MAX_CHARS:
        raise ValueError(_too_long(text))
    program = cel.compile(text)
    return program, frozenset(program.variables()) - frozenset(_LOOP_NAME.findall(text))
