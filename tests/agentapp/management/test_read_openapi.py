"""The command that shows what an OpenAPI document offers."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.service import Service

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


@pytest.mark.parametrize(
    ("networks", "more"),
    [
        pytest.param(["127.0.0.0/24"], {}, id="of the installation"),
        pytest.param([], {"network": ["127.0.0.0/24"]}, id="of the command"),
    ],
)
def test_an_inner_network_is_asked_that_somebody_has_named(
    settings: Any, capsys: pytest.CaptureFixture[str], networks: list[str], more: dict[str, Any]
) -> None:
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network(network) for network in networks]
    service = Service(DOCUMENT)
    try:
        service.answers = [(200, {}, json.dumps(DOCUMENT).encode())]
        call_command("read_openapi", f"{service.url}/openapi.json", **more)
    finally:
        service.close()
    assert "Shop 7: 1 operations" in capsys.readouterr().out
