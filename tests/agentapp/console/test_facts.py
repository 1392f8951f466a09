"""Objects shown as names and values, and everything else as it was written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentapp.console.facts import MOST_FACTS, facts_of


def words(value: object) -> list[tuple[str, str]]:
    return [(fact.name, fact.text) for fact in facts_of(json.dumps(value))]


def test_an_object_reads_as_names_and_values_in_its_own_order() -> None:
    assert words({"order_id": "58213", "paid": 214.5, "photo": True, "refunds": [], "note": None}) == [
        ("Order id", "58213"),
        ("Paid", "214.5"),
        ("Photo", "yes"),
        ("Refunds", "none"),
        ("Note", "none"),
    ]


def test_what_is_one_level_below_stands_in_lines() -> None:
    found = facts_of(json.dumps({"items": [{"sku": "K-1", "price": 9.5}, {"sku": "K-2"}], "tags": ["a", "b"]}))

    assert [fact.text for fact in found] == ["Sku K-1, Price 9.5\nSku K-2", "a, b"]
    assert [fact.is_wide for fact in found] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "The kettle arrived broken.",
        "[1, 2]",
        "{}",
        '{"cut off": "in the mid…',
        '{"a": {"b": {"c": 1}}}',
        '{"a": [{"b": [1]}]}',
        json.dumps({str(number): number for number in range(MOST_FACTS + 1)}),
        '{"a":' * 5000 + "1" + "}" * 5000,
    ],
    ids=["words", "list", "empty", "cut off", "deep", "deep in a list", "many", "bottomless"],
)
def test_what_is_no_small_flat_object_is_left_as_it_was_written(text: str) -> None:
    assert facts_of(text) == []


def test_a_moment_reads_as_a_local_date_and_time(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    found = words({"a": "2026-11-22T02:43:33.635180Z", "b": "2026-07-01T23:30:00-05:00", "c": ["2026-11-22T02:43Z"]})

    assert [text for _, text in found] == ["22 Nov 2026, 03:43", "2 Jul 2026, 06:30", "22 Nov 2026, 03:43"]


@pytest.mark.parametrize(
    "text", ["2026-11-17", "2026-11-22T02:43:33", "2026-13-40T02:43:33Z", "0001-01-01T00:00:00+14:00", "At 2026-11-22"]
)
def test_what_is_no_moment_is_left_as_it_was_written(text: str) -> None:
    assert words({"at": text}) == [("At", text)]


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists)))
def test_nothing_of_an_object_is_left_out(value: dict[str, object]) -> None:
    found = words(value)

    assert found == [] or len(found) == len(value)
    assert all(text for _, text in found)
