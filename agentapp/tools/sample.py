"""Arguments invented from a schema, so that people can see what a card would say before there is a call."""

from collections.abc import Mapping
from typing import Any

# A schema may refer to itself.
_DEPTH = 6
_OF_FORMAT = {
    "date-time": "2026-01-31T09:00:00Z", "date": "2026-01-31", "time": "09:00:00Z", "email": "ana@example.com",
    "uri": "https://example.com/", "uuid": "123e4567-e89b-42d3-a456-426614174000",
}  # fmt: skip
_MADE_UP: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "null": None}


def arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each argument: the author's example or default, if there is one."""
    definitions = schema.get("$defs", {})
    return {name: _value(name, described, definitions, _DEPTH) for name, described in _properties(schema).items()}


def _value(name: str, described: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    described = _resolved(described, definitions)
    if (examples := described.get("examples")) and isinstance(examples, list):
        return examples[0]
    for key in ("example", "const", "default"):
        if described.get(key) is not None:
            return described[key]
    if described.get("enum"):
        return described["enum"][0]
    options = described.get("oneOf") or described.get("anyOf")
    if options and depth:
        return _value(name, options[0], definitions, depth - 1)
    kind = described.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        parts = _properties(described).items() if depth else ()
        return {part: _value(part, inner, definitions, depth - 1) for part, inner in parts}
    if kind == "array":
        return [_value(name, described.get("items", {}), definitions, depth - 1)] if depth else []
    if kind in ("integer", "number"):
        return _number(described, kind)
    return _MADE_UP.get(str(kind), _OF_FORMAT.get(str(described.get("format")), f"[{name}]"))


def _number(described: Mapping[str, Any], kind: str) -> float:
    """The smallest allowed number, or one."""
    least = described.get("minimum", described.get("exclusiveMinimum"))
    step = described.get("multipleOf", 1)
    if not isinstance(least, int | float):
        return _MADE_UP[kind]  # type: ignore[no-any-return]
    value = least if "minimum" in described else least + max(step, 1)
    return float(value) if kind == "number" else int(value)


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _resolved(described: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    reference = described.get("$ref") if isinstance(described, dict) else None
    if isinstance(reference, str):
        described = {**definitions.get(reference.removeprefix("#/$defs/"), {}), **described}
    return described if isinstance(described, dict) else {}
