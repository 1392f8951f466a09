"""Thresholds, environments and questions about other calls on a rule's page and in the configuration file."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentapp import tool_sync
from agentapp.admin import rule_parts
from agentapp.configuration_file import ConfigurationRefused, dump, load
from agentapp.models import Agent, Route
from approvals.models import Rule
from approvals.rule_words import in_words
from tests.admin_pages import address, errors_of, save, submit
from tests.agentapp.admin.test_rules import rule

pytestmark = pytest.mark.django_db

TWO_OR_ONE = '[{"approve": 2, "group": "Payments"}, {"approve": 1, "deny": 2, "group": "Managers"}]'


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    Route.objects.create(agent=Agent.objects.create(name="support"), name="refunds")
    client.force_login(ada)
    return client


@pytest.fixture
def groups(staff: Client) -> list[int]:
    return [Group.objects.create(name=name).pk for name in ("Payments", "Managers")]


def test_thresholds_are_stored_and_said_in_words(staff: Client, groups: list[int]) -> None:
    save(staff, address(Rule, "add"), **rule(groups=groups, thresholds=TWO_OR_ONE, environment="production"))
    stored = Rule.objects.get()
    assert stored.thresholds[1] == {"approve": 1, "deny": 2, "group": "Managers"}
    words = in_words(stored, ["Payments", "Managers"])
    assert "in production" in words
    assert "waits for two of Payments, or one of Managers (two rejections end it), but not the person" in words


@pytest.mark.parametrize("typed", ["", "[]", "null"])
def test_nothing_typed_is_the_simple_form(staff: Client, groups: list[int], typed: str) -> None:
    save(staff, address(Rule, "add"), **rule(groups=groups, thresholds=typed))
    stored = Rule.objects.get()
    assert (stored.thresholds, stored.approvals_needed) == ([], 2)
    assert "2 different people" in in_words(stored)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ('[{"approve": 0}]', "Threshold 1: approve must be a number of people"),
        ('[{"approve": 1, "group": "Legal"}]', "is not among the rule"),
        ('[{"approve": 1, "condition": "agent.name"}]', "Unknown name"),
        ("two of Payments", "The JSON is malformed"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused_beside_their_field(
    staff: Client, groups: list[int], typed: str, why: str
) -> None:
    response = submit(staff, address(Rule, "add"), **rule(groups=groups, thresholds=typed))
    assert why in errors_of(response)
    assert not Rule.objects.exists()


def test_a_condition_about_other_calls_is_tried_as_if_there_were_none(staff: Client) -> None:
    asked = Rule(
        name="x", tool="pay_out", verdict="ask", condition="history.count('pay_out', '1h') < 1 && now.hour < 24"
    )
    said = rule_parts.meaning(asked, [])
    assert said["holds"] is True
    asked.condition = "history.count('pay_out') < 1"
    assert "A condition can only ask history" in rule_parts.meaning(asked, [])["problem"]


def test_the_file_carries_thresholds_and_environments(staff: Client, groups: list[int]) -> None:
    says = "verdict: ask, tool: pay_out, groups: [Payments, Managers], environment: staging"
    text = f"rules: {{two: {{{says}, thresholds: {TWO_OR_ONE}}}}}"
    load(text, "test")
    stored = Rule.objects.get()
    assert (stored.environment, stored.thresholds[0]) == ("staging", {"approve": 2, "group": "Payments"})
    assert load(dump(), "test") == []
    with pytest.raises(ConfigurationRefused, match=r"rules\.two\.thresholds: Threshold 2: 'Managers' is not among"):
        load("rules: {two: {groups: [Payments]}}", "test")
    with pytest.raises(ConfigurationRefused, match=r"rules\.two\.thresholds: Threshold 1: approve must be"):
        load("rules: {two: {thresholds: [{approve: 0}]}}", "test")
