"""The text of a document, in JSON or YAML → values of JSON, of a size and a depth that can be worked with."""

import json
import math
import re
from typing import Any

import yaml

from agentapp.plain_yaml import NUMBERS, TAG, add_resolvers
from approvals.digest import MAX_EXACT, storable_json

# GitHub's is 13 MB, the longest we know.
MAX_BYTES = 20_000_000
# An alias of YAML stands for what it names: a small text can be a document of any size.
MAX_NODES, MAX_CHARS = 3_000_000, 2 * MAX_BYTES
# The parser of YAML calls itself for each level, and ends the process where there are too many.
MAX_DEPTH = 1000
# What a text of it may hold that no database keeps, as it is escaped.
_UNSTORABLE = re.compile(r"\\(0|x00|u0000|u[dD][89a-fA-F])")


class DocumentRefused(Exception):
    """A document cannot be read; the message says why, for the person who gave it."""


def parsed(text: str | bytes) -> Any:
    """What it says. Raises DocumentRefused."""
    if len(text) > MAX_BYTES:
        raise DocumentRefused(f"The document is longer than {MAX_BYTES} bytes.")
    try:
        found = _loaded(text)
    except RecursionError as error:
        raise DocumentRefused("The document is nested too deeply.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentRefused(f"The document is neither JSON nor YAML: {str(error)[:200]}") from error
    _check(found)
    is_storable = not _UNSTORABLE.search(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    return found if is_storable else storable_json(found)


def _loaded(text: str | bytes) -> Any:
    """Its content. What is JSON is read as such, ten times as fast."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_float)
    except ValueError:
        _check_depth(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def _integer(text: str) -> int | float:
    """A number as every reader of JSON takes it: the bounds of 64 bits, which many documents name, are not exact."""
    value = int(text)
    return value if abs(value) <= MAX_EXACT else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number of JSON.")
    return value


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DocumentRefused("The document is nested too deeply.")


def _check(document: Any) -> None:
    """That it is JSON, and of a size that can be worked with."""
    left, seen, chars = [document], 0, 0
    while left:
        one = left.pop()
        seen += 1
        if isinstance(one, dict):
            left += one.values()
            chars += sum(map(len, one))
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str):
            chars += len(one)
        elif one is not None and not isinstance(one, bool | int | float):
            raise DocumentRefused(f"The document holds what JSON has no word for ({type(one).__name__}).")
        if seen + len(left) > MAX_NODES or chars > MAX_CHARS:
            raise DocumentRefused("The document is too large once its aliases are filled in.")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as JSON knows it, and as OpenAPI has it: a date, a time of day and NO stay text, and so does every key."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    _pairs = 0

    def flatten_mapping(self, node: Any) -> None:
        """Mappings that are merged into others are merged as often as they are named."""
        super().flatten_mapping(node)
        self._pairs += len(node.value)
        if self._pairs > MAX_NODES:
            raise DocumentRefused("The document is too large once its aliases are filled in.")
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = f"{TAG}str"


add_resolvers(
    _Loader,
    (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        *NUMBERS,
        ("merge", r"<<", ["<"]),
    ),
)
_Loader.add_constructor(f"{TAG}int", lambda loader, node: _integer(loader.construct_scalar(node)))
_Loader.add_constructor(f"{TAG}float", lambda loader, node: _float(loader.construct_scalar(node)))
