"""What checking a value would take, told before it is done: schemas come from servers of others."""

import json
from typing import Any

import pytest

from agentapp.tools import schema, schema_effort

ITSELF = {"$ref": "#/$defs/n"}
# The second way is taken where the first has failed, at each level anew.
DOUBLED = {
    "type": "object",
    "properties": {"a": ITSELF},
    "$defs": {"n": {"anyOf": [{"type": "array", "items": ITSELF}, {"type": "array", "items": ITSELF, "maxItems": 9}]}},
}
ANY_JSON = {
    "type": "object",
    "properties": {"a": ITSELF},
    "$defs": {
        "n": {
            "oneOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": ITSELF},
                {"type": "object", "additionalProperties": ITSELF},
            ]
        }
    },
}


def nested(depth: int, wide: int = 1) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] * wide
    return value


def too_much(found: dict[str, Any], value: Any) -> bool:
    return schema_effort.is_too_much(json.dumps(found), value)


@pytest.mark.parametrize(("depth", "refused"), [(1, False), (5, False), (20, True), (60, True), (500, True)])
def test_alternatives_that_contain_themselves_are_followed_some_levels_deep(depth: int, refused: bool) -> None:
    problems = schema.problems_of(DOUBLED, {"a": nested(depth)})
    assert (problems == [schema.ArgumentProblem("invalid", "", schema.TOO_MUCH)]) == refused
    assert problems  # a number is no list


def test_many_values_on_a_level_count() -> None:
    assert not too_much(DOUBLED, {"a": nested(5, 2)})
    assert too_much(DOUBLED, {"a": nested(5, 6)})


@pytest.mark.parametrize(
    "found",
    [
        ANY_JSON,
        {"type": "object", "properties": {"a": True}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": ITSELF}}}},
        # A part is looked at by one of these, whatever it is called.
        {"properties": {"a": ITSELF, "b": ITSELF}, "$defs": {"n": {"properties": {"a": ITSELF, "b": ITSELF}}}},
        {"anyOf": [{"properties": {f"p{n}": {"type": "string"}}} for n in range(60)]},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_what_people_write_is_checked_however_large_the_value(found: dict[str, Any]) -> None:
    assert not too_much(found, {"a": nested(60), "b": [1] * 100_000})


def test_names_that_lead_to_each_other_many_times_for_one_value_are_too_much_at_once() -> None:
    defs = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(30)}
    assert too_much({"$ref": "#/$defs/n0", "$defs": {**defs, "n30": {"type": "string"}}}, "x")


def test_a_name_that_leads_to_itself_without_end_is_too_much() -> None:
    assert too_much({"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [ITSELF]}}}, 1)


def test_a_member_of_a_name_and_any_member_count_together() -> None:
    both = {"properties": {"a": ITSELF}, "additionalProperties": False, "patternProperties": {"^a": ITSELF}}
    value: Any = 1
    for _ in range(40):
        value = {"a": value}
    assert too_much({**both, "$defs": {"n": both}}, value)
