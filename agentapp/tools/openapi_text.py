"""The text of a document, in JSON or YAML → JSON values of a manageable size and depth."""

import json
import math
import re
from typing import Any

import yaml

from agentapp.plain_yaml import NUMBERS, TAG, add_resolvers
from approvals.digest import MAX_EXACT, storable_json

# GitHub's is 13 MB, the longest we know.
MAX_BYTES = 20_000_000
# A YAML alias stands for what it names: a small text can be a document of any size.
MAX_NODES, MAX_CHARS = 3_000_000, 2 * MAX_BYTES
# The YAML parser recurses for each level, and crashes the process if there are too many.
MAX_DEPTH = 1000
# Escapes in the document of characters that no database stores.
_UNSTORABLE = re.compile(r"\\(0|x00|u0000|u[dD][89a-fA-F])")


class DocumentRefused(Exception):
    """A document cannot be read. The message tells the person who gave it why."""


def parsed(text: str | bytes) -> Any:
    """The content of a document. Raises DocumentRefused."""
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
    """Its content. JSON is read as JSON, which is ten times as fast."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_float)
    except ValueError:
        _check_depth(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def _integer(text: str) -> int | float:
    """A number as every JSON reader understands it: the bounds of 64 bits, which many documents name, are not exact."""
    value = int(text)
    return value if abs(value) <= MAX_EXACT else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a JSON number.")
    return value


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DocumentRefused("The document is nested too deeply.")


def _check(document: Any) -> None:
    """Check that it is JSON, and of a manageable size."""
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
            raise DocumentRefused(f"The document contains a value that JSON does not have ({type(one).__name__}).")
        if seen + len(left) > MAX_NODES or chars > MAX_CHARS:
            raise DocumentRefused("The document is too large with its aliases expanded.")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML limited to what JSON has, as OpenAPI requires: dates, times of day and NO stay text, as do all keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    _pairs = 0

    def flatten_mapping(self, node: Any) -> None:
        """Limits what merging adds, as mappings are merged as often as they are named, and makes every key a text."""
        super().flatten_mapping(node)
        self._pairs += len(node.value)
        if self._pairs > MAX_NODES:
            raise DocumentRefused("The document is too large with its aliases expanded.")
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
