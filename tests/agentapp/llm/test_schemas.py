"""Which schemas can be enforced strictly, and what they then look like."""

import copy
from typing import Any

import pytest

from agentapp.llm.schemas import strict

TEXT = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_every_level_is_closed_and_complete() -> None:
    schema = {
        **of(
            customer={"$ref": "#/$defs/Customer"},
            lines={"type": "array", "items": of(sku=TEXT, note={"type": ["string", "null"]})},
            address={"anyOf": [of(city=TEXT), {"type": "null"}]},
        ),
        "required": ["customer"],
        "$defs": {"Customer": of(name=TEXT, mail=TEXT)},
    }
    before = copy.deepcopy(schema)
    made = strict(schema)
    assert schema == before
    assert made is not None
    levels = [
        made,
        made["$defs"]["Customer"],
        made["properties"]["lines"]["items"],
        made["properties"]["address"]["anyOf"][0],
    ]
    assert [level["additionalProperties"] for level in levels] == [False] * 4
    assert [level["required"] for level in levels] == [
        ["customer", "lines", "address"],
        ["name", "mail"],
        ["sku", "note"],
        ["city"],
    ]


def test_a_tool_that_takes_nothing_takes_strictly_nothing() -> None:
    assert strict(of()) == {**of(), "additionalProperties": False, "required": []}


@pytest.mark.parametrize(
    "schema",
    [
        {**of(a=TEXT), "additionalProperties": True},
        {**of(a=TEXT), "additionalProperties": TEXT},
        of(a={"type": "object", "additionalProperties": True}),
        of(a={"type": "object"}),
        of(a={"$ref": "#/$defs/Open"}) | {"$defs": {"Open": {"type": "object", "additionalProperties": TEXT}}},
        of(a={"type": "array"}),
        of(a={"type": "array", "items": {}}),
        of(a={}),
        of(a=True),
        of(a={"allOf": [TEXT]}),
        of(a={"$ref": "#/properties/b"}, b=TEXT),
        {**of(a=TEXT), "anyOf": [{"required": ["a"]}]},
        {**of(a=TEXT), "patternProperties": {"^x": TEXT}},
    ],
)
def test_what_strictness_cannot_say_is_not_made_strict(schema: dict[str, Any]) -> None:
    assert strict(schema) is None
