"""Context variables in the configuration file: loaded whole or not at all, written back the same."""

from typing import Any

import pytest

from agentapp import tool_sync
from agentapp.configuration_file import ConfigurationRefused, dump, load
from agentapp.models import Agent, ContextVariable
from approvals.models import Event

pytestmark = pytest.mark.django_db

KNOWING = """
agents:
  knower:
    tools: [look_up_order, pay_out]
    variables:
      last-order: {tool: look_up_order, arguments: {number: 7}, freshness_seconds: 600}
      order: {tool: look_up_order}
"""


@pytest.fixture(autouse=True)
def _synced_tools(settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")


def rows() -> dict[str, tuple[str, dict[str, Any], int | None]]:
    found = ContextVariable.objects.select_related("tool")
    return {row.name: (row.tool.name, row.arguments, row.freshness_seconds) for row in found}


def test_a_file_makes_the_variables_of_an_agent_and_is_written_back_the_same() -> None:
    load(KNOWING, "test")
    assert rows() == {
        "last-order": ("look_up_order", {"number": 7}, 600),
        "order": ("look_up_order", {}, None),
    }
    assert load(KNOWING, "test") == []
    written = dump()
    assert load(written, "test") == []
    Agent.objects.get(name="knower").delete()
    load(written, "test")
    assert rows()["last-order"] == ("look_up_order", {"number": 7}, 600)


def test_a_key_that_is_left_out_stays_and_a_variable_that_is_left_out_is_deleted() -> None:
    load(KNOWING, "test")
    changes = load("agents: {knower: {variables: {last-order: {freshness_seconds: null}}}}", "test")
    assert [(change.name, change.event_type) for change in changes] == [
        ("knower: last-order", "configuration.changed"),
        ("knower: order", "configuration.deleted"),
    ]
    assert rows() == {"last-order": ("look_up_order", {"number": 7}, None)}
    assert load("agents: {knower: {description: Knows.}}", "test") != []
    assert list(rows()) == ["last-order"]


def test_a_file_may_make_the_tool_one_that_only_reads() -> None:
    text = KNOWING.replace("tool: look_up_order}", "tool: pay_out}")
    load("tools: {pay_out: {effect_class: read}}\n" + text, "test")
    assert rows()["order"] == ("pay_out", {}, None)


def test_a_variable_may_ask_an_agent_that_the_same_file_makes() -> None:
    load("agents: {knower: {subagents: [old], variables: {past: {tool: ask_old}}}, old: {}}", "test")
    assert rows() == {"past": ("ask_old", {}, None)}


def _variable(said: str, tools: str = "look_up_order, pay_out") -> str:
    return f"agents: {{a: {{tools: [{tools}], variables: {{v: {{{said}}}}}}}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_variable("tool: pay_out"), "agents.a.variables.v.tool: pay_out may change something; a variable is only"),
        (
            "tools: {look_up_order: {effect_class: reversible}}\n" + _variable("tool: look_up_order"),
            "agents.a.variables.v.tool: look_up_order may change something",
        ),
        (_variable("tool: look_up_order", "pay_out"), "v.tool: 'look_up_order' is not among the agent's tools."),
        (_variable("tool: nothing"), "agents.a.variables.v.tool: There is no tool 'nothing'."),
        (_variable(""), "agents.a.variables.v: A variable must name the tool that reads it."),
        (
            _variable("tool: look_up_order, freshness_seconds: -1"),
            "v.freshness_seconds: Ensure this value is",
        ),
        (_variable("tool: look_up_order, arguments: [1]"), "agents.a.variables.v.arguments: "),
        (_variable("tool: look_up_order, fresh: 1"), "agents.a.variables.v.fresh: "),
        (_variable("tool: look_up_order").replace("{v:", "{no name:"), "agents.a.variables.no name: Enter a valid"),
    ],
)
def test_what_is_wrong_with_a_variable_is_named_with_its_place(text: str, problem: str) -> None:
    before = dump(), Event.objects.count()
    with pytest.raises(ConfigurationRefused) as refused:
        load(text, "test")
    assert problem in str(refused.value)
    assert (dump(), Event.objects.count()) == before
