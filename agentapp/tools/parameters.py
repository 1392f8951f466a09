"""What a tool says about its parameters beyond their schema, and which values a schema allows."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentapp.tools.schema import check_arguments

CUSTOMER = "customer"
PARAMETER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        # Never named to the customer, although no call is made without it.
        "hidden": {"type": "boolean"},
        # Where a value may come from: anywhere, what is known in the conversation, the customer's own words.
        "source": {"enum": ["any", "context", CUSTOMER]},
        "significance": {"type": "string"},
        "examples": {"type": "array", "items": {"type": "string"}},
        # Dotted path of a function that returns the allowed values for the customer.
        "choice_provider": {"type": "string"},
        # If several are missing, those with the lowest number are asked for first.
        "precedence": {"type": "integer", "minimum": -1000, "maximum": 1000},
        "display_name": {"type": "string"},
        "description": {"type": "string"},
    },
    "additionalProperties": False,
}


def check_parameters(name: str, schema: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raises ValueError if a tool describes a parameter that it does not have, or describes one wrongly."""
    for parameter, declared in parameters.items():
        if parameter not in schema.get("properties", {}):
            raise ValueError(f"The tool {name!r} has no parameter {parameter!r}.")
        problems = check_arguments(PARAMETER_SCHEMA, declared)
        if problems:
            raise ValueError(f"The parameter {parameter!r} of the tool {name!r}: {problems[0].sentence}")


def choices_of(schema: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """The values a schema allows for a parameter, or for the items of its list. None if it lists none."""
    return _choices(schema, schema.get("properties", {}).get(name), 0)


def takes_null(schema: Mapping[str, Any], name: str) -> bool:
    return _takes_null(schema, schema.get("properties", {}).get(name), 0)


# How deep references are followed: a schema may refer to itself.
_DEEPEST = 8


def _choices(schema: Mapping[str, Any], described: Any, depth: int) -> Sequence[Any] | None:
    described = _followed(schema, described)
    if not isinstance(described, Mapping) or depth > _DEEPEST:
        return None
    if "enum" in described:
        return list(described["enum"])
    if "const" in described:
        return [described["const"]]
    if "items" in described:
        return _choices(schema, described["items"], depth + 1)
    for word in ("anyOf", "oneOf"):
        options = [each for each in described.get(word, ()) if not _is_null(schema, each)]
        found = [_choices(schema, each, depth + 1) for each in options]
        if found and all(each is not None for each in found):
            return [value for each in found for value in each or ()]
    return None


def _takes_null(schema: Mapping[str, Any], described: Any, depth: int) -> bool:
    described = _followed(schema, described)
    if not isinstance(described, Mapping) or depth > _DEEPEST:
        return False
    if _is_null(schema, described) or None in described.get("enum", ()):
        return True
    options = [*described.get("anyOf", ()), *described.get("oneOf", ())]
    return any(_takes_null(schema, each, depth + 1) for each in options)


def _is_null(schema: Mapping[str, Any], described: Any) -> bool:
    described = _followed(schema, described)
    if not isinstance(described, Mapping):
        return False
    kind = described.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _followed(schema: Mapping[str, Any], described: Any) -> Any:
    """What a reference into the schema's own definitions points to."""
    for _ in range(_DEEPEST):
        reference = described.get("$ref") if isinstance(described, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
            return described
        described = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    return None
