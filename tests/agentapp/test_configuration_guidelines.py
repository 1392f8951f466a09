"""Guidelines and overlaps in the configuration file: loaded whole or not at all, written back the same."""

from typing import Any

import pytest

from agentapp import tool_sync
from agentapp.configuration_file import ConfigurationRefused, dump, load
from agentapp.models import Agent, Guideline, GuidelineRelation, ToolRelation
from agentapp.toolset import snapshot_of
from approvals.models import Event

pytestmark = pytest.mark.django_db

GUIDED = """
tools:
  look_up_order: {overlaps: [pay_out]}
agents:
  guide:
    driver: guided
    tools: [look_up_order, pay_out]
    guidelines:
      order-first:
        condition: the customer speaks of an order
        tools: [look_up_order]
        entails: [polite]
        looked_at_again_after: [look_up_order]
      refund:
        condition: they want their money back
        action: Pay it out when it is due.
        criticality: high
        priority: 2
        tools: [pay_out]
        goes_before: [polite]
      polite: {action: Be polite., matcher: always}
"""


@pytest.fixture(autouse=True)
def _synced_tools(settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")


def test_a_file_makes_the_guidelines_of_an_agent_and_how_they_and_its_tools_relate() -> None:
    load(GUIDED, "test")
    guide = Agent.objects.get(name="guide")
    assert snapshot_of(guide)["guidance"]["relations"] == [
        {"kind": "entails", "source": "order-first", "target": "polite"},
        {"kind": "reevaluates", "source": "order-first", "target": "look_up_order"},
        {"kind": "priority", "source": "refund", "target": "polite"},
    ]
    assert snapshot_of(guide)["guidance"]["overlaps"] == [["look_up_order", "pay_out"]]
    assert load(dump(), "test") == []


def test_a_guideline_counts_its_versions_and_one_that_is_left_out_is_deleted() -> None:
    load(GUIDED, "test")
    changed = GUIDED.replace("Be polite.", "Be very polite.").replace("entails: [polite]", "entails: []")
    names = [(change.name, change.event_type) for change in load(changed, "test")]
    assert names == [
        ("guide/polite", "configuration.changed"),
        ("guide/order-first entails guide/polite", "configuration.deleted"),
    ]
    versions = {row.name: row.version for row in Guideline.objects.all()}
    assert versions == {"order-first": 1, "refund": 1, "polite": 2}
    load("agents: {guide: {guidelines: {polite: {action: Be polite., matcher: always}}}}", "test")
    assert (Guideline.objects.get().name, GuidelineRelation.objects.count()) == ("polite", 0)
    load("tools: {look_up_order: {overlaps: []}}", "test")
    assert not ToolRelation.objects.exists()


def _guideline(said: str) -> str:
    return f"agents: {{a: {{driver: guided, tools: [pay_out], guidelines: {{g: {{{said}}}}}}}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_guideline("condition: x, tools: [look_up_order]"), "guidelines.g.tools: 'look_up_order' is not among the"),
        (_guideline("action: x, entails: [h]"), "agents.a.guidelines.g.entails: 'h' is not another guideline of the"),
        (_guideline("action: x, goes_before: [g]"), "agents.a.guidelines.g.goes_before: 'g' is not another guideline"),
        (_guideline("action: x, matcher: python"), "guidelines.g: A guideline that code matches must name a function"),
        (_guideline("matcher: python, python: no.such"), "agents.a.guidelines.g.python: no.such cannot be imported"),
        (
            _guideline("matcher: python, python: nowhere"),
            "agents.a.guidelines.g.python: 'nowhere' is not a dotted path",
        ),
        (_guideline("matcher: model"), "guidelines.g: A model needs a condition, or an action, to tell whether"),
        (_guideline("criticality: extreme"), "agents.a.guidelines.g.criticality: 'extreme' is not one of low, medium"),
        ("agents: {a: {driver: guided, driver_settings: {planner: x.y}}}", "agents.a.driver_settings: x.y cannot be"),
        ("agents: {a: {driver: guided, driver_settings: {guidance: no}}}", "agents.a.driver_settings: guidance:"),
    ],
)
def test_what_is_wrong_with_a_guideline_is_named_with_its_place(text: str, problem: str) -> None:
    before = dump(), Event.objects.count()
    with pytest.raises(ConfigurationRefused) as refused:
        load(text, "test")
    assert problem in str(refused.value)
    assert (dump(), Event.objects.count()) == before
