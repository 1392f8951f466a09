"""An OpenAPI document is read completely or, operation by operation, not at all: no parameter is lost on the way."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentapp.tools import openapi
from agentapp.tools.openapi import DocumentRefused, Operation, Place, read
from agentapp.tools.schema import problems_of, validator
from approvals.digest import canonical


def document(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> str:
    return json.dumps({"openapi": version, "info": {"title": "Shop", "version": "1"}, "paths": paths, **more})


def operation(
    said: dict[str, Any], version: str = "3.1.0", path: str = "/a", method: str = "get", **more: Any
) -> Operation:
    found = read(document({path: {method: said}}, version, **more))
    assert found.left_out == {}
    [made] = found.operations
    return made


def schema_of(schema: Any, version: str = "3.1.0", **schemas: Any) -> Any:
    """The schema of the parameter `a` after the import."""
    said = {"parameters": [{"name": "a", "in": "query", "schema": schema}]}
    return operation(said, version, components={"schemas": schemas}).input_schema


# --- Parameters --------------------------------------------------------------------------------


def test_each_parameter_is_an_argument_and_knows_its_place() -> None:
    said = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Which."},
            {"name": "page", "in": "query", "schema": {"type": "integer"}},
            {"name": "tags", "in": "query", "style": "pipeDelimited", "schema": {"type": "array"}},
            {"name": "X-Trace", "in": "header", "required": True, "schema": {"type": "string"}},
            {"name": "session", "in": "cookie", "schema": {"type": "string"}},
            {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
    }
    made = operation(said, path="/orders/{id}", method="post")
    assert made.places == {
        "id": Place("path", "id", "simple"),
        "page": Place("query", "page", "form", explode=True),
        "tags": Place("query", "tags", "pipeDelimited"),
        "X-Trace": Place("header", "X-Trace", "simple"),
        "session": Place("cookie", "session", "form", explode=True),
        "filter": Place("query", "filter", "form", explode=True, media="application/json"),
        "body": Place("body", "body", media="application/json"),
    }
    assert made.input_schema["required"] == ["id", "X-Trace", "body"]
    assert made.input_schema["properties"]["id"] == {"type": "string", "description": "Which."}
    assert set(made.input_schema["properties"]) == set(made.places)
    assert made.input_schema["additionalProperties"] is False


def test_the_operations_own_parameter_stands_in_for_the_paths() -> None:
    item = {
        "parameters": [
            {"name": "q", "in": "query", "schema": {"type": "string"}},
            {"name": "n", "in": "query", "schema": {}},
        ],
        "get": {"parameters": [{"name": "q", "in": "query", "schema": {"type": "integer"}}]},
    }
    [made] = read(document({"/a": item})).operations
    assert made.input_schema["properties"] == {"q": {"type": "integer"}, "n": {}}


def test_two_parameters_of_one_name_in_two_places_are_two_arguments() -> None:
    said = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "id", "in": "query", "schema": {"type": "boolean"}},
            {"name": "body", "in": "query", "schema": {"type": "integer"}},
        ],
        "requestBody": {"content": {"text/plain": {}}},
    }
    made = operation(said, path="/a/{id}", method="put")
    assert {own: (place.where, place.name) for own, place in made.places.items()} == {
        "id": ("path", "id"), "id_query": ("query", "id"), "body": ("query", "body"), "body_body": ("body", "body"),
    }  # fmt: skip


def test_headers_that_belong_to_the_request_itself_are_no_arguments() -> None:
    given_ = [
        {"name": name, "in": "header", "schema": {}} for name in ("Accept", "content-type", "Authorization", "X-A")
    ]
    assert set(operation({"parameters": given_}).places) == {"X-A"}


def test_a_header_is_the_same_in_capitals() -> None:
    item = {
        "parameters": [{"name": "X-Shop", "in": "header", "schema": {"type": "string"}}],
        "get": {"parameters": [{"name": "x-shop", "in": "header", "schema": {"type": "integer"}}]},
    }
    [made] = read(document({"/a": item})).operations
    assert made.input_schema["properties"] == {"x-shop": {"type": "integer"}}


def test_what_stands_beside_a_reference_of_a_path_counts_as_well() -> None:
    item = {"$ref": "#/x-paths/a", "post": {}, "parameters": [{"name": "b", "in": "query", "schema": {}}]}
    found = read(document({"/a": item}, **{"x-paths": {"a": {"get": {}}}}))
    assert [(one.method, set(one.places)) for one in found.operations] == [("get", {"b"}), ("post", {"b"})]


@pytest.mark.parametrize("name", ["Host", "X-HTTP-Method-Override", "x-original-url", "Bad Name", ""])
def test_no_argument_makes_another_request_of_it(name: str) -> None:
    found = read(document({"/a": {"get": {"parameters": [{"name": name, "in": "header", "schema": {}}]}}}))
    assert "cannot be set by a caller" in found.left_out["GET /a"]


@pytest.mark.parametrize("server", ["https://[bad", "https://a.example:port", "https://a.example:99999"])
def test_an_operation_whose_own_server_is_no_address_is_left_out(server: str) -> None:
    found = read(document({"/a": {"get": {"servers": [{"url": server, "variables": {"a": 1}}]}}}))
    assert "is not an address" in found.left_out["GET /a"]


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (["application/xml", "application/json"], "application/json"),
        (["application/vnd.shop+json"], "application/vnd.shop+json"),
        (["application/json; charset=utf-8"], "application/json"),
        (["multipart/form-data", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
    ],
)
def test_of_several_kinds_of_body_one_that_can_be_sent_is_taken(offered: list[str], taken: str) -> None:
    said = {"requestBody": {"content": {media: {"schema": {"type": "object"}} for media in offered}}}
    made = operation(said, method="post")
    assert (made.places["body"].media, made.input_schema["required"]) == (taken, [])


@pytest.mark.parametrize(
    "said",
    [
        {"requestBody": {"content": {"application/pdf": {}}}},
        {"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "https://evil.example/a.json"}}]},
        {"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "file:///etc/passwd"}}]},
        {"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "other.yaml#/a"}}]},
        {"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "#/components/schemas/Gone"}}]},
        {"parameters": [{"$ref": "#/components/parameters/Gone"}]},
        {"parameters": [{"name": "a", "in": "body", "schema": {}}]},
        {"parameters": [{"name": "a", "in": "query"}]},
        {"parameters": [{"name": "a", "in": "path", "style": "form", "schema": {}}]},
        {"parameters": [{"name": "a", "in": "query", "content": {"text/csv": {}}}]},
        {"parameters": [{"name": "a", "in": "query", "schema": {"type": "no such type"}}]},
        {"parameters": ["not a parameter"]},
        {"requestBody": {}},
    ],
)
def test_what_cannot_be_taken_over_whole_is_left_out_with_the_reason(said: dict[str, Any]) -> None:
    found = read(document({"/a": {"post": said, "get": {}}}))
    assert [one.method for one in found.operations] == ["get"]
    assert list(found.left_out) == ["POST /a"]
    assert found.left_out["POST /a"].endswith(".") or "JSON Schema" in found.left_out["POST /a"]


def test_a_path_with_a_place_that_nothing_fills_is_left_out() -> None:
    found = read(document({"/a/{id}/{part}": {"get": {"parameters": [{"name": "id", "in": "path", "schema": {}}]}}}))
    assert "'part'" in found.left_out["GET /a/{id}/{part}"]


# --- Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("orders/get", "orders_get"), ("repos.get-content", "repos_get-content"), ("  ", "get"), ("Größe", "Gr_e"),
        ("x" * 90, "x" * 64), ("_private", "private"),
    ],
)  # fmt: skip
def test_a_name_is_one_that_every_provider_takes(id: str, name: str) -> None:
    assert operation({"operationId": id}).name == name


def test_names_that_would_be_the_same_are_told_apart() -> None:
    paths = {f"/{n}": {"get": {"operationId": op}} for n, op in enumerate(["a/b", "a.b", "a b", "x" * 70, "x" * 80])}
    names = [one.name for one in read(document(paths), prefix="shop_").operations]
    assert names == ["shop_a_b", "shop_a_b_2", "shop_a_b_3", f"shop_{'x' * 59}", f"shop_{'x' * 57}_2"]


def test_without_an_id_the_name_is_of_method_and_path() -> None:
    assert operation({}, path="/orders/lines", method="post").name == "post_orders_lines"


# --- Schemas -----------------------------------------------------------------------------------


def test_a_schema_that_refers_to_itself_stays_one() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    whole = schema_of({"$ref": "#/components/schemas/Node"}, Node=node)
    assert whole["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert problems_of(whole, {"a": {"next": {"next": {}}}}) == []
    assert problems_of(whole, {"a": {"next": {"next": 3}}}) != []


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"allOf": [{"type": "string"}], "nullable": True},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
        ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"type": "number", "maximum": 9}),
        ({"type": "string", "example": "a", "x-internal": 1, "xml": {}}, {"type": "string", "examples": ["a"]}),
    ],
)
def test_what_3_0_says_in_its_own_way_is_said_as_3_1_would(said: Any, taken: Any) -> None:
    assert schema_of(said, "3.0.3")["properties"]["a"] == taken


def test_what_only_a_server_says_is_not_asked_of_a_caller() -> None:
    stamp = {"type": "string", "readOnly": True}
    order = {
        "type": "object",
        "required": ["id", "sku", "made"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "sku": {"type": "string"},
            "made": {"$ref": "#/components/schemas/Stamp"},
        },
    }
    whole = schema_of({"$ref": "#/components/schemas/Order"}, "3.0.0", Order=order, Stamp=stamp)
    assert whole["$defs"]["Order"] == {
        "type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}},
    }  # fmt: skip


def test_a_property_called_example_or_nullable_is_a_property() -> None:
    said = {"type": "object", "properties": {"example": {"type": "string"}, "nullable": {"type": "boolean"}}}
    assert schema_of(said, "3.0.0")["properties"]["a"] == said


def test_beside_a_reference_3_1_may_say_more_and_3_0_may_not() -> None:
    said = {"$ref": "#/components/schemas/A", "description": "Ours."}
    assert schema_of(said, A={"type": "string"})["properties"]["a"] == {"$ref": "#/$defs/A", "description": "Ours."}
    assert schema_of(said, "3.0.0", A={"type": "string"})["properties"]["a"] == {"$ref": "#/$defs/A"}


def test_two_schemas_of_one_name_are_kept_apart() -> None:
    said = {"allOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/others/A"}]}
    components = {"schemas": {"A": {"minLength": 1}}, "others": {"A": {"maxLength": 2}}}
    made = operation({"parameters": [{"name": "a", "in": "query", "schema": said}]}, components=components)
    assert made.input_schema["$defs"] == {"A": {"minLength": 1}, "A_2": {"maxLength": 2}}


# --- What surrounds them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("get", "read"), ("head", "read"), ("put", "compensable"), ("patch", "compensable"), ("post", "irreversible"),
        ("delete", "irreversible"),
    ],
)  # fmt: skip
def test_what_a_call_may_do_is_guessed_from_the_method_and_from_nothing_it_says(method: str, effect: str) -> None:
    assert operation({"summary": "Only reads. Safe."}, method=method).effect_class == effect


def test_servers_and_credentials_are_those_of_the_nearest_that_names_them() -> None:
    servers = [{"url": "https://{region}.shop.example/v1", "variables": {"region": {"default": "eu"}}}]
    more = {"servers": servers, "security": [{"key": []}, {}]}
    assert operation({}, **more).servers == ("https://eu.shop.example/v1",)
    assert operation({}, **more).security == (frozenset({"key"}), frozenset())
    unsaid = operation({}, components={"securitySchemes": {"key": {}, "token": {}}})
    assert unsaid.security == (frozenset({"key"}), frozenset({"token"}), frozenset())
    own = operation({"servers": [{"url": "https://other.example"}], "security": []}, **more)
    assert (own.servers, own.security) == (("https://other.example",), ())


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{", "\t", '{"swagger": "2.0", "paths": {}}', '{"openapi": "3.2.0", "paths": {}}',
        '{"openapi": "3.1.0"}', '{"openapi": "3.1.0", "paths": []}', "!!python/object/apply:os.system [id]",
        "openapi: 3.1.0\npaths: {}\nx: !!python/name:os.system", "x" * (openapi.MAX_BYTES + 1), '{"a":' * 5000,
        b"\xff\xfe\x00",
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_document_is_refused_with_words(text: str) -> None:
    with pytest.raises(DocumentRefused) as refused:
        read(text)
    assert str(refused.value)


def test_a_bound_of_64_bits_is_a_number_that_is_kept() -> None:
    found = schema_of({"type": "integer", "maximum": 2**63 - 1, "minimum": -(2**63), "default": 2**53 - 1})
    assert canonical(found)
    described = found["properties"]["a"]
    assert (described["maximum"], described["default"]) == (float(2**63), 2**53 - 1)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["string", "object", "#/components/schemas/A", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "$ref", "items", "allOf", "nullable", "schema", "in", "name", "required"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, JSON, JSON)
def test_whatever_is_written_is_read_or_left_out(parameter: Any, body: Any, schema: Any) -> None:
    """Never an error of ours, and never a schema that cannot check arguments."""
    paths = {"/a": {"post": {"parameters": [parameter], "requestBody": body}, "get": {"parameters": parameter}}}
    for version in ("3.0.0", "3.1.0"):
        found = read(document(paths, version, components={"schemas": {"A": schema}}))
        assert len(found.operations) + len(found.left_out) == 2
        for one in found.operations:
            validator(one.input_schema)
            assert set(one.places) == set(one.input_schema["properties"])


# --- Answers -----------------------------------------------------------------------------------


def answered(responses: dict[str, Any], **schemas: Any) -> Any:
    """The schema that an operation's answers must match."""
    text = document({"/a": {"get": {"responses": responses}}}, components={"schemas": schemas})
    [made] = read(text, answers=True).operations
    return made.output_schema


