import json
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.digest import (
    MAX_BYTES,
    MAX_DEPTH,
    MalformedJSON,
    action_digest,
    canonical,
    parse,
    storable,
    storable_json,
    storable_up_to,
)

NESTED_LISTS = "[" * MAX_DEPTH + "]" * MAX_DEPTH

# Any text a database can store: no NUL, no lone surrogate.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda value: not 2**53 - 1 < abs(value) < 1e21
)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=25
)


def shuffled(value, data):
    """The same JSON value with its objects' keys in another order."""
    if isinstance(value, dict):
        keys = data.draw(st.permutations(list(value)))
        return {key: shuffled(value[key], data) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, data) for item in value]
    return value


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"amount": NaN}', "[1, -Infinity]"])
def test_numbers_that_json_does_not_have_are_refused(text):
    with pytest.raises(MalformedJSON, match="is not JSON"):
        parse(text)


@pytest.mark.parametrize("text", ["1e999", "-1e999", '{"amount": [1e400]}', "1" * 5000 + ".0"])
def test_a_number_too_large_for_a_double_is_refused(text):
    with pytest.raises(MalformedJSON, match="too large"):
        parse(text)


@pytest.mark.parametrize("text", ["9007199254740992", "-9007199254740992", '{"id": 12345678901234567890}', "9" * 5000])
def test_a_whole_number_beyond_the_exact_range_is_refused_with_advice(text):
    with pytest.raises(MalformedJSON, match="send it as a text") as refused:
        parse(text)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("text", ["1e20", "9007199254740993.0", "-1e16", "9.9e20"])
def test_a_fraction_that_would_be_written_as_an_inexact_whole_number_is_refused(text):
    with pytest.raises(MalformedJSON, match="send it as a text"):
        parse(text)


@pytest.mark.parametrize("text", ["9007199254740991", "-9007199254740991", "1e15", "1e21", "1.7976931348623157e308"])
def test_numbers_at_the_edge_of_the_exact_range_are_read(text):
    assert parse(canonical(parse(text))) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"to": "alice", "to": "mallory"}',
        '{"a": {"b": [{"to": 1, "x": 2, "to": 1}]}}',
        '[[[{"\\u0074o": 1, "to": 2}]]]',
    ],
)
def test_a_key_that_stands_twice_is_refused_and_named_at_any_depth(text):
    with pytest.raises(MalformedJSON, match="'to' appears twice"):
        parse(text)


