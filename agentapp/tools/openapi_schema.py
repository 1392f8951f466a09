"""Schemas of an OpenAPI document → one JSON Schema 2020-12 for what a caller sends. References stay references."""

import re
from dataclasses import dataclass
from typing import Any

type Schema = dict[str, Any]

# Keywords that say nothing about a value that a caller sends.
_DROPPED = frozenset(
    {"xml", "externalDocs", "discriminator", "nullable", "example", "readOnly", "writeOnly", "deprecated"}
)
_OF_ONE = frozenset(
    {"items", "not", "additionalProperties", "propertyNames", "contains", "if", "then", "else", "unevaluatedItems",
     "unevaluatedProperties", "contentSchema"}
)  # fmt: skip
_OF_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_OF_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_POINTER = "#/"
# For one operation, in characters: no model reads more.
MAX_CHARS = 1_000_000
# What a schema weighs besides its texts.
_CHARS_EACH = 20


class SchemaRefused(Exception):
    """A schema cannot be taken over completely. The message says why."""


@dataclass
class Allowance:
    """How much of one document is converted, in characters: with references, a small one can expand to a lot, again for
    each operation.
    """

    left: int = 100 * MAX_CHARS


class Schemas:
    """The schemas of one operation. `defs` collects every schema that was referred to, each under its own name."""

    def __init__(
        self, document: dict[str, Any], *, is_30: bool, of_answers: bool = False, allowance: Allowance | None = None
    ) -> None:
        self._document, self._is_30 = document, is_30
        self._all, self._own = allowance or Allowance(), Allowance(MAX_CHARS)
        # A property that only one side sends is left out for the other side.
        self._unsaid = "writeOnly" if of_answers else "readOnly"
        self._names: dict[str, str] = {}
        self.defs: dict[str, Schema] = {}

    def converted(self, schema: Any) -> Any:
        """The same schema in 2020-12. Raises SchemaRefused if a reference leads out of the document, or if it is too
        long.
        """
        self._spend(_CHARS_EACH)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaRefused(f"{str(schema)[:40]!r} is not a schema.")
        if "$ref" in schema:
            return self._referring(schema)
        found: Schema = {}
        for key, value in schema.items():
            if key in _DROPPED or str(key).startswith("x-"):
                continue
            found[key] = self._part(key, value)
        if self._is_30:
            _modernise(found, schema)
        if "example" in schema and "examples" not in found:
            found["examples"] = [schema["example"]]
        _without_unsaid(found, schema, self)
        return found

    def is_unsaid(self, schema: Any) -> bool:
        """Whether only the other side sends this value."""
        if isinstance(schema, dict) and "$ref" in schema:
            schema = resolve(self._document, schema["$ref"])
        return isinstance(schema, dict) and schema.get(self._unsaid) is True

    def _part(self, key: str, value: Any) -> Any:
        if key in _OF_ONE and isinstance(value, dict | bool):
            return self.converted(value)
        if key in _OF_MANY and isinstance(value, list):
            return [self.converted(item) for item in value]
        if key in _OF_NAMED and isinstance(value, dict):
            return {name: self.converted(item) for name, item in value.items()}
        self._spend(_length(value))
        return value

    def _spend(self, chars: int) -> None:
        self._own.left -= chars
        self._all.left -= chars
        if self._own.left < 0:
            raise SchemaRefused("Its arguments or answers are too long to describe.")
        if self._all.left < 0:
            raise SchemaRefused("The document's schemas are too long in total.")

    def _referring(self, schema: Schema) -> Schema:
        pointer = schema["$ref"]
        target = resolve(self._document, pointer)
        name = self._names.get(pointer)
        if name is None:
            name = _unused(re.sub(r"[^A-Za-z0-9_.-]", "_", pointer.rsplit("/", 1)[-1]) or "schema", self.defs)
            self._names[pointer] = name
            self.defs[name] = {}  # it may refer to itself
            self.defs[name] = self.converted(target)
        refers: Schema = {"$ref": f"#/$defs/{name}"}
        # In 3.0, anything next to a reference is ignored; in 3.1 it counts as well.
        beside = {} if self._is_30 else {key: value for key, value in schema.items() if key != "$ref"}
        return refers | self.converted(beside) if beside else refers


def resolve(document: dict[str, Any], pointer: Any) -> Any:
    """What a reference finally points at. Raises SchemaRefused if it leads out of the document or nowhere."""
    seen: set[str] = set()
    while True:
        if not isinstance(pointer, str) or not pointer.startswith(_POINTER):
            raise SchemaRefused(f"The reference {str(pointer)[:80]!r} leads out of the document and is not followed.")
        if pointer in seen:
            raise SchemaRefused(f"The reference {pointer[:80]!r} leads to itself.")
        seen.add(pointer)
        found: Any = document
        for part in pointer[len(_POINTER) :].split("/"):
            name = part.replace("~1", "/").replace("~0", "~").replace("%7B", "{").replace("%7D", "}")
            if isinstance(found, list) and name.isascii() and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise SchemaRefused(f"The reference {pointer[:80]!r} leads nowhere.")
        if not (isinstance(found, dict) and set(found) == {"$ref"}):
            return found
        pointer = found["$ref"]


def _modernise(found: Schema, schema: Schema) -> None:
    """Convert what 3.0 expresses in its own way."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if found.get(exclusive) is True and bound in found:
            found[exclusive] = found.pop(bound)
        elif isinstance(found.get(exclusive), bool):
            del found[exclusive]
    if schema.get("nullable") is not True:
        return
    if isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
        if "enum" in found and None not in found["enum"]:
            found["enum"] = [*found["enum"], None]
    elif found:
        kept = dict(found)
        found.clear()
        found["anyOf"] = [kept, {"type": "null"}]


def _without_unsaid(found: Schema, schema: Schema, schemas: Schemas) -> None:
    """Remove what only the other side sends: a server's values for a caller, and the other way round."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    only = {name for name, one in properties.items() if schemas.is_unsaid(one)}
    if only:
        found["properties"] = {name: one for name, one in found["properties"].items() if name not in only}
        if isinstance(found.get("required"), list):
            found["required"] = [name for name in found["required"] if name not in only]


def _length(value: Any) -> int:
    left, chars = [value], 0
    while left:
        one = left.pop()
        chars += len(one) + 1 if isinstance(one, str) else _CHARS_EACH
        left += [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else ()
    return chars


def _unused(name: str, taken: Any) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found
