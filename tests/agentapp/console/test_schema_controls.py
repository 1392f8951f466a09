"""The table of controls, row by row: what edits a part of a schema, and what comes back."""

from typing import Any

import pytest

from agentapp.console import schema_form
from agentapp.console.schema_form import SchemaForm

from .test_schema_form import form, query


@pytest.mark.parametrize(
    ("schema", "value", "kind", "shown"),
    [
        ({"enum": ["a", "b", "c", "d", "e"]}, "b", "select", '"b"'),
        ({"type": "boolean"}, True, "checkbox", ""),
        ({"type": "string", "format": "date-time"}, "2026-11-20T14:30:00Z", "input", "2026-11-20T14:30"),
        ({"type": "object", "properties": {"a": {}}}, {}, "group", ""),
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"b": {}}}, {}, "json", "{}"),
        ({"type": "array", "items": {"type": "string"}}, ["a"], "list", ""),
        ({"type": "array", "items": {"enum": ["a", "b"], "type": "string"}}, ["a"], "checks", ""),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, [{"a": 1}], "rows", ""),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, [1], "json", "[\n  1\n]"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 3, "json", "3"),
    ],
)
def test_each_schema_has_its_control(schema: dict[str, Any], value: Any, kind: str, shown: str) -> None:
    [field] = form({"x": schema}, {"x": value}).fields
    assert (field.kind, field.value) == (kind, shown)


def test_a_moment_is_picked_without_its_zone_which_stays() -> None:
    schema = {"at": {"type": "string", "format": "date-time"}}
    value = {"at": "2026-11-20T14:30:00+01:00"}
    [field] = form(schema, value).fields
    assert (field.input_type, field.value, field.suffix) == ("datetime-local", "2026-11-20T14:30", "+01:00")
    assert form(schema, value, {"at": "2026-11-20T14:30"}).arguments == value
    assert form(schema, value, {"at": "2026-11-20T15:00"}).arguments == {"at": "2026-11-20T15:00:00+01:00"}
    assert form(schema, {}, {"at": "2026-11-20T15:00"}).arguments == {"at": "2026-11-20T15:00:00Z"}


def test_a_time_that_comes_back_without_its_seconds_has_not_changed() -> None:
    value = {"at": "14:30:00"}
    read = form({"at": {"type": "string", "format": "time"}}, value, {"at": "14:30"})
    assert (read.arguments, read.changes) == (value, 0)


@pytest.mark.parametrize(
    ("uri", "host"),
    [("https://shop.example@evil.example/x", "evil.example"), ("mailto:a@b.example", ""), ("http://[", ""), ("", "")],
)
def test_an_address_says_where_it_leads(uri: str, host: str) -> None:
    [field] = form({"to": {"type": "string", "format": "uri"}}, {"to": uri}).fields
    assert field.host == host


def test_a_text_says_how_full_it_is_from_four_fifths_on() -> None:
    schema = {"note": {"type": "string", "maxLength": 10}}
    shown = [form(schema, {"note": "x" * n}).fields[0].counter for n in (7, 8, 10)]
    assert shown == ["", "8 of 10 characters", "10 of 10 characters"]


def test_a_long_text_shows_its_changes_word_by_word() -> None:
    schema = {"note": {"type": "string", "maxLength": 500}}
    [field] = form(schema, {"note": "We refund it all today."}, {"note": "We refund half today."}).fields
    assert "".join(words for kind, words in field.changed_words if kind != "ins") == "We refund it all today."
    assert "".join(words for kind, words in field.changed_words if kind != "del") == "We refund half today."
    assert ("ins", "half") in field.changed_words


LINES = {
    "lines": {
        "type": "array", "maxItems": 3, "minItems": 1,
        "items": {
            "type": "object",
            "properties": {
                "sku": {"type": "string"}, "count": {"type": "integer"}, "price": {"type": "number", "x-lock": True},
            },
            "required": ["sku"],
        },
    }
}  # fmt: skip
TWO: dict[str, Any] = {"lines": [{"sku": "A", "count": 1, "price": 2.5}, {"sku": "B", "count": 2, "price": 5.5}]}


