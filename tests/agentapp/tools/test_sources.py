"""The code behind a tool's row."""

import json
from collections.abc import Callable

import mcp_types as types
import pytest
from django.test import override_settings

from agentapp.models import Tool, ToolSource
from agentapp.tools import base, mcp_source, openapi, openapi_contract, python_source, sources
from tests.mcp_servers import context


def row(kind: str, name: str = "get_order") -> Tool:
    return Tool(name=name, source=ToolSource(name="shop", kind=kind, location="agentapp.demo.tools"))


@override_settings(TOOL_MODULES=["agentapp.demo.tools"])
def test_a_row_of_a_module_is_run_by_what_the_module_has() -> None:
    assert sources.implementation_of(row("python")) is python_source.get("get_order")


@pytest.mark.parametrize("kind", ["agent", "carrier_pigeon"])
def test_a_row_of_a_kind_that_is_not_run_here_has_no_code(kind: str) -> None:
    assert sources.implementation_of(row(kind)) is None


@override_settings(TOOL_MODULES=["agentapp.demo.tools"])
def test_a_row_that_its_module_no_longer_has_has_no_code() -> None:
    assert sources.implementation_of(row("python", "get_weather")) is None


def promised_by_a_document() -> base.Tool:
    paths = {"/orders": {"get": {"operationId": "orders", "responses": {}}}}
    said = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": paths}
    [operation] = openapi.read(json.dumps(said)).operations
    return openapi_contract.tool_of(operation, "orders", "read", "https://shop.test", ())


def promised_by_a_server() -> base.Tool:
    listed = types.Tool(name="orders", input_schema={"type": "object"})
    source = ToolSource(name="shop", kind="mcp", location="https://shop.test/mcp")
    [tool] = mcp_source.offered(source, (listed,), {}, set()).tools
    return tool


@pytest.mark.parametrize("promised", [promised_by_a_document, promised_by_a_server])
def test_what_a_source_promises_is_not_called_itself(promised: Callable[[], base.Tool]) -> None:
    with pytest.raises(sources.ContractCalled, match="made of the tool's row"):
        promised().run({}, context())
