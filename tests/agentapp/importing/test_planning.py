"""A document becomes a plan: what it offers, next to what exists; nothing is lost or made less careful."""

import json
from typing import Any

import pytest

from agentapp.importing import planning, writing
from agentapp.importing.planning import Given, Plan
from agentapp.models import Tool
from agentapp.refused import Refused
from tests.agentapp.run_builder import make_tool
from tests.service import METHODS, document

pytestmark = pytest.mark.django_db


def shop(**operations: Any) -> str:
    """A document with one path per operation: {name: (method, more)}."""
    paths: dict[str, Any] = {}
    for name, said in operations.items():
        method, more = said if isinstance(said, tuple) else (said, {})
        paths.setdefault(more.pop("path", f"/{name}"), {})[method] = {"operationId": name, "responses": {}, **more}
    servers = [{"url": "https://shop.example/v1"}]
    return json.dumps(
        {"openapi": "3.1.0", "info": {"title": "The Shop", "version": "2"}, "servers": servers, "paths": paths}
    )


def plan(text: str, **given: Any) -> Plan:
    return planning.plan(Given(text, **given))


def imported(text: str, **given: Any) -> Plan:
    planned = plan(text, **given)
    writing.write(planned, {one.key: one.choice for one in planned.proposed}, "test")
    return planned


