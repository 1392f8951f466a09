"""What deserves a second look about a tool, by its name, its parameters and what people set."""

from typing import Any

import pytest

from agentapp import doubts
from agentapp.demo import chat_tools, tools
from agentapp.models import Tool, ToolSource
from agentapp.tools import base, planning

TEXT = {"type": "string"}


def about(name: str, parameters: dict[str, Any], **more: Any) -> list[str]:
    values = {"owner": "Ada", "effect_class": "read", **more}
    source = ToolSource(name="shop", kind=values.pop("kind", "python"), location=values.pop("location", "shop.tools"))
    return doubts.about(Tool(name=name, source=source, input_schema={"properties": parameters}, **values))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("execute_shell", {}),
        ("runSql", {"text": TEXT, "why": TEXT}),
        ("look", {"sql": TEXT, "limit": {"type": "integer"}}),
        ("look", {"raw_sql": TEXT}),
        ("look", {"query": {"type": ["string", "null"]}}),
        ("fetch", {"url": {"type": "string", "format": "uri"}}),
    ],
)
def test_a_read_that_does_whatever_it_is_told_is_worth_a_second_look(name: str, parameters: dict[str, Any]) -> None:
    assert about(name, parameters) == [doubts.BROAD]
    assert about(name, parameters, effect_class="irreversible") == []
    assert about(name, parameters, approval_mode="always") == []


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("get_order", {"order_id": TEXT}),
        ("executive_summary", {}),
        ("find_shop", {"postal_code": TEXT}),
        ("find_coupon", {"code": {"type": "string", "pattern": "^[A-Z]{6}$"}}),
        ("find_orders", {"query": TEXT, "customer": TEXT}),
    ],
)
def test_a_read_with_one_purpose_is_not(name: str, parameters: dict[str, Any]) -> None:
    assert about(name, parameters) == []


def test_nobody_knows_whom_to_ask_about_a_tool_without_an_owner_unless_it_is_one_of_ours() -> None:
    assert about("get_order", {}, owner="") == [doubts.UNOWNED]
    assert about("ask_refunds", {}, owner="", kind="agent") == []
    assert about(planning.NAME, {}, owner="") == [doubts.UNOWNED]
    assert about(planning.NAME, {}, owner="", location=planning.__name__) == []


def test_the_tools_of_the_demo_leave_no_doubts() -> None:
    offered = [each for module in (tools, chat_tools) for each in vars(module).values() if isinstance(each, base.Tool)]
    assert len(offered) > 15
    for each in offered:
        effect = each.effect or "irreversible"
        assert about(each.name, each.input_schema["properties"], owner=each.owner, effect_class=effect) == []
