"""What a schema checks a value and its parts against: the schemas inside it, and how they lead to each other.

If something is uncertain, such as where a reference leads between schemas with their own addresses, it is assumed to
lead everywhere it could: the estimate may be too high, but never too low.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

MOST_TRIED = 20_000
"""The most look-ups of references: one in each schema with its own address, and one for each anchor of that name."""
# Keywords whose schemas check the same value: one schema, or several.
_SAME_ONE = frozenset({"not", "if", "then", "else"})
_SAME_MANY = frozenset({"allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"})
# Keywords whose schemas check parts of a value: of objects or lists, and which parts.
_PARTS = {
    "properties": ("members", "named"),
    "additionalProperties": ("members", "rest"),
    "unevaluatedProperties": ("members", "rest"),
    "patternProperties": ("members", "every"),
    "propertyNames": ("members", "every"),
    "prefixItems": ("items", "named"),
    "items": ("items", "rest"),
    "additionalItems": ("items", "rest"),
    "unevaluatedItems": ("items", "rest"),
    "contains": ("items", "every"),
}
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_LEADING = _SAME_ONE | _SAME_MANY | _REFERENCES | _PARTS.keys()
# An address in its normal form. Only such addresses are distinguished by their endings.
_PLAIN = re.compile(
    r"urn:[a-z0-9:-]+|"
    r"(?:https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::(?!80/|443/)[1-9][0-9]*)?)?/?"
    r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*/?"
)
_OF_STANDARD = ("https://json-schema.org/", "http://json-schema.org/")
_INDEX = re.compile(r"\+?[0-9]{1,9}")

type Name = str | int
"""A member's name, or an item's number."""


class Unreadable(Exception):
    """A schema about which nothing can be predicted."""


@dataclass(slots=True)
class Parts:
    """The places that check the parts of an object or a list."""

    named: dict[Name, int] = field(default_factory=dict)
    rest: list[int] = field(default_factory=list)
    """For parts that are not named here."""
    every: list[int] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return bool(self.rest or self.every)

    def of(self, name: Name) -> list[int]:
        found = self.named.get(name)
        return [*(self.rest if found is None else [found]), *self.every]

    def all(self) -> Iterator[int]:
        yield from self.named.values()
        yield from self.rest
        yield from self.every


_NONE = Parts()  # what most places have; nothing is ever added to it
_LEAF = 1


@dataclass(slots=True)
class Place:
    """A schema inside the schema."""

    weight: int
    """The cost of one look: long enumerations take longer."""
    beside: list[int] = field(default_factory=list)
    """The places that check the same value."""
    members: Parts = field(default_factory=lambda: _NONE)
    items: Parts = field(default_factory=lambda: _NONE)

    def within(self) -> Iterator[int]:
        yield from self.members.all()
        yield from self.items.all()

    def leads_to(self) -> Iterator[int]:
        yield from self.beside
        yield from self.within()


def read(schema: Any) -> list[Place]:
    """All schemas that check a value or some part of it; the first is the schema itself. Raises Unreadable."""
    return _Reader(schema).places


class _Reader:
    def __init__(self, root: Any) -> None:
        self._index = _Index(root)
        self._numbers: dict[int, int] = {}
        self._schemas: list[tuple[dict[str, Any], Place]] = []
        # The second stands for all schemas that lead nowhere: most do not.
        self.places = [Place(1 + _length(root) // 8), Place(1)]
        if isinstance(root, dict):
            self._numbers[id(root)] = 0
            self._schemas.append((root, self.places[0]))
        for schema, place in self._schemas:  # the list grows on the way
            self._read(schema, place)

    def _number(self, schema: dict[str, Any]) -> int:
        number = self._numbers.get(id(schema))
        if number is not None:
            return number
        length = _length(schema)
        if length < 8 and _LEADING.isdisjoint(schema):
            return _LEAF
        number = self._numbers[id(schema)] = len(self.places)
        self.places.append(Place(1 + length // 8))
        self._schemas.append((schema, self.places[number]))
        return number

    def _all(self, schemas: Iterable[Any]) -> list[int]:
        """The places of these schemas. True and False are schemas too, but lead nowhere."""
        return [self._number(each) for each in schemas if isinstance(each, dict)]

    def _read(self, schema: dict[str, Any], place: Place) -> None:
        for key, said in schema.items():
            if key in _SAME_ONE:
                place.beside += self._all([said])
            elif key in _SAME_MANY:
                place.beside += self._all(_each(said))
            elif key in _REFERENCES and isinstance(said, str):
                self._read_reference(said, place)
            elif key in _PARTS:
                self._read_parts(key, said, place)

    def _read_reference(self, reference: str, place: Place) -> None:
        place.beside += self._all(self._index.named(reference))
        if reference.startswith(_OF_STANDARD) and "meta" in self._index.anchors:
            # The standard's own schema refers to the schemas inside a schema so that others can put theirs there.
            for whose in ("members", "items"):
                _parts(place, whose).every += self._all(self._index.named("#meta"))

    def _read_parts(self, key: str, said: Any, place: Place) -> None:
        whose, which = _PARTS[key]
        parts = _parts(place, whose)
        if which == "named" or isinstance(said, list):  # `items` was a list in older drafts
            named = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
            parts.named.update({name: self._number(each) for name, each in named if isinstance(each, dict)})
        elif which == "rest":
            parts.rest += self._all([said])
        else:
            parts.every += self._all(_each(said) if key == "patternProperties" else [said])


def _parts(place: Place, whose: str) -> Parts:
    parts: Parts = getattr(place, whose)
    if parts is _NONE:
        parts = Parts()
        setattr(place, whose, parts)
    return parts


def _each(said: Any) -> Iterable[Any]:
    return said.values() if isinstance(said, dict) else said if isinstance(said, list) else ()


def _length(schema: Any) -> int:
    """The size of a schema itself, without the schemas inside it."""
    if not isinstance(schema, dict):
        return 0
    return sum([len(said) for said in schema.values() if isinstance(said, list | dict)])


def size_of(schema: Any) -> int:
    """The size of a schema with those inside it. At least 1."""
    left = [schema]
    for part in left:  # the list grows on the way
        if isinstance(part, dict | list):
            left += part.values() if isinstance(part, dict) else part
    return len(left)


class _Index:
    """Where the references in a schema lead."""

    def __init__(self, root: Any) -> None:
        self.anchors: dict[str, list[Any]] = {}
        self._addressed: list[tuple[str | None, Any]] = []
        self._known: dict[str, list[Any]] = {}
        self._root = root
        self._left = MOST_TRIED
        for each in _objects(root):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(each.get(key), str):
                    self.anchors.setdefault(each[key], []).append(each)
            if isinstance(each.get("$id"), str):
                self._addressed.append((_ending(each["$id"].removesuffix("#")), each))

    def named(self, reference: str) -> list[Any]:
        """What a reference may lead to. One that leads out of the schema is refused when the schema is compiled."""
        if reference not in self._known:
            address, _, fragment = reference.partition("#")
            self._known[reference] = self._find(address, unquote(fragment))
        self._spend(len(self._known[reference]))
        return self._known[reference]

    def _spend(self, tries: int) -> None:
        self._left -= tries
        if self._left < 0:
            raise Unreadable

    def _find(self, address: str, fragment: str) -> list[Any]:
        if fragment and not fragment.startswith("/"):
            return self.anchors.get(fragment, [])
        bases = self._bases(address)
        self._spend(len(bases))
        found = [_pointed(base, fragment) for base in bases]
        return [*{id(each): each for each in found if isinstance(each, dict)}.values()]

    def _bases(self, address: str) -> list[Any]:
        everything = [self._root, *(each for _, each in self._addressed)]
        if not address:
            return everything
        ending = _ending(address)
        if ending is None:
            return everything
        found = [each for known, each in self._addressed if known is None or known == ending]
        return found or ([] if address.startswith(_OF_STANDARD) else everything)


def _objects(root: Any) -> Iterable[dict[str, Any]]:
    """Each object in a schema, even where no schema belongs: a reference may lead to it."""
    left = [root]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left += each.values()
        elif isinstance(each, list):
            left += each


def _ending(address: str) -> str | None:
    """The ending by which an address is recognised. None if the address can also be written differently."""
    return address.rsplit("/", 1)[-1] if _PLAIN.fullmatch(address) else None


def _pointed(base: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(base, list) and _INDEX.fullmatch(step) and int(step) < len(base):
            base = base[int(step)]
        elif isinstance(base, dict) and step in base:
            base = base[step]
        else:
            return None
    return base
