"""The names that a JSON Schema gives to fields, at any depth."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "if", "then", "else", "contains")
# A schema with none of these allows any value.
_SAYS_WHAT = frozenset({"type", "enum", "const", "$ref", "properties", *_LISTS})


@dataclass(frozen=True)
class Fields:
    """The fields of a value. `others`: it may have more than the named ones."""

    names: frozenset[str]
    others: bool

    def may_have(self, name: str) -> bool:
        return self.others or name in self.names


def fields_of(schema: Any) -> Fields:
    if not isinstance(schema, dict):
        return Fields(frozenset(), others=schema is True)
    named = schema.get("properties")
    properties = named if isinstance(named, dict) else {}
    parts = [*properties.values(), *(schema.get(word) for word in _SINGLE)]
    for word in _LISTS:
        parts += schema.get(word) or []
    for word in ("$defs", "definitions", "patternProperties"):
        parts += (schema.get(word) or {}).values()
    inner = [fields_of(part) for part in parts]
    names = frozenset(map(str, properties)).union(*(each.names for each in inner))
    return Fields(names, _takes_others(schema) or any(each.others for each in inner))


def _takes_others(schema: dict[str, Any]) -> bool:
    if not schema.keys() & _SAYS_WHAT:
        return True
    kind = schema.get("type")
    kinds: Iterable[Any] = kind if isinstance(kind, list) else [kind]
    if "array" in kinds and not schema.keys() & {"items", "prefixItems"}:
        return True
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return True
    return "object" in kinds and "properties" not in schema and schema.get("additionalProperties") is not False
