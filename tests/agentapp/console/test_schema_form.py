import json
from typing import Any

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from agentapp.console import schema_form, typed_text
from agentapp.console.schema_form import SchemaForm


def query(fields: dict[str, Any]) -> QueryDict:
    posted = QueryDict(mutable=True)
    for name, value in fields.items():
        posted.setlist(name, value if isinstance(value, list) else [value])
    return posted


def form(
    properties: dict[str, Any], values: dict[str, Any], posted: dict[str, Any] | None = None, **more: Any
) -> SchemaForm:
    schema = {"type": "object", "properties": properties, **more.pop("schema", {})}
    read = None
    if posted is not None:
        named = {f"arg.{name}": value for name, value in posted.items()}
        read = query({"shown": list(named), **{name: value for name, value in named.items() if value is not None}})
    return schema_form.build(schema, values, values, posted=read, **more)


@pytest.mark.parametrize(
    ("schema", "value", "kind", "shown"),
    [
        ({"type": "string"}, "x", "input", "x"),
        ({"type": "string", "maxLength": 121}, "x", "textarea", "x"),
        ({"type": "string", "format": "multiline"}, "x", "textarea", "x"),
        ({"type": "string"}, "two\nlines", "textarea", "two\nlines"),
        ({"type": "integer"}, 3, "number", "3"),
        ({"type": "number"}, 0.1, "number", "0.1"),
        ({"type": "number"}, 1e-7, "number", "0.0000001"),
        ({"type": "number", "format": "money", "x-currency": "USD"}, 214.5, "number", "214.50"),
        ({"type": "string", "format": "date"}, "2026-11-20", "input", "2026-11-20"),
        ({"enum": ["a", "b"]}, "b", "radio", '"b"'),
        ({"enum": [1, "1"]}, "1", "radio", '"1"'),
        ({"oneOf": [{"const": 5, "title": "Five"}, {"const": 6}]}, 5, "radio", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x", "input", "x"),
        ({"type": "array", "items": {"type": "object"}}, [{"a": 1}], "json", '[\n  {\n    "a": 1\n  }\n]'),
        ({}, {"any": "thing"}, "json", '{\n  "any": "thing"\n}'),
        ({"type": "integer"}, "not what the schema says", "json", '"not what the schema says"'),
    ],
)
def test_a_schema_becomes_the_control_that_suits_it(
    schema: dict[str, Any], value: object, kind: str, shown: str
) -> None:
    [field] = form({"x": schema}, {"x": value}).fields

    assert (field.kind, field.value) == (kind, shown)


def test_a_reference_to_a_definition_is_followed() -> None:
    built = form({"x": {"$ref": "#/$defs/Size"}}, {"x": "s"}, schema={"$defs": {"Size": {"enum": ["s", "m"]}}})

    assert [choice.label for choice in built.fields[0].choices] == ["Not given", "S", "M"]


@pytest.mark.parametrize(
    ("schema", "before", "typed", "value"),
    [
        ({"type": "integer"}, 1, "2", 2),
        ({"type": "integer"}, 1, " 1 000 ", 1000),
        ({"type": "integer"}, 1, "9007199254740991", 9007199254740991),
        ({"type": "integer"}, 1, "-1 234 567 890 123 456", -1234567890123456),
        ({"type": "number"}, 1.5, "184.50", 184.5),
        ({"type": "number"}, 1.5, "184,50", 184.5),
        ({"type": "number"}, 1.5, "1,234.50", 1234.5),
        ({"type": "number"}, 1.5, "1.234,50", 1234.5),
        ({"type": "number"}, 1.5, "1.234.567", 1234567),
        ({"type": "number"}, 1.5, "1'234.5", 1234.5),
        ({"type": "number"}, 1.5, "-3", -3),
        ({"type": "string"}, "1", "2", "2"),
        ({"type": "string", "format": "money"}, "1.00", "1 234,50", "1234.50"),
        ({"type": "string", "format": "date"}, "2026-11-20", "2026-12-01", "2026-12-01"),
        ({"type": "boolean"}, True, None, False),
        ({"type": "boolean"}, False, "on", True),
        ({"enum": [1, "1"]}, "1", "1", 1),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["1", "2", ""], [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, ["", "a"], ["", "b"], ["", "b"]),
        ({"type": "array", "items": {"type": "string"}}, ["a", "", "c", ""], ["a", "", "d", ""], ["a", "", "d", ""]),
        ({"type": "array", "items": {"type": "string"}}, ["a", "b"], ["", "b"], ["b"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["a"], ["b"], ["b"]),
        ({}, {"a": 1}, '{"a": 2}', {"a": 2}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x", "", None),
    ],
)
def test_what_is_typed_keeps_the_type_of_the_schema(
    schema: dict[str, Any], before: object, typed: Any, value: object
) -> None:
    built = form({"x": schema}, {"x": before}, {"x": typed})

    assert built.errors == {}
    assert built.arguments == {"x": value}
    assert type(built.arguments["x"]) is type(value)
    assert built.changes == 1


def test_what_is_added_to_a_list_comes_last_and_an_empty_text_is_removed_by_its_button_alone() -> None:
    tags = {"tags": {"type": "array", "items": {"type": "string"}}}

    added = form(tags, {"tags": ["", "a"]}, {"tags": ["", "a"], "tags.new": "b"})
    none_added = form(tags, {"tags": ["", "a"]}, {"tags": ["", "a"], "tags.new": ""})
    posted = query({"shown": ["arg.tags"], "arg.tags": ["", "a"], "arg.tags.new": "", "remove": "arg.tags.0"})
    removed = schema_form.build({"properties": tags}, {"tags": ["", "a"]}, {"tags": ["", "a"]}, posted=posted)

    assert added.arguments == {"tags": ["", "a", "b"]}
    assert (none_added.arguments, none_added.changes) == ({"tags": ["", "a"]}, 0)
    assert (removed.arguments, removed.changes) == ({"tags": ["a"]}, 1)


@pytest.mark.parametrize(
    ("schema", "before", "typed", "message"),
    [
        ({"type": "integer"}, 1, "1.5", "whole number"),
        ({"type": "integer"}, 1, "many", "Enter a number"),
        ({"type": "number"}, 1.5, "1,234", "can be read as 1234 and as 1.234"),
        ({"type": "number"}, 1.5, "1,23,4", "Enter a number"),
        ({"type": "integer"}, 1, "9007199254740992", "too large to be exact"),
        ({"type": "number"}, 1.5, "NaN", "Enter a number"),
        ({"type": "number"}, 1.5, "1e999", "too large to be exact"),
        ({"type": "string", "format": "money"}, "1.50", "1e-9999999", "Enter a number"),
        ({"type": "string", "format": "money"}, "1.50", "0e-9999999", "Enter a number"),
        ({"type": "string", "format": "date"}, "2026-11-20", "tomorrow", "Enter it like 2026-11-20"),
        ({"enum": ["a"]}, "a", '"z"', "Choose one"),
        ({}, {"a": 1}, '{"a": 1, "a": 2}', "appears twice"),
        ({}, {"a": 1}, "{", "malformed"),
    ],
)
def test_what_cannot_be_read_is_named_and_changes_nothing(
    schema: dict[str, Any], before: object, typed: str, message: str
) -> None:
    built = form({"x": schema}, {"x": before}, {"x": typed})

    assert message in built.errors["x"]
    assert built.fields[0].error == built.errors["x"]
    assert built.arguments == {"x": before}


def test_what_was_typed_stays_in_a_field_that_cannot_be_read() -> None:
    assert form({"x": {"type": "integer"}}, {"x": 1}, {"x": "many"}).fields[0].value == "many"


def test_nested_objects_are_fieldsets_and_keep_what_is_not_shown() -> None:
    address = {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string"}}}
    values = {"address": {"street": "Old 1", "zip": "10115"}}

    built = form({"address": address}, values, {"address.street": "New 2"})

    assert built.fields[0].kind == "group"
    assert built.arguments == {"address": {"street": "New 2", "zip": "10115"}}
    assert [(f.pointer, f.was) for f in built.all_fields if f.was] == [("address/street", "Old 1")]


def test_objects_nested_deeper_than_three_are_edited_as_json() -> None:
    schema: dict[str, Any] = {"type": "string"}
    value: Any = "leaf"
    for _ in range(5):
        schema, value = {"type": "object", "properties": {"a": schema}}, {"a": value}

    kinds = [field.kind for field in form({"x": schema}, {"x": value}).all_fields]

    assert kinds == ["group", "group", "group", "json"]


def test_locked_and_secret_fields_are_not_read_from_a_post() -> None:
    built = form(
        {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string", "x-lock": True}},
        {"a": "1", "b": "2", "c": "3"},
        {"a": "x", "b": "x", "c": "x"},
        locked=["a"],
        secret=["b"],
    )

    assert built.arguments == {"a": "1", "b": "2", "c": "3"}
    assert built.fields == []
    assert schema_form.Fixed("b", schema_form.MASK, "masked", "B") in built.fixed


def test_an_argument_the_schema_does_not_know_is_kept() -> None:
    assert form({}, {"extra": [1, {"a": None}]}, {}).arguments == {"extra": [1, {"a": None}]}


def test_an_optional_field_left_empty_stays_away() -> None:
    assert form({"x": {"type": "string"}}, {}, {"x": ""}).arguments == {}


def test_a_required_number_cannot_be_emptied() -> None:
    built = form({"x": {"type": "integer"}}, {"x": 1}, {"x": ""}, schema={"required": ["x"]})

    assert built.errors == {"x": "This cannot be empty."}


def test_after_somebodys_edit_the_form_still_says_what_the_agent_proposed() -> None:
    built = schema_form.build({"properties": {"x": {"type": "integer"}}}, {"x": 1}, {"x": 2})

    assert (built.fields[0].value, built.fields[0].was) == ("2", "1")


def test_a_message_lands_at_the_nearest_field() -> None:
    built = form({"items": {"type": "array", "items": {"type": "string"}}}, {"items": ["a"]})

    assert built.point_at("items/0/sku", "Too short.")
    assert built.fields[0].error == "Too short."
    assert not built.point_at("elsewhere", "Lost.")


def test_a_message_is_about_its_label_and_not_about_a_name_for_programs() -> None:
    built = form({"amount": {"type": "number", "title": "Amount due"}}, {"amount": 9})

    assert built.point_at("amount", "amount: the value is greater than 5.")
    assert built.problems == [("Amount due", "The value is greater than 5.")]


def test_what_is_wrong_with_the_whole_is_listed_without_a_label() -> None:
    built = form({"x": {"type": "integer"}}, {"x": 1})
    built.errors[""] = "Too many of them."

    assert built.problems == [("", "Too many of them.")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
TYPES = st.sampled_from(
    [{}, {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}, {"type": "object"},
     {"type": "array", "items": {"type": "string"}}, {"type": "string", "format": "date"},
     {"type": "string", "format": "money"}, {"enum": ["a", 1, None]}, {"type": ["string", "null"]}]
)  # fmt: skip


@given(schema=TYPES, value=JSON)
def test_a_form_that_nobody_touched_gives_back_exactly_what_it_showed(schema: dict[str, Any], value: Any) -> None:
    shown = form({"x": schema}, {"x": value})
    posted: dict[str, Any] = {}
    for field in shown.all_fields:
        if field.kind == "checkbox":
            posted[".".join(field.path)] = "on" if field.checked else None
        elif field.kind in ("list", "checks"):
            posted[".".join(field.path)] = [*(v.replace("\n", "\r\n") for v in field.values), ""]
        elif field.kind != "group":
            posted[".".join(field.path)] = field.value.replace("\n", "\r\n")

    built = form({"x": schema}, {"x": value}, posted)

    assert json.dumps(built.arguments) == json.dumps({"x": value})
    assert built.errors == {}


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=2))
def test_every_amount_reads_back_from_how_it_is_shown(amount: Any) -> None:
    assert typed_text.decimal(typed_text.cents(format(amount, "f"))) == amount


def test_required_fields_come_first_in_the_order_of_their_list() -> None:
    properties = {"note": {"type": "string"}, "reason": {"type": "string"}, "amount": {"type": "number"}}

    built = form(properties, {"reason": "x", "amount": 1}, schema={"required": ["amount", "reason"]})

    assert [field.pointer for field in built.fields] == ["amount", "reason", "note"]
