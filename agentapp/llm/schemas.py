"""Tool schemas in the form that providers accept. The contract's own schema is never changed."""

import re
from typing import Any

# Keywords that OpenAI's strict mode does not support; see its guide to structured outputs.
_UNKNOWN_WHEN_STRICT = frozenset(
    {
        "allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "not", "patternProperties",
        "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_SAYS_A_TYPE = frozenset({"$ref", "anyOf", "const", "enum", "oneOf", "type"})
_NAMED = ("properties", "$defs", "definitions")
_REFERENCE = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")


class _TooOpen(Exception):
    """The schema allows what a strict schema cannot express."""


def as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool's schema as an object with properties, which every provider requires even if there are none."""
    if "properties" in schema or "$ref" in schema:
        return schema
    return {"type": "object", **schema, "properties": {}}


def is_closed(schema: Any) -> bool:
    """Whether every object in a schema says that it has no other properties."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    is_object = schema.get("type") == "object" or "properties" in schema
    return (not is_object or schema.get("additionalProperties") is False) and all(map(is_closed, schema.values()))


def strict(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema with every object closed and every property required, at every level and in its definitions.

    None: it cannot be expressed that way, for example if a tool takes properties of any name.
    """
    if not {"anyOf", "oneOf"}.isdisjoint(schema):
        return None
    try:
        return _strict(schema)
    except _TooOpen:
        return None


def _strict(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not _UNKNOWN_WHEN_STRICT.isdisjoint(schema) or _SAYS_A_TYPE.isdisjoint(schema):
        raise _TooOpen
    if "$ref" in schema and not _REFERENCE.fullmatch(schema["$ref"]):
        raise _TooOpen
    made = dict(schema)
    for key in _NAMED:
        if key in schema:
            made[key] = {name: _strict(inner) for name, inner in schema[key].items()}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            made[key] = [_strict(option) for option in schema[key]]
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    if "array" in types or "items" in schema:
        made["items"] = _strict(schema.get("items"))
    if "object" in types or "properties" in schema:
        if "properties" not in schema or schema.get("additionalProperties", False) is not False:
            raise _TooOpen
        made["additionalProperties"] = False
        made["required"] = list(schema["properties"])
    return made
