"""Agents as tools: rows that follow their agents, and keep what an admin has set."""

from typing import Any

import pytest
import yaml
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from agentapp import agent_tools, tool_sync
from agentapp.configuration_file import ConfigurationRefused, dump, load
from agentapp.models import Agent, Route, Tool, ToolSource
from approvals import ledger
from tests.admin_pages import address, configuration_events, errors_of, save, submit
from tests.races import Meanwhile

pytestmark = pytest.mark.django_db

FILE = """
tools:
  ask_refunds: {effect_class: reversible, owner: Rita}
agents:
  support:
    subagents: [refunds]
    routes:
      money: {tools: [ask_refunds]}
  refunds:
    description: Knows about refunds.
    routes:
      urgent: {}
"""


def asking() -> Tool:
    return Tool.objects.select_related("source").get(name="ask_refunds")


def two_agents() -> tuple[Agent, Agent]:
    return (
        Agent.objects.create(name="support", subagents=["refunds"]),
        Agent.objects.create(name="refunds", description="Knows about refunds."),
    )


# --- Rows ----------------------------------------------------------------------------------------


def test_only_an_agent_that_another_lists_has_a_tool() -> None:
    two_agents()
    agent_tools.sync("test")
    assert list(Tool.objects.values_list("name", flat=True)) == ["ask_refunds"]
    row = asking()
    assert agent_tools.asks_agent(row)
    assert (row.effect_class, row.trust, row.description) == ("read", "untrusted_content", "Knows about refunds.")


def test_an_asterisk_lists_every_agent_and_what_is_denied_has_no_tool() -> None:
    Agent.objects.create(name="support", subagents=["*"], denied_subagents=["legal-desk"])
    for name in ("refunds", "legal-desk", "order-desk"):
        Agent.objects.create(name=name)
    agent_tools.sync("test")
    assert list(Tool.objects.values_list("name", flat=True)) == ["ask_order_desk", "ask_refunds"]


def test_a_second_sync_changes_nothing() -> None:
    two_agents()
    assert len(agent_tools.sync("test")) == 2
    assert agent_tools.sync("test") == []


def test_a_changed_agent_is_a_new_version_and_keeps_what_an_admin_set() -> None:
    _, refunds = two_agents()
    agent_tools.sync("test")
    Tool.objects.update(effect_class="compensable", owner="Rita")
    before = asking().version
    Route.objects.create(agent=refunds, name="urgent")
    agent_tools.sync("test")
    row = asking()
    assert row.version != before
    assert row.input_schema["properties"]["route"]["enum"] == ["urgent"]
    assert (row.effect_class, row.owner) == ("compensable", "Rita")


def test_the_tool_of_an_agent_that_nobody_lists_any_more_is_gone_and_comes_back_as_it_was() -> None:
    support, _ = two_agents()
    agent_tools.sync("test")
    Tool.objects.update(owner="Rita")
    Agent.objects.filter(pk=support.pk).update(subagents=[])
    agent_tools.sync("test")
    assert asking().missing_since is not None
    Agent.objects.filter(pk=support.pk).update(subagents=["*"])
    agent_tools.sync("test")
    assert (asking().missing_since, asking().owner) == (None, "Rita")


def test_a_tool_of_the_same_name_is_refused_and_both_are_named() -> None:
    two_agents()
    source = ToolSource.objects.create(name="ours", kind="python", location="ours")
    Tool.objects.create(name="ask_refunds", source=source, version="1")
    with pytest.raises(agent_tools.NameTaken, match=r"a tool 'ask_refunds' already.*'refunds'"):
        agent_tools.sync("test")
    assert Tool.objects.get().source == source


def test_two_agents_whose_tools_would_have_one_name_are_refused() -> None:
    Agent.objects.create(name="support", subagents=["*"])
    Agent.objects.create(name="order-desk")
    Agent.objects.create(name="order_desk")
    with pytest.raises(agent_tools.NameTaken, match="'order-desk' and 'order_desk'"):
        agent_tools.sync("test")


