"""The code behind a tool's row."""

import pytest
from django.test import override_settings

from agentapp.models import Tool, ToolSource
from agentapp.tools import python_source, sources


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