def rows(**changes: Any) -> dict[str, Any]:
    """What a form with both lines posts, with one of its buttons."""
    names = ["arg.lines.0.sku", "arg.lines.0.count", "arg.lines.1.sku", "arg.lines.1.count"]
    values = dict(zip(names, ["A", "1", "B", "2"], strict=True))
    return {"shown": ["arg.lines", *names], "rows": ["arg.lines.0", "arg.lines.1"], **values, **changes}


def build_lines(posted: dict[str, Any] | None = None) -> SchemaForm:
    schema = {"type": "object", "properties": LINES, "required": ["lines"]}
    return schema_form.build(schema, TWO, TWO, posted=query(posted) if posted else None)


def test_a_list_of_objects_is_a_fieldset_for_each_with_a_line_that_sums_it_up() -> None:
    [field] = build_lines().fields
    assert [child.summary for child in field.children] == ["A, 1, 2.5", "B, 2, 5.5"]
    assert (field.may_add, field.may_remove) == (True, True)


def test_an_entry_that_nobody_touched_keeps_its_value_and_what_is_locked_in_it() -> None:
    assert build_lines(rows()).arguments == TWO
    read = build_lines(rows(**{"arg.lines.1.count": "3", "arg.lines.1.price": "0"}))
    assert read.arguments == {"lines": [TWO["lines"][0], {"sku": "B", "count": 3, "price": 5.5}]}
    assert read.changes == 1


def test_entries_are_added_and_removed() -> None:
    added = build_lines(rows(add="arg.lines"))
    assert added.arguments == {"lines": [*TWO["lines"], {}]}
    assert [child.name for child in added.fields[0].children] == ["arg.lines.0", "arg.lines.1", "arg.lines.2"]
    assert not added.fields[0].may_add
    removed = build_lines(rows(remove="arg.lines.0"))
    assert removed.arguments == {"lines": [TWO["lines"][1]]}
    assert (removed.fields[0].was, removed.fields[0].may_remove) == ("2 entries", False)
    filled = rows(rows=["arg.lines.1", "arg.lines.2"], **{"arg.lines.2.sku": "C"})
    filled["shown"] = [*filled["shown"], "arg.lines.2.sku"]
    assert build_lines(filled).arguments == {"lines": [TWO["lines"][1], {"sku": "C"}]}


WAYS = {"type": "array", "items": {"type": "string", "enum": ["email", "letter", "sms"]}}
STEPS = {"type": "array", "items": {"type": "number", "enum": [0.5, 1.0, 2.0]}}


@pytest.mark.parametrize(
    ("schema", "before", "ticked", "after", "changes"),
    [
        (WAYS, ["sms", "email"], ["email", "sms"], ["sms", "email"], 0),
        (WAYS, ["sms", "sms"], ["sms"], ["sms", "sms"], 0),
        (WAYS, ["sms", "email"], ["email", "letter", "sms"], ["sms", "email", "letter"], 1),
        (WAYS, ["sms", "email", "letter"], ["email", "sms"], ["sms", "email"], 1),
        (STEPS, [1.0], ["1"], [1.0], 0),
        (STEPS, [2.0, 0.5], ["0.5", "1", "2"], [2, 0.5, 1], 1),
    ],
)
def test_what_is_ticked_keeps_the_order_it_had(
    schema: dict[str, Any], before: list[Any], ticked: list[str], after: list[Any], changes: int
) -> None:
    values, whole = {"x": before}, {"type": "object", "properties": {"x": schema}}
    [shown] = schema_form.build(whole, values, values).fields
    assert [choice.value for choice in shown.choices if choice.selected] == sorted({*shown.values})

    built = schema_form.build(whole, values, values, posted=query({"shown": ["arg.x"], "arg.x": ticked}))

    assert (built.arguments, built.changes, built.errors) == ({"x": after}, changes, {})


@pytest.mark.parametrize("values", [{"lines": None}, {"lines": []}, {}])
def test_entries_of_which_there_are_none_stay_what_they_were(values: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"lines": {**LINES["lines"], "type": ["array", "null"]}}}
    built = schema_form.build(schema, values, values, posted=query({"shown": ["arg.lines"]}))
    assert (built.arguments, built.fields[0].kind) == (values, "rows")


