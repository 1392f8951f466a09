"""Reading JSON Schema: following references, separating null, and describing values to people."""

from collections.abc import Mapping
from typing import Any

from agentapp.console import typed_text

# How many references to follow: a schema may refer to itself.
MAX_REFERENCES = 4


def hint(described: Mapping[str, Any]) -> str:
    """One line: what the value is, and its bounds."""
    parts = [str(described["description"]).strip().rstrip(".")] if described.get("description") else []
    bounds = [
        f"{words} {described[key]:,}"
        for key, words in (
            ("minimum", "from"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "up to"),
            ("exclusiveMaximum", "less than"),
        )
        if isinstance(described.get(key), int | float)
    ]
    if bounds:
        parts.append(", ".join(bounds).capitalize())
    if isinstance(described.get("multipleOf"), int | float):
        parts.append(f"In steps of {described['multipleOf']:,}")
    least, most = described.get("minItems"), described.get("maxItems")
    if least or most:
        bounds = [f"at least {least}"] * bool(least) + [f"at most {most}"] * bool(most)
        parts.append(" and ".join(bounds).capitalize())
    if described.get("maxLength"):
        parts.append(f"At most {described['maxLength']:,} characters")
    return ". ".join(parts)


def properties(schema: object) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def in_order(schema: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The names of an object's parts: the required ones as listed, then the others, then the unknown ones.

    PostgreSQL keeps the order of lists but not of keys, so only the list tells the author's order.
    """
    known = properties(schema)
    required = [name for name in schema.get("required", []) if name in known]
    return list(dict.fromkeys([*required, *known, *values]))


def resolve(described: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with its local reference followed. Its other keys are kept."""
    for _ in range(MAX_REFERENCES):
        reference = described.get("$ref") if isinstance(described, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
            break
        beside = {key: value for key, value in described.items() if key != "$ref"}
        target = definitions.get(reference.removeprefix("#/$defs/"), {})
        described = {**(target if isinstance(target, dict) else {}), **beside}
    return described if isinstance(described, dict) else {}


def without_null(described: dict[str, Any], definitions: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A schema without the part that allows null, and whether it had one."""
    if isinstance(described.get("type"), list) and "null" in described["type"]:
        others = [name for name in described["type"] if name != "null"]
        return {**described, "type": others[0] if len(others) == 1 else others}, True
    options = described.get("anyOf")
    if isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
        other = next((option for option in options if option != {"type": "null"}), {"type": "null"})
        beside = {key: value for key, value in described.items() if key != "anyOf"}
        return {**resolve(other, definitions), **beside}, True
    return described, False


def constants(described: Mapping[str, Any]) -> list[tuple[Any, str]]:
    options = described.get("oneOf")
    if not isinstance(options, list) or not all(isinstance(o, dict) and "const" in o for o in options):
        return []
    return [(option["const"], str(option.get("title") or option["const"])) for option in options]


def title(described: Mapping[str, Any], number: int, value: Any) -> str:
    titles = described.get("x-enum-titles")
    if isinstance(titles, list) and number < len(titles):
        return str(titles[number])
    return str(value).replace("_", " ").capitalize() if isinstance(value, str) else typed_text.inline(value)