def json_of(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def test_an_answer_is_any_of_the_declared_successes() -> None:
    order = {
        "type": "object",
        "properties": {"id": {"readOnly": True}, "pin": {"writeOnly": True}},
        "required": ["id", "pin"],
    }
    found = answered(
        {"200": json_of({"$ref": "#/components/schemas/Order"}), "204": {}, "404": json_of({})}, Order=order
    )
    for value, fits in (({"id": 1}, True), (None, True), ({}, False), ("text", False)):
        assert (problems_of(found, value) == []) is fits, value


@pytest.mark.parametrize(
    "responses",
    [{}, {"404": json_of({})}, {"200": json_of({"$ref": "other.yaml#/a"})}, {"200": json_of({"type": "no such"})}],
)
def test_an_answer_that_is_not_declared_is_held_to_nothing(responses: dict[str, Any]) -> None:
    assert answered(responses) is None


def test_an_answer_that_may_be_anything_is_anything() -> None:
    found = answered({"200": json_of({"type": "integer"}), "201": {"content": {"text/csv": {}}}})
    assert problems_of(found, "a;b") == []


def test_answers_are_read_only_where_they_are_wanted() -> None:
    [made] = read(document({"/a": {"get": {"responses": {"200": json_of({})}}}})).operations
    assert made.output_schema is None