def test_a_tool_from_code_cannot_take_the_name_of_one_that_asks_an_agent(settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    Agent.objects.create(name="support", subagents=["*"])
    Agent.objects.create(name="x")
    agent_tools.sync("test")
    Tool.objects.update(name="pay_out")
    with pytest.raises(ImproperlyConfigured, match="'pay_out' is the name of the tool that asks an agent"):
        tool_sync.sync("test")


def test_sync_tools_writes_the_tools_that_ask_agents_and_never_takes_them_for_missing(settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    two_agents()
    tool_sync.sync("test")
    assert asking().missing_since is None


@pytest.mark.postgresql  # SQLite lets one writer in at a time
@pytest.mark.django_db(transaction=True)
def test_what_an_admin_sets_while_the_tools_are_written_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    two_agents()
    agent_tools.sync("test")
    meanwhile = Meanwhile(lambda: Tool.objects.update(approval_mode="always"), agent_tools._write)
    monkeypatch.setattr(agent_tools, "_write", meanwhile)
    agent_tools.sync("test")
    meanwhile.done()
    assert asking().approval_mode == "always"


# --- The file ------------------------------------------------------------------------------------


def test_a_file_makes_agents_and_what_it_says_about_the_tools_that_ask_them() -> None:
    load(FILE, "test")
    assert (asking().effect_class, asking().owner) == ("reversible", "Rita")
    assert asking().input_schema["properties"]["route"]["enum"] == ["urgent"]
    assert [tool.name for tool in Route.objects.get(name="money").tools.all()] == ["ask_refunds"]
    assert load(FILE, "test") == []


def test_a_dump_makes_the_same_agents_in_an_empty_database() -> None:
    load(FILE, "test")
    text = dump()
    assert load(text, "test") == []
    Route.objects.all().delete()
    Agent.objects.all().delete()
    Tool.objects.all().delete()
    load(text, "test")
    assert dump() == text


def test_a_dry_run_of_such_a_file_changes_nothing() -> None:
    assert load(FILE, "test", dry_run=True)
    assert not Agent.objects.exists()
    assert not Tool.objects.exists()


def test_a_file_cannot_give_an_agent_a_name_whose_tool_there_is_already() -> None:
    source = ToolSource.objects.create(name="ours", kind="python", location="ours")
    Tool.objects.create(name="ask_refunds", source=source, version="1")
    with pytest.raises(ConfigurationRefused, match="agents: There is a tool 'ask_refunds' already"):
        load(FILE, "test")
    assert not Agent.objects.exists()


def test_a_file_names_agents_to_be_asked_as_subagents_and_not_as_tools() -> None:
    data = yaml.safe_load(FILE)
    data["agents"]["support"]["tools"] = ["ask_refunds"]
    with pytest.raises(ConfigurationRefused, match=r"agents\.support\.tools.*name the agent in subagents"):
        load(yaml.dump(data), "test")


def test_a_route_of_a_file_may_name_only_the_agents_that_its_agent_may_ask() -> None:
    data = yaml.safe_load(FILE)
    data["agents"]["refunds"]["routes"]["urgent"] = {"tools": ["ask_refunds"]}
    with pytest.raises(ConfigurationRefused, match=r"refunds\.routes\.urgent\.tools: 'ask_refunds' is not among"):
        load(yaml.dump(data), "test")


# --- The admin -----------------------------------------------------------------------------------


@pytest.fixture
def staff(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def test_saving_an_agent_that_may_ask_another_makes_its_tool(staff: Client) -> None:
    Agent.objects.create(name="refunds")
    seen = ledger.height()
    save(staff, address(Agent, "add"), name="support", model_settings="{}", subagents='["refunds"]')
    assert asking().missing_since is None
    assert [event.data["name"] for event in configuration_events(after=seen)] == ["support", "agents", "ask_refunds"]


def test_a_route_that_is_added_to_an_agent_is_in_the_schema_of_its_tool(staff: Client) -> None:
    _, refunds = two_agents()
    agent_tools.sync("test")
    save(staff, address(Route, "add"), agent=str(refunds.pk), name="urgent")
    assert asking().input_schema["properties"]["route"]["enum"] == ["urgent"]


def test_an_agent_that_is_deleted_can_be_asked_no_more(staff: Client) -> None:
    Agent.objects.create(name="support", subagents=["*"])
    refunds = Agent.objects.create(name="refunds")
    agent_tools.sync("test")
    staff.post(address(Agent, "delete", refunds.pk), {"post": "yes"})
    assert asking().missing_since is not None


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ('["nobody"]', "There is no agent &#x27;nobody&#x27;"),
        ('{"refunds": 1}', "Give a list of agent names"),
        ("[1]", "Give a list"),
    ],
)
def test_a_list_of_agents_names_agents_that_there_are(staff: Client, listed: str, message: str) -> None:
    Agent.objects.create(name="refunds")
    page = submit(staff, address(Agent, "add"), name="support", model_settings="{}", subagents=listed)
    assert message.replace("&#x27;", "'") in errors_of(page).replace("&#x27;", "'")


def test_an_agent_whose_tool_would_take_a_name_is_refused_in_the_admin(staff: Client) -> None:
    source = ToolSource.objects.create(name="ours", kind="python", location="ours")
    Tool.objects.create(name="ask_refunds", source=source, version="1")
    Agent.objects.create(name="refunds")
    page = submit(staff, address(Agent, "add"), name="support", model_settings="{}", subagents='["refunds"]')
    assert "ask_refunds" in errors_of(page)
    assert not Agent.objects.filter(name="support").exists()
