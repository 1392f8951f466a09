"""How much work it is to check a value against a schema, told before it is done.

A schema whose alternatives contain themselves has each level of a value looked at once for each way that leads there:
two ways are a thousand looks at the tenth level and a million at the twentieth, which nothing can interrupt. Schemas
come from servers of others.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

MOST_WAYS = 64
"""As many ways to one place as schemas need that people write. Where there are never more, nothing is counted."""
MOST_LOOKS = 20_000
DEEPEST = 64
"""Levels that are followed: arguments have no more."""

_ENDLESS = 10**9
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
# What is looked at in parts of a value: of each, by the kind of part.
_OF_MEMBERS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ITEMS = ("items", "contains", "unevaluatedItems", "additionalItems")

type _Part = str
"""A kind of part of a value: `items`, `*` for any member, or a member's name behind a dot."""


def is_too_much(schema_text: str, value: Any) -> bool:
    """Whether checking a value would take more looks than are spent on one."""
    ways = _ways(schema_text)
    if max(ways) <= MOST_WAYS:
        return False
    looks = 0
    for depth, number in enumerate(_widths(value)):
        looks += number * ways[min(depth, DEEPEST)]
        if looks > MOST_LOOKS:
            return True
    return False


def _widths(value: Any) -> Iterator[int]:
    """How many values there are on each level."""
    level = [value]
    while level:
        yield len(level)
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]


@functools.lru_cache(maxsize=512)
def _ways(schema_text: str) -> tuple[int, ...]:
    """For each level of a value, how often one place on it is looked at, at most."""
    graph = _Graph(json.loads(schema_text))
    now = {place: graph.looks(place) for place in graph.reachable()}
    found = [now[graph.root_place]]
    for _ in range(DEEPEST):
        now = {place: max((_sum(inner, now) for inner in graph.parts(place)), default=0) for place in now}
        found.append(now[graph.root_place])
    return tuple(found)


def _sum(inner: Counter[int], of: dict[int, int]) -> int:
    return min(sum(number * of[place] for place, number in inner.items()), _ENDLESS)


class _Graph:
    """The schemas within a schema, each by its place in memory."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._schemas: dict[int, Any] = {}
        self._looks: dict[int, int] = {}
        self._parts: dict[int, Counter[tuple[_Part, int]]] = {}

    @property
    def root_place(self) -> int:
        return self._place_of(self.root)

    def reachable(self) -> list[int]:
        """The root and all that is held against some part of a value."""
        found = {self.root_place: None}
        left = [self.root_place]
        while left:
            self._follow(left[0], frozenset())
            inner = [place for _, place in self._parts[left.pop(0)] if place not in found]
            found |= dict.fromkeys(inner)
            left += dict.fromkeys(inner)
        return list(found)

    def looks(self, place: int) -> int:
        """How many schemas hold one value against this one: itself, and all that it names for the same value."""
        self._follow(place, frozenset())
        return self._looks[place]

    def parts(self, place: int) -> Iterator[Counter[int]]:
        """For each kind of part of a value, what is held against it, and how often."""
        by_part: dict[_Part, Counter[int]] = {"*": Counter()}
        for (part, inner), number in self._parts[place].items():
            by_part.setdefault(part, Counter())[inner] += number
        for part, counted in by_part.items():
            yield counted + by_part["*"] if part.startswith(".") else counted

    def _place_of(self, schema: Any) -> int:
        self._schemas[id(schema)] = schema
        return id(schema)

    def _follow(self, place: int, behind: frozenset[int]) -> None:
        if place in self._looks:
            return
        if place in behind:  # it names itself for the same value, without end
            self._looks[place], self._parts[place] = _ENDLESS, Counter()
            return
        looks, parts = 1, Counter(self._own_parts(self._schemas[place]))
        for schema in self._beside(self._schemas[place]):
            inner = self._place_of(schema)
            self._follow(inner, behind | {place})
            looks = min(looks + self._looks[inner], _ENDLESS)
            for key, number in self._parts[inner].items():
                parts[key] = min(parts[key] + number, _ENDLESS)
        self._looks[place], self._parts[place] = looks, parts

    def _beside(self, schema: Any) -> Iterator[Any]:
        """The schemas that one names for the same value."""
        if not isinstance(schema, dict):
            return
        for name in _LISTS:
            yield from _members(schema.get(name), list)
        for name in _SINGLE:
            if name in schema:
                yield schema[name]
        yield from _members(schema.get("dependentSchemas"), dict)
        for name in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(name), str):
                yield self._named(schema[name])

    def _own_parts(self, schema: Any) -> Iterator[tuple[_Part, int]]:
        if not isinstance(schema, dict):
            return
        for name, inner in (schema.get("properties") or {}).items():
            yield f".{name}", self._place_of(inner)
        for inner in _members(schema.get("patternProperties"), dict):
            yield "*", self._place_of(inner)
        for name in _OF_MEMBERS:
            if isinstance(schema.get(name), dict):
                yield "*", self._place_of(schema[name])
        for name in _OF_ITEMS:
            if isinstance(schema.get(name), dict):
                yield "items", self._place_of(schema[name])
        for inner in _members(schema.get("prefixItems"), list):
            yield "items", self._place_of(inner)

    def _named(self, reference: str) -> Any:
        """What a reference within the schema leads to. What leads elsewhere is refused where the schema is compiled."""
        found = self.root
        for part in reference.lstrip("#").split("/")[1:]:
            step = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, dict) and step in found:
                found = found[step]
            else:
                return True
        return found


def _members(value: Any, kind: type) -> list[Any]:
    if not isinstance(value, kind):
        return []
    return [*value.values()] if isinstance(value, dict) else [*value]  # type: ignore[misc]