def parameters_of(said: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """The parameters of each operation, found only by walking the document."""

    def at(part: Any) -> Any:
        while "$ref" in part:
            found: Any = said
            for key in part["$ref"][2:].split("/"):
                found = found[key.replace("~1", "/").replace("~0", "~")]
            part = found
        return part

    found = {}
    for path, item in said["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            both = [at(one) for one in [*item.get("parameters", []), *item[method].get("parameters", [])]]
            here = {(one["in"], one["name"]) for one in both}
            # The standard says that this is not a parameter: it follows from the body.
            here.discard(("header", "Content-Type"))
            if "requestBody" in item[method]:
                here.add(("body", "body"))
            found[f"{method.upper()} {path}"] = here
    return found


@pytest.mark.parametrize(
    ("name", "operations", "left_out"), [("figma", 54, 0), ("github", 100, 1), ("blockfrost", 127, 2)]
)
def test_no_parameter_of_a_real_service_is_lost(name: str, operations: int, left_out: int) -> None:
    said = document(name)
    planned = plan(json.dumps(said))
    assert (len(planned.proposed), len(planned.document.left_out)) == (operations, left_out)
    wanted = {key: found for key, found in parameters_of(said).items() if key not in planned.document.left_out}
    taken = {one.key: {(p["where"], p["name"]) for p in one.tool.wire["places"].values()} for one in planned.proposed}
    assert taken == wanted
    assert sum(len(one.tool.input_schema["properties"]) for one in planned.proposed) == sum(map(len, wanted.values()))


def test_what_is_not_said_is_taken_from_the_document() -> None:
    planned = plan(shop(look="get"))
    source = planned.source
    assert (source.name, source.location, source.kind) == ("the-shop", "https://shop.example/v1", "openapi")
    assert source.details == {"title": "The Shop", "version": "2", "prefix": "", "checks_answers": False}
    assert planned.is_new
    assert not Tool.objects.exists()


@pytest.mark.parametrize(
    "location",
    [
        "ftp://shop.example", "shop.example", "file:///etc", "javascript:1", "https://", "https://a:b@shop.example",
        "https://{region}.shop.example", "https://shop.example?a=1",
    ],
)  # fmt: skip
def test_an_address_that_no_call_can_go_to_is_refused(location: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(shop(look="get"), location=location)
    assert (refused.value.code, refused.value.field) == ("invalid_location", "location")
    assert "address" in refused.value.message


@pytest.mark.parametrize("server", ["https://[bad", ""])
def test_an_address_of_the_document_that_is_none_is_refused(server: str) -> None:
    text = shop(a="get").replace("https://shop.example/v1", server)
    with pytest.raises(Refused) as refused:
        plan(text, origin="https://shop.example/openapi.json")
    assert refused.value.code == "invalid_location"


def test_an_address_beside_the_documents_own_is_made_whole() -> None:
    text = shop(look="get").replace("https://shop.example/v1", "/v3")
    assert plan(text, origin="https://docs.example/api/openapi.json").source.location == "https://docs.example/v3"
    with pytest.raises(Refused, match="starting with https"):
        plan(text)


def test_a_document_that_cannot_be_read_is_refused_with_the_reason() -> None:
    for text in ("", "[]", "{", '{"swagger": "2.0"}'):
        with pytest.raises(Refused) as refused:
            plan(text)
        assert refused.value.field == "document"


def test_names_that_are_taken_by_other_tools_are_told_apart() -> None:
    make_tool("look")
    [one] = plan(shop(look="get")).proposed
    assert one.tool.name == "look_2"
    [one] = plan(shop(look="get"), prefix="shop_").proposed
    assert one.tool.name == "shop_look"


def test_a_source_of_another_kind_keeps_its_name() -> None:
    make_tool("look")
    with pytest.raises(Refused, match="Another source is named shop"):
        plan(shop(look="get"), name="shop")


def test_people_read_what_is_sent_and_where() -> None:
    more = {
        "path": "/orders/{id}",
        "summary": "Cancel {an} order",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "why", "in": "query", "required": True, "schema": {"type": "string"}},
        ],
        "requestBody": {"content": {"application/json": {}}},
    }
    [one] = plan(shop(cancel=("delete", more))).proposed
    assert one.tool.title == "Cancel {{an}} order"
    assert one.tool.sentence == (
        "The agent will send DELETE /orders/{id} to shop.example, with why {why}, the body below."
    )


def test_a_document_read_anew_says_what_is_new_changed_and_gone() -> None:
    imported(shop(a="get", b="get", c="get"))
    planned = plan(shop(a="get", b=("get", {"description": "Longer."}), d="post"))
    assert {one.operation.name: one.state for one in planned.proposed} == {"a": "same", "b": "changed", "d": "new"}
    assert [row.name for row in planned.gone] == ["c"]
    assert planned.by_key["GET /b"].parts == [("Description", '"GET /b"', '"Longer."')]
    assert set(planning.preset(planned)) == {"GET /a", "GET /b"}


def test_a_prefix_lasts() -> None:
    imported(shop(a="get"), prefix="shop_")
    assert [one.tool.name for one in plan(shop(a="get", b="get")).proposed] == ["shop_a", "shop_b"]


def test_what_is_said_of_answers_lasts_until_it_is_said_otherwise() -> None:
    answer = {"responses": {"200": {"content": {"application/json": {"schema": {"type": "integer"}}}}}}
    text = shop(a=("get", dict(answer)))
    assert imported(text).proposed[0].tool.output_schema is None
    [changed] = imported(text, checks_answers=True).proposed
    assert [label for label, *_ in changed.parts] == ["Result"]
    assert [one.state for one in plan(text).proposed] == ["same"]
    assert [one.state for one in plan(text, checks_answers=False).proposed] == ["changed"]


def test_an_operation_that_has_moved_keeps_its_tool_and_rises_with_its_method() -> None:
    imported(shop(a="get"))
    [one] = plan(shop(a=("delete", {"path": "/v2/a"}))).proposed
    assert (one.row and one.row.name, one.state, one.effect_class) == ("a", "changed", "irreversible")


def test_an_operation_that_has_moved_is_no_weaker_than_guessed() -> None:
    imported(shop(pay="post"))
    Tool.objects.update(effect_class="read")
    [stays] = plan(shop(pay="post")).proposed
    [moved] = plan(shop(pay=("post", {"path": "/wipe"}))).proposed
    assert (stays.effect_class, moved.effect_class) == ("read", "irreversible")
    imported(shop(pay=("post", {"path": "/wipe"})))
    assert Tool.objects.get().effect_class == "irreversible"


@pytest.mark.parametrize(
    ("set_to", "method", "proposed"),
    [
        ("irreversible", "get", "irreversible"),  # an admin made it stricter than its method
        ("read", "put", "read"),  # an admin has reviewed it, and the guess is the same
        ("reversible", "post", "irreversible"),  # the guess has risen
    ],
)
def test_what_was_set_or_guessed_before_is_never_lowered(set_to: str, method: str, proposed: str) -> None:
    imported(shop(a="put" if method != "get" else "post"))
    Tool.objects.update(effect_class=set_to)
    [one] = plan(shop(a=(method, {"path": "/a"}))).proposed
    assert one.effect_class == proposed
    assert one.tool.effect in ("irreversible", "compensable")