def test_all_entries_come_back_with_restore() -> None:
    restored = build_lines(rows(rows=["arg.lines.1"], restore="lines"))
    assert (restored.arguments, restored.changes) == (TWO, 0)


@pytest.mark.parametrize("name", ["arg.lines.99999999", "arg.lines.x", "arg.lines.-1", "arg.other.0", ""])
def test_an_entry_with_a_made_up_name_is_not_read(name: str) -> None:
    assert build_lines(rows(rows=["arg.lines.0", "arg.lines.1", name])).arguments == TWO


def test_a_scalar_of_a_list_is_removed_by_its_place() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
    posted = query({"shown": "arg.tags", "arg.tags": ["a", "a", "b", ""], "remove": "arg.tags.1"})
    tags = {"tags": ["a", "a", "b"]}
    assert schema_form.build(schema, tags, tags, posted=posted).arguments == {"tags": ["a", "b"]}


def test_a_part_that_may_be_left_out_is_closed_until_something_stands_in_it() -> None:
    schema = {"to": {"type": "object", "properties": {"street": {"type": "string"}}}}
    [field] = form(schema, {}).fields
    assert (field.kind, field.is_open) == ("group", False)
    assert form(schema, {}, {"to.street": ""}).arguments == {}
    filled = form(schema, {}, {"to.street": "1 Canal Park"})
    assert (filled.arguments, filled.fields[0].is_open) == ({"to": {"street": "1 Canal Park"}}, True)


def test_a_secret_deep_inside_is_masked_wherever_it_stands_and_kept() -> None:
    properties = {
        "card": {"type": "object", "properties": {"pin": {"type": "string"}, "name": {"type": "string"}}},
        "raw": {},
    }
    value = {"card": {"pin": "s3cr3t", "name": "Ana"}, "raw": {"pin": "s3cr3t", "n": [1]}}
    shown = form(properties, value, secret=["pin"])
    assert "s3cr3t" not in repr([(field.value, field.values) for field in shown.all_fields])
    posted = {"card.pin": "mine", "card.name": "Bo", "raw": '{"pin": "••••••", "n": [2]}'}
    read = form(properties, value, posted, secret=["pin"])
    assert read.arguments == {"card": {"pin": "s3cr3t", "name": "Bo"}, "raw": {"pin": "s3cr3t", "n": [2]}}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1999, "$1,999.00"),
        (-1234567.5, "$-1,234,567.50"),
        (999.99, "$999.99"),
        ("1,999", "$1,999"),
        ("0042", "$0042.00"),
        ("about 5000", "$about 5000"),
    ],
)
def test_an_amount_that_is_only_read_has_its_thousands_apart(value: object, words: str) -> None:
    kind = "string" if isinstance(value, str) else "number"
    [field] = form({"x": {"type": kind, "format": "money", "x-currency": "USD"}}, {"x": value}).fields

    assert field.words == words
    # Editable numbers are not grouped: they come back as they were.
    assert "," not in field.value or field.value == value


@pytest.mark.parametrize(
    ("typed", "step", "error"),
    [
        ("120.55", 0.01, ""),
        ("120.555", 0.01, "At most two decimals."),
        ("120.5", 1, "Enter a whole number."),
        ("1.25", 0.5, "Enter a multiple of 0.5."),
        ("1.5", 0.5, ""),
        ("999999999999999.99", 0.01, ""),
        ("7", 0, ""),
    ],
)
@pytest.mark.parametrize("kind", ["number", "string"])
def test_an_amount_between_the_steps_says_so_in_plain_words(kind: str, typed: str, step: float, error: str) -> None:
    schema = {"x": {"type": kind, "format": "money", "multipleOf": step}}
    made = form(schema, {"x": 1 if kind == "number" else "1"}, posted={"x": typed})

    assert (made.fields[0].value, made.fields[0].error) == (typed, error)
    assert bool(made.errors) is bool(error)
