"""Reading agents and tools."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.models import Agent, Route, Tool


@pytest.fixture
def reading(client_of: Any, sam: User, support: Agent) -> Any:
    return client_of(sam, "configuration:read")


def test_an_agent_is_listed_with_its_routes_and_tools(reading: Any, support: Agent) -> None:
    Agent.objects.filter(pk=support.pk).update(instructions="Never tell.", max_cost="1.5")
    [agent] = reading.get("/agents").data["items"]
    assert (agent["name"], agent["tools"], agent["max_cost"]) == ("support", ["refund"], "1.500000")
    assert agent["routes"] == [{"name": "refunds", "description": "Money back.", "tools": ["refund"]}]
    assert "Never tell." not in str(agent)


def test_an_agent_that_cannot_be_started_is_not_listed(reading: Any) -> None:
    Agent.objects.update(enabled=False)
    assert reading.get("/agents").data == {"items": [], "next": None}


def test_a_tool_is_listed_with_its_contract_and_its_safety(reading: Any, refund: Tool) -> None:
    Tool.objects.update(enabled=False, missing_since=timezone.now())
    refund.starters.add(Group.objects.create(name="Payers"))
    [tool] = reading.get("/tools").data["items"]
    assert tool["input_schema"] == refund.input_schema
    assert (tool["effect_class"], tool["consequential"]) == ("irreversible", True)
    assert (tool["enabled"], tool["missing"], tool["source"]) == (False, True, "shop")
    assert (tool["locked_fields"], tool["secret_fields"]) == (["order"], ["account"])
    assert tool["starters"] == ["Payers"]


@pytest.mark.parametrize("path", ["/agents", "/tools"])
def test_who_neither_starts_nor_configures_sees_no_configuration(
    client_of: Any, otto: User, support: Agent, path: str
) -> None:
    refused = client_of(otto, "configuration:read").get(path)
    assert (refused.status, refused.code) == (403, "forbidden")


def test_pages_follow_each_other_by_name(reading: Any, refund: Tool) -> None:
    for name in ("zebra", "apple", "mango"):
        Tool.objects.create(source=refund.source, name=name, version="v1")
    first = reading.get("/tools", limit=2).data
    second = reading.get("/tools", limit=2, cursor=first["next"]).data
    assert [tool["name"] for tool in first["items"] + second["items"]] == ["apple", "mango", "refund", "zebra"]
    assert second["next"] is None


@pytest.mark.parametrize("path", ["/agents", "/tools"])
def test_a_longer_list_costs_no_more_statements(
    reading: Any, refund: Tool, path: str, django_assert_max_num_queries: Any
) -> None:
    reading.get(path)
    with django_assert_max_num_queries(7) as few:
        reading.get(path)
    for number in range(5):
        tool = Tool.objects.create(source=refund.source, name=f"tool-{number}", version="v1")
        agent = Agent.objects.create(name=f"agent-{number}")
        agent.tools.set([tool, refund])
        Route.objects.create(agent=agent, name="main").tools.set([tool])
    with CaptureQueriesContext(few.connection) as many:
        assert len(reading.get(path).data["items"]) == 6
    assert len(many) == len(few)