@pytest.mark.parametrize("text", ['"\\u0000"', '{"a": ["x\\u0000y"]}', '{"\\u0000": 1}'])
def test_a_nul_character_is_refused(text):
    with pytest.raises(MalformedJSON, match="NUL"):
        parse(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udfffb"', '{"\\ud83d": 1}', '["\\udc00\\ud800"]', '"\ud800"'])
def test_half_of_a_surrogate_pair_is_refused(text):
    with pytest.raises(MalformedJSON, match="surrogate"):
        parse(text)


def test_a_whole_surrogate_pair_is_one_character():
    assert parse('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_bytes_that_were_no_utf_8_are_refused():
    with pytest.raises(MalformedJSON, match="surrogate"):
        parse(b'{"name": "\xff\xfe"}'.decode("utf-8", "surrogateescape"))


def test_64_levels_are_read_and_65_are_refused():
    assert parse(NESTED_LISTS) is not None
    with pytest.raises(MalformedJSON, match="deeper than 64"):
        parse(f"[{NESTED_LISTS}]")
    with pytest.raises(MalformedJSON, match="deeper than 64"):
        parse('{"a":' * 65 + "1" + "}" * 65)


def test_20_000_levels_are_refused_without_exhausting_the_stack():
    with pytest.raises(MalformedJSON, match="deeper than 64"):
        parse("[" * 20_000 + "]" * 20_000)
    with pytest.raises(MalformedJSON, match="deeper than 64"):
        parse('{"a":[' * 10_000)


@pytest.mark.parametrize("text", ["[" * 100, "{" * 100, '\\"' + "[" * 100, '"' + "[" * 100])
def test_brackets_inside_a_string_are_not_levels(text):
    assert parse(json.dumps({"note": text})) == {"note": text}


def test_a_bracket_behind_a_string_with_quotes_is_a_level():
    with pytest.raises(MalformedJSON, match="deeper than 64"):
        parse('["\\"", ' * 65 + "1" + "]" * 65)


def test_256_kib_are_read_and_one_byte_more_is_refused():
    text = json.dumps("x" * (MAX_BYTES - 2))
    assert len(parse(text)) == MAX_BYTES - 2
    with pytest.raises(MalformedJSON, match="larger than 256 KiB"):
        parse(text + " ")


def test_size_is_counted_in_bytes_not_in_characters():
    with pytest.raises(MalformedJSON, match="larger than 256 KiB"):
        parse(json.dumps("ü" * (MAX_BYTES // 2), ensure_ascii=False))


def test_a_text_whose_canonical_form_is_too_large_is_refused():
    with pytest.raises(MalformedJSON, match="written out"):
        parse("[" + ",".join(["1e15"] * 40_000) + "]")


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"a": 1', '{"a": "b', "[1,", "tru", '{"a": 1}}', "{'a': 1}", "\ufeff{}", "01"]
)
def test_a_malformed_or_truncated_text_is_refused(text):
    with pytest.raises(MalformedJSON, match="malformed or truncated"):
        parse(text)


def test_a_hostile_text_takes_no_more_than_a_look_at_each_character():
    """Quadratic scanning would take minutes here, which would be noticed."""
    with pytest.raises(MalformedJSON, match="truncated"):
        parse('"' + '\\"' * (MAX_BYTES // 2 - 1))
    with pytest.raises(MalformedJSON, match="appears twice"):
        parse("{" + ",".join(f'"{number:06}":1' for number in range(20_000)) + ',"019999":1}')


@given(st.text())
def test_arbitrary_text_never_raises_anything_but_malformed_json(text):
    sentence = ""
    try:
        parse(text)
    except MalformedJSON as refused:
        sentence = str(refused)
    assert storable(sentence) == sentence


@given(st.text(alphabet='{}[]",:\\u0eE+-.1295ntrfalsd \ud800\x00'))
def test_text_that_looks_like_json_never_raises_anything_but_malformed_json(text):
    try:
        value = parse(text)
    except MalformedJSON:
        return
    assert parse(canonical(value)) == value


# Appendix B of RFC 8785, and its example of section 3.2.
@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740991, "9007199254740991"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1.0000000000000001e23, "1.0000000000000001e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"),
        (333333333.33333325, "333333333.33333325"),
        (333333333.3333334, "333333333.3333334"),
        (-0.0000033333333333333333, "-0.0000033333333333333333"),
        (1424953923781206.2, "1424953923781206.2"),
        (1.0, "1"),
        (4.5, "4.5"),
        (2e-3, "0.002"),
    ],
)
def test_numbers_are_written_as_rfc_8785_says(number, written):
    assert canonical(number) == written


def test_keys_are_ordered_by_utf_16_units_as_rfc_8785_says():
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    text = canonical(dict.fromkeys(reversed(ordered), 1))
    assert list(json.loads(text)) == ordered


def test_the_example_of_rfc_8785_is_written_as_it_says():
    text = r"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(parse(text)) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {1: 2}, "\ud800", {"\ud800": 1}, object(), b"x"])
def test_what_jcs_cannot_say_has_no_canonical_form(value):
    with pytest.raises(MalformedJSON, match="no canonical JSON form"):
        canonical({"value": value})


def test_endless_nesting_has_no_canonical_form():
    value: list = []
    value.append(value)
    with pytest.raises(MalformedJSON):
        canonical(value)


@given(values)
def test_a_value_survives_its_canonical_form(value):
    text = canonical(value)
    assert parse(text) == value
    assert canonical(parse(text)) == text


@given(values, st.data())
def test_the_order_of_keys_never_matters(value, data):
    assert canonical(shuffled(value, data)) == canonical(value)


ACTION = {
    "tool": "refund_order",
    "tool_version": "v1",
    "arguments": {"order": "1001", "amount": 240},
    "run": "run-1",
    "subject": "call-1",
}


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "refund_orders"},
        {"tool_version": "v2"},
        {"arguments": {"order": "1001", "amount": 241}},
        {"arguments": {"order": "1001", "amount": "240"}},
        {"arguments": {"order": "1001", "amount": 240, "note": None}},
        {"arguments": {"order": "1001"}},
        {"run": "run-2"},
        {"subject": "call-2"},
    ],
)
def test_a_digest_binds_tool_version_arguments_run_and_subject(change):
    assert action_digest(**ACTION | change) != action_digest(**ACTION)


def test_a_digest_does_not_run_its_parts_together():
    assert action_digest(**ACTION | {"tool": "ab", "tool_version": "c"}) != action_digest(
        **ACTION | {"tool": "a", "tool_version": "bc"}
    )


@given(values, values)
def test_two_actions_share_a_digest_only_when_their_arguments_are_the_same(one, other):
    same = canonical(one) == canonical(other)
    assert (action_digest(**ACTION | {"arguments": one}) == action_digest(**ACTION | {"arguments": other})) == same


@given(st.text())
def test_storable_text_can_be_kept_by_both_databases(text):
    kept = storable(text)
    kept.encode("utf-8")
    assert "\x00" not in kept
    assert storable(kept) == kept


@given(texts)
def test_storable_leaves_ordinary_text_alone(text):
    assert storable(text) == text


def test_storable_json_keeps_json_and_writes_out_the_rest():
    key = uuid.UUID(int=7)
    odd = {"a": ("x\x00", float("nan"), key), 5: "\ud800", "fine": [1, 2.5, None, True, string.digits]}
    assert storable_json(odd) == {
        "a": ["x\N{SYMBOL FOR NULL}", "nan", str(key)],
        "5": "?",
        "fine": [1, 2.5, None, True, string.digits],
    }


def test_what_is_too_long_or_nested_too_deeply_is_said_to_be_unreadable() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert storable_up_to(100, {"why": "too\x00 dear", "by": {1}}) == {"why": "too\u2400 dear", "by": "{1}"}
    assert storable_up_to(100, {"why": "x" * 100}) == storable_up_to(100, deep) == {"unreadable": True}
