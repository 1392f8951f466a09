"""The command that shows what an OpenAPI document offers."""

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "7"},
    "paths": {
        "/orders/{id}": {
            "get": {"operationId": "order", "parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}]},
            "post": {"requestBody": {"content": {"application/pdf": {}}}},
        }
    },
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


def test_it_lists_operations_and_says_what_was_left_out(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("read_openapi", file, prefix="shop_")
    said = capsys.readouterr()
    assert "Shop 7: 1 operations" in said.out
    assert "shop_order  read" in said.out
    assert "Left out: POST /orders/{id}." in said.err


def test_it_shows_the_arguments_of_one(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("read_openapi", file, schema="order")
    assert json.loads(capsys.readouterr().out)["required"] == ["id"]
    with pytest.raises(CommandError, match="'nothing'"):
        call_command("read_openapi", file, schema="nothing")


@pytest.mark.parametrize("location", ["/no/such/file.json", "http://127.0.0.1:1/", "file:///etc/passwd"])
def test_what_cannot_be_read_ends_with_words(location: str) -> None:
    with pytest.raises(CommandError):
        call_command("read_openapi", location)


def test_a_network_is_a_range_of_addresses() -> None:
    with pytest.raises(CommandError, match="range of addresses"):
        call_command("read_openapi", "http://10.0.0.1/", network=["10.0.0.1/99"])
