"""Arguments invented from a schema: the author's examples first, then anything valid."""

from typing import Any

import pytest

from agentapp.tools import sample


@pytest.mark.parametrize(
    ("described", "value"),
    [
        ({"type": "string", "examples": ["58213", "1"]}, "58213"),
        ({"type": "string", "default": "soon"}, "soon"),
        ({"const": 7}, 7),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string"}, "[it]"),
        ({"type": "boolean"}, True),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01}, 1.0),
        ({"type": ["string", "null"]}, "[it]"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "object", "properties": {"sku": {"type": "string"}}}, {"sku": "[sku]"}),
        ({"$ref": "#/$defs/Money"}, 5.0),
        (True, "[it]"),
    ],
)
def test_each_kind_of_argument_is_made_up(described: Any, value: object) -> None:
    schema = {"properties": {"it": described}, "$defs": {"Money": {"type": "number", "minimum": 5}}}
    assert sample.arguments(schema) == {"it": value}


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    made = sample.arguments({"properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    assert "first" in made
    assert "{}" in repr(made)


def test_a_schema_without_arguments_has_none() -> None:
    assert sample.arguments({}) == {}
