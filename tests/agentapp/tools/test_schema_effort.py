"""The effort of checking a value, computed before it is done: schemas come from other people's servers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentapp.tools import schema, schema_effort, schema_graph
from agentapp.tools.schema_graph import Place

ITSELF = {"$ref": "#/$defs/n"}
# The second alternative is tried if the first has failed, again at each level.
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


def chain(length: int, last: dict[str, Any], times: int = 1) -> dict[str, Any]:
    """Schemas that each name the next one this many times for the same value."""
    defs = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * times} for n in range(length)}
    return {"$ref": "#/$defs/n0", "$defs": {**defs, f"n{length}": last}}


@pytest.mark.parametrize(
    ("depth", "refused"), [(1, False), (5, False), (20, False), (25, True), (60, True), (500, True)]
)
def test_alternatives_that_contain_themselves_are_followed_some_levels_deep(depth: int, refused: bool) -> None:
    (problem,) = schema.problems_of(DOUBLED, {"a": nested(depth)})  # a number is not a list
    assert problem.sentence.startswith("The arguments are nested too deeply") == refused


def test_a_result_that_is_too_much_is_not_called_arguments() -> None:
    (problem,) = schema.problems_of(DOUBLED, {"a": nested(60)}, schema.RESULT)
    assert problem.sentence.startswith("The result is nested too deeply")


def test_what_fits_is_let_through_where_saying_what_is_wrong_would_take_too_long() -> None:
    both = {"type": "array", "items": ITSELF}
    found = {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"type": "integer"}, both, {**both, "maxItems": 9}]}}}
    value = nested(15)
    assert schema_effort.MOST_EXPLAINED < schema_effort.looks(json.dumps(found), value) <= schema_effort.MOST_LOOKS
    assert schema.problems_of(found, value) == []
    (problem,) = schema.problems_of(found, [value, "x"])
    assert problem.sentence == schema.UNEXPLAINED.format("The arguments are")


def test_many_values_on_a_level_count() -> None:
    assert not too_much(DOUBLED, {"a": nested(5, 6)})
    assert too_much(DOUBLED, {"a": nested(10, 4)})


def filters(depth: int) -> Any:
    return {("and", "or")[depth % 2]: [filters(depth - 1)] * 2} if depth else {"field": "sku", "is": 1}


def blocks(depth: int) -> dict[str, Any]:
    return {"kind": "k7", "children": [blocks(depth - 1)] * 2} if depth else {"kind": "k9"}


FILTERS = {
    "properties": {"a": ITSELF},
    "$defs": {
        "n": {
            "anyOf": [
                *({"properties": {name: {"items": ITSELF}}, "required": [name]} for name in ("and", "or")),
                {"properties": {"not": ITSELF}, "required": ["not"]},
                {"properties": {"field": {"type": "string"}}, "required": ["field"]},
            ]
        }
    },
}
KINDS = {"type": "array", "items": {"anyOf": [{"properties": {"k": {"const": kind}}} for kind in range(70)]}}
BLOCKS = {
    "properties": {"a": {"items": ITSELF}},
    "$defs": {
        "n": {
            "anyOf": [
                {"properties": {"kind": {"const": f"k{n}"}, **({"children": {"items": ITSELF}} if n < 8 else {})}}
                for n in range(10)
            ]
        }
    },
}


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (FILTERS, {"a": filters(5)}),
        (FILTERS, {"a": filters(12)}),
        (KINDS, [{"k": number % 70} for number in range(100)]),
        (BLOCKS, {"a": [blocks(0)] * 600}),
        (BLOCKS, {"a": [blocks(1)] * 200}),
        (BLOCKS, {"a": [blocks(3)] * 10}),
        ({"allOf": [{"$ref": "#base"}], "$defs": {"b": {"$anchor": "base", "type": "object"}}}, {"a": 1}),
        (chain(1100, {"type": "object"}), {"a": 1}),
    ],
)
def test_ordinary_values_fit(found: dict[str, Any], value: Any) -> None:
    assert schema.problems_of(found, value) == []


@pytest.mark.parametrize(
    "found",
    [
        ANY_JSON,
        {"type": "object", "properties": {"a": True}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": ITSELF}}}},
        # One of these looks at each part, whatever its name.
        {"properties": {"a": ITSELF, "b": ITSELF}, "$defs": {"n": {"properties": {"a": ITSELF, "b": ITSELF}}}},
        {"anyOf": [{"properties": {f"p{n}": {"type": "string"}}} for n in range(60)]},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_what_people_write_is_checked_however_large_the_value(found: dict[str, Any]) -> None:
    assert not too_much(found, {"a": nested(60), "b": [1] * 100_000})


def test_names_that_lead_to_each_other_many_times_for_one_value_are_too_much_at_once() -> None:
    assert too_much(chain(30, {"type": "string"}, times=2), "x")
    assert not too_much(chain(10, {"type": "string"}, times=2), "x")


def test_schemas_that_double_without_containing_themselves_count() -> None:
    twice = {f"n{n}": {key: {"$ref": f"#/$defs/n{n + 1}"} for key in ("items", "contains")} for n in range(40)}
    found = {"$ref": "#/$defs/n0", "$defs": {**twice, "n40": True}}
    assert not too_much(found, nested(10))
    assert too_much(found, nested(40))


def test_loops_that_lead_to_loops_count() -> None:
    """Each leads to itself and to the next one: there are as many ways as choices of when to move on."""
    defs = {f"n{n}": {"items": {"$ref": f"#/$defs/n{n}"}, "contains": {"$ref": f"#/$defs/n{n + 1}"}} for n in range(40)}
    assert too_much({"$ref": "#/$defs/n0", "$defs": {**defs, "n40": True}}, nested(60))


def test_the_standards_own_schema_does_not_hide_one_that_contains_itself() -> None:
    standard = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    value: Any = {}
    for _ in range(40):
        value = {"not": value}
    assert not too_much(standard, value)
    assert too_much({"$dynamicAnchor": "meta", "allOf": [standard, standard]}, value)


def test_a_name_that_leads_to_itself_without_end_is_too_much() -> None:
    assert too_much({"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [ITSELF]}}}, 1)


def test_a_member_of_a_name_and_any_member_count_together() -> None:
    both = {"properties": {"a": ITSELF}, "additionalProperties": False, "patternProperties": {"^a": ITSELF}}
    value: Any = 1
    for _ in range(40):
        value = {"a": value}
    assert too_much({**both, "$defs": {"n": both}}, value)


NAMES = st.sampled_from(["a", "b"])
LEAVES = st.sampled_from(
    [True, {}, {"type": "string"}, {"$ref": "#"}, {"$ref": "#/$defs/n"}, {"$ref": "#m"}, {"$ref": "#/$defs/missing"}]
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    keys = ("items", "contains", "not", "if", "additionalProperties", "propertyNames", "unevaluatedProperties")
    return st.one_of(
        st.dictionaries(st.sampled_from(["anyOf", "allOf", "oneOf", "prefixItems"]), several, min_size=1, max_size=2),
        st.dictionaries(st.sampled_from(keys), inner, min_size=1, max_size=3),
        st.fixed_dictionaries({"properties": st.dictionaries(NAMES, inner)}, optional={"patternProperties": NO_NAMES}),
    )


NO_NAMES = st.dictionaries(st.sampled_from(["^a", "b"]), LEAVES)
SCHEMAS = st.recursive(LEAVES, larger, max_leaves=8)
VALUES = st.recursive(
    st.sampled_from(["x", 1, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=20,
)


def looked(places: list[Place], at: int, value: Any) -> int:
    """Count the looks at a value, one after the other."""
    place = places[at]
    found = place.weight + sum(looked(places, inner, value) for inner in place.beside)
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    whose = place.members if isinstance(value, dict) else place.items
    return found + sum(looked(places, inner, each) for name, each in parts for inner in whose.of(name))


@settings(max_examples=300, deadline=None)
@given(found=SCHEMAS, inner=SCHEMAS, anchored=SCHEMAS, value=VALUES)
def test_what_is_foreseen_is_what_would_be_looked_at(found: Any, inner: Any, anchored: Any, value: Any) -> None:
    whole = {"allOf": [found], "$defs": {"n": inner, "m": {"$anchor": "m", "not": anchored}}}
    number = schema_effort.looks(json.dumps(whole), value)
    places = schema_graph.read(whole)
    if number > schema_effort.MOST_LOOKS:
        return  # or something names itself for the same value
    actual = looked(places, 0, value)
    size = len(json.dumps(value)) * max(schema_effort.MOST_WAYS, len(json.dumps(whole)))
    assert actual == number if number else actual <= size


def test_of_what_may_be_wrong_in_very_many_ways_one_is_told():
    of_others = {"type": "object", "properties": {"a": {"items": {"allOf": [False] * 9000}}}}
    assert schema_effort.looks(json.dumps(of_others, sort_keys=True), {"a": [1]}) == 0
    assert len(schema.problems_of(of_others, {"a": [1] * 20})) == 1
    assert schema.problems_of(of_others, {"a": []}) == []


def test_of_what_is_wrong_with_an_ordinary_value_all_is_told():
    ordinary = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    assert len(schema.problems_of(ordinary, [{"n": "x"}] * 300)) == 300


@pytest.mark.parametrize("text", ["a" * 17, "a" * 60])
def test_a_pattern_that_goes_back_and_forth_is_given_up(text: str):
    back_and_forth = {"type": "string", "pattern": "^(?:(?:a|a)*(?=b)|a*)$"}
    [problem] = schema.problems_of(back_and_forth, text)
    assert "backtracking" in problem.sentence


def test_a_pattern_that_looks_ahead_over_a_long_text_is_not():
    strong = {"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d).+$"}
    assert schema.problems_of(strong, "a" * 5000 + "A1") == []
    assert schema.problems_of(strong, "a" * 5000) != []


def test_a_schema_that_takes_longer_to_count_than_to_look_is_too_much():
    many = {"anyOf": [{"items": {"minItems": n, "items": {"$ref": "#/$defs/n"}}} for n in range(300)]}
    of_others = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": many}}
    text = json.dumps(of_others, sort_keys=True)
    assert schema_effort.is_too_much(text, {"a": [[]] * 2000})
    assert not schema_effort.is_too_much(text, {"a": [[[]]]})
