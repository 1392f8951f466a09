"""A document's text is JSON, and its size is checked before it is processed."""

import subprocess
import sys
from typing import Any

import pytest

from agentapp.tools import openapi
from agentapp.tools.openapi import DocumentRefused, read
from agentapp.tools.openapi_schema import Allowance
from tests.agentapp.tools.test_openapi import document


def test_aliases_cannot_make_a_small_text_a_huge_document() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentRefused, match="aliases"):
        read("openapi: 3.1.0\npaths: {}\n" + "\n".join(lines))


def yaml_of(schema: str) -> str:
    return f"openapi: 3.1.0\npaths: {{/a: {{get: {{parameters: [{{name: a, in: query, schema: {schema}}}]}}}}}}"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("[NO, on, y, true, null]", ["NO", "on", "y", True, None]),
        ("[10:30, 010, 0x1F, 1_0]", ["10:30", "010", "0x1F", "1_0"]),
        ("[1, -2, 1.5, 1e3]", [1, -2, 1.5, 1000.0]), ("[.nan, .inf]", [".nan", ".inf"]),
    ],
)  # fmt: skip
def test_yaml_says_what_the_same_text_says_in_openapi(said: str, meant: list[Any]) -> None:
    [made] = read(yaml_of(f"{{enum: {said}}}")).operations
    found = made.input_schema["properties"]["a"]["enum"]
    assert [(type(one), one) for one in found] == [(type(one), one) for one in meant]


def test_the_keys_of_yaml_are_texts() -> None:
    text = yaml_of("{properties: {1: {}, true: {}, NO: {}, null: {}}}")
    [made] = read(f"{text[:-1]}, 404: {{get: {{responses: {{200: {{description: x}}}}}}}}}}", answers=True).operations[
        :1
    ]
    assert set(made.input_schema["properties"]["a"]["properties"]) == {"1", "true", "NO", "null"}


@pytest.mark.parametrize("value", ["!!timestamp 2024-01-01", "!!binary aGk=", "!!set {a}", "1e999", "!!float .nan"])
def test_what_json_cannot_say_is_refused(value: str) -> None:
    with pytest.raises(DocumentRefused):
        read(yaml_of(f"{{default: {value}}}"))


def test_yaml_that_is_nested_without_end_is_refused() -> None:
    # In a process of its own: a failure would end it.
    asked = "from agentapp.tools.openapi_text import parsed; parsed('a: ' + '[' * 1_000_000)"
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert "DocumentRefused: The document is nested too deeply." in ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a, *a, *a, *a]",
        "a: &a " + "x" * 1000 + "\nb: [" + "*a, " * 100_000 + "]",
        "a0: &a0 {x: 1, y: 2}\n"
        + "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)),
    ],
    ids=["itself", "texts", "merged"],
)
def test_no_alias_makes_a_document_huge(text: str) -> None:
    with pytest.raises(DocumentRefused, match="aliases"):
        read(f"openapi: 3.1.0\npaths: {{}}\n{text}")


def test_a_date_in_yaml_stays_text() -> None:
    text = "openapi: 3.1.0\ninfo: {title: A, version: 2024-01-01}\npaths: {/a: {get: {summary: 2024-01-01}}}"
    found = read(text)
    assert (found.version, found.operations[0].summary) == ("2024-01-01", "2024-01-01")


def test_a_reference_cannot_make_a_small_document_a_huge_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {f"field{n}": {"type": "string"} for n in range(1000)}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}}
    paths = {f"/{n}": {"post": {"requestBody": body}} for n in range(5)}
    monkeypatch.setattr(openapi, "Allowance", lambda: Allowance(60_000))
    found = read(document(paths, components={"schemas": {"A": {"properties": fields}}}))
    assert [one.path for one in found.operations] == ["/0", "/1"]
    assert set(found.left_out.values()) == {"The document's schemas are too long in total."}


def test_what_no_model_could_read_is_left_out() -> None:
    said = {"parameters": [{"name": "a", "in": "query", "schema": {"enum": ["x" * 1000] * 1000}}]}
    found = read(document({"/a": {"get": said}, "/b": {"get": {}}}))
    assert [one.path for one in found.operations] == ["/b"]
    assert "too long" in found.left_out["GET /a"]


def test_a_document_has_as_many_operations_as_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "MAX_OPERATIONS", 2)
    with pytest.raises(DocumentRefused, match="more than 2 operations"):
        read(document({f"/{n}": {"get": {"operationId": "same"}} for n in range(3)}))
