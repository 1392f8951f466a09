"""The OpenAPI document and the page that shows it."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client
from pydantic import BaseModel

from agentapp import api, auth
from agentapp.api.errors import CODES


@pytest.fixture
def document(db: None) -> Any:
    response = Client().get("/api/v1/openapi.json")
    assert response.status_code == 200
    return json.loads(response.content)


def operations(document: Any) -> list[Any]:
    return [operation for methods in document["paths"].values() for operation in methods.values()]


def test_the_document_needs_no_token_and_no_browser(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "Countersign"
    assert all(path.startswith("/api/v1/") for path in document["paths"])


def test_whoever_asks_for_the_document_again_does_not_have_it_made_again(document: Any) -> None:
    made = api._document.cache_info().misses
    assert Client().get("/api/v1/openapi.json").json() == document
    assert api._document.cache_info().misses == made


def test_every_operation_says_which_scope_it_needs(document: Any) -> None:
    assert document["components"]["securitySchemes"]["Bearer"] == {"type": "http", "scheme": "bearer"}
    for operation in operations(document):
        [[scope]] = [scheme["Bearer"] for scheme in operation["security"]]
        assert scope in auth.SCOPES
        assert f"`{scope}`" in operation["description"]


def test_every_operation_has_a_name_a_summary_and_declared_failures(document: Any) -> None:
    found = operations(document)
    assert len({operation["operationId"] for operation in found}) == len(found)
    for operation in found:
        assert operation["summary"]
        assert {"400", "401", "403", "413", "422", "429", "500", "503"} <= set(operation["responses"])
        if "requestBody" in operation:
            assert "415" in operation["responses"]
        for status, response in operation["responses"].items():
            expected = "application/json" if int(status) < 400 else "application/problem+json"
            assert list(response["content"]) == [expected]


def test_every_reference_and_every_example_of_the_document_holds(document: Any) -> None:
    examples = 0
    for name, schema in document["components"]["schemas"].items():
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        for example in schema.get("examples", []):
            validator.validate(example)
            examples += 1
    assert examples >= 4


def schemas_below(schema: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in schema.__subclasses__():
        yield one
        yield from schemas_below(one)


def test_no_two_schemas_share_a_name_and_so_a_place_in_the_document() -> None:
    ours = {one for one in schemas_below(BaseModel) if one.__module__.startswith("agentapp.api.")}
    assert len(ours) > 50
    names = Counter(one.__name__ for one in ours)
    assert [name for name, count in names.items() if count > 1] == []


def test_forking_a_run_and_forking_a_conversation_have_bodies_of_their_own(document: Any) -> None:
    def names(path: str) -> set[str]:
        body = document["paths"][f"/api/v1/{path}/fork"]["post"]["requestBody"]
        refers = body["content"]["application/json"]["schema"]["$ref"]
        return set(document["components"]["schemas"][refers.rsplit("/", 1)[-1]]["properties"])

    assert {"step", "call", "args"} <= names("runs/{run_id}")
    assert names("conversations/{conversation_id}") == {"key", "upto"}


def test_bodies_refuse_what_they_do_not_declare(document: Any) -> None:
    bodies = [operation["requestBody"] for operation in operations(document) if "requestBody" in operation]
    assert len(bodies) == 17
    for body in bodies:
        schema = body["content"]["application/json"]["schema"]
        # An optional body has its schema in `allOf`, next to its default.
        [refers] = schema.get("allOf", [schema])
        name = refers["$ref"].rsplit("/", 1)[-1]
        assert document["components"]["schemas"][name]["additionalProperties"] is False


def test_the_page_is_for_people_who_are_signed_in(db: None, otto: User) -> None:
    client = Client()
    assert client.get("/api/v1/docs").status_code == 302
    client.force_login(otto)
    assert client.get("/api/v1/docs").status_code == 200


def test_the_page_needs_nothing_that_the_content_policy_forbids(otto: User) -> None:
    client = Client()
    client.force_login(otto)
    response = client.get("/api/v1/docs")
    page = response.content.decode()
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert "style=" not in page
    assert "onload" not in page
    assets = [part.split('"')[0] for part in page.split(f'"{settings.STATIC_URL}')[1:]]
    assert len(assets) >= 3
    assert all(finders.find(asset) for asset in assets)
    assert "https://" not in page


def test_the_page_about_the_api_names_every_operation_scope_and_code(document: Any) -> None:
    page = (settings.BASE_DIR / "docs" / "api.md").read_text()
    named = {f"{method.upper()} {path.replace('run_id', 'id')}" for path, methods in document["paths"].items()
             for method in methods}  # fmt: skip
    for kind in ("approval", "execution", "conversation"):
        named = {name.replace(f"{kind}_id", "id") for name in named}
    assert {name for name in named if f"`{name}`" not in page} == set()
    assert {scope for scope in auth.SCOPES if f"`{scope}`" not in page} == set()
    assert {code for code in CODES if f"`{code}`" not in page} == set()
