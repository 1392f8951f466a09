"""How the schemas within a schema lead to each other, by every kind of reference."""

from typing import Any

import pytest

from agentapp.tools import schema_graph
from agentapp.tools.schema_graph import Place

ENDLESS = {"allOf": [{"type": "object"}], "items": {"$ref": "#"}}


def leads_to(found: dict[str, Any], at: int = 0) -> list[Place]:
    places = schema_graph.read(found)
    return [places[inner] for inner in places[at].leads_to()]


@pytest.mark.parametrize(
    ("reference", "defs"),
    [
        ("#/$defs/b", {"b": ENDLESS}),
        ("#/$defs/a%20b", {"a b": ENDLESS}),
        ("#/$defs/a~1b", {"a/b": ENDLESS}),
        ("#/$defs/a~01b", {"a~1b": ENDLESS}),
        ("#/$defs/b/not", {"b": {"not": ENDLESS}}),
        ("#/$defs/b/allOf/00", {"b": {"allOf": [ENDLESS]}}),
        ("#base", {"b": {"$anchor": "base", **ENDLESS}}),
        ("#base", {"b": {"$dynamicAnchor": "base", **ENDLESS}}),
        ("item.json", {"b": {"$id": "item.json", **ENDLESS}, "c": {"$id": "other.json"}}),
        ("http://shop/item.json", {"b": {"$id": "http://shop/item.json", **ENDLESS}}),
        ("item.json#/$defs/x", {"b": {"$id": "item.json", "$defs": {"x": ENDLESS}}}),
        ("item.json#base", {"b": {"$id": "item.json", "$defs": {"x": {"$anchor": "base", **ENDLESS}}}}),
    ],
)
def test_a_reference_is_followed_as_the_validator_follows_it(reference: str, defs: dict[str, Any]) -> None:
    (inner,) = leads_to({"$ref": reference, "$defs": defs})
    assert inner.items.rest


def test_an_address_that_can_be_written_in_several_ways_may_be_any() -> None:
    defs = {"b": {"$id": "http://shop/a/../item.json", "items": ENDLESS}, "c": {"$id": "urn:x:y", "contains": ENDLESS}}
    found = leads_to({"$ref": "http://SHOP:80/item.json", "$defs": defs})
    assert [bool(place.items.rest or place.items.every) for place in found] == [False, True, True]


@pytest.mark.parametrize("reference", ["#/$defs/missing", "#missing", "#/anyOf/²", "https://json-schema.org/schema"])
def test_what_is_not_there_leads_nowhere(reference: str) -> None:
    assert leads_to({"$ref": reference, "anyOf": [True]}) == []


def test_the_standards_own_schema_leads_to_what_puts_itself_into_it() -> None:
    found = {"$dynamicAnchor": "meta", "$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert schema_graph.read(found)[0].members.every == [0]


@pytest.mark.parametrize(
    ("named", "reference"),
    [
        ("https://shop.example:8443/order.json", "item.json"),
        ("urn:shop:order", "https://shop.example/item.json"),
        ("https://shop.example/schemas/", "/schemas/item.json"),
    ],
)
def test_an_address_as_people_write_it_is_told_apart_from_others(named: str, reference: str) -> None:
    found = leads_to({"$id": named, "$ref": reference, "$defs": {"b": {"$id": reference, "items": ENDLESS}}})
    assert [bool(place.items.rest) for place in found] == [True]


def test_references_that_may_lead_to_very_many_schemas_are_not_read() -> None:
    defs = {f"d{n}": {"$dynamicAnchor": "a", "items": {"$dynamicRef": "#a"}} for n in range(200)}
    with pytest.raises(schema_graph.Unreadable):
        schema_graph.read({"$ref": "#/$defs/d0", "$defs": defs})
    many = {f"d{n}": {"$id": f"d{n}.json", "items": {"$ref": f"d{n + 1}.json"}} for n in range(100)}
    assert len(schema_graph.read({"$ref": "d0.json", "$defs": many})) > 100


def test_parts_without_a_name_of_their_own_are_held_against_the_rest() -> None:
    (place, *_) = schema_graph.read({"properties": {"a": ENDLESS}, "additionalProperties": {"not": {}}})
    assert len(place.members.of("a")) == len(place.members.of("b")) == 1
    assert place.members.of("a") != place.members.of("b")
