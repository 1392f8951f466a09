"""The life of a rule in a real browser: accessible to everybody, with and without JavaScript."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from agentapp.messages import ToolCall
from agentapp.proposals import Proposal
from approvals import configuration, rule_terms, rule_versions
from approvals.models import Rule, RuleVersion
from tests.agentapp.run_builder import RunBuilder, make_tool
from tests.e2e.looks import look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def rule(ada: User) -> Rule:
    """A rule with two versions and a draft, and calls it applied to."""
    tool = make_tool("pay", "irreversible", input_schema={"type": "object", "properties": {"amount": {}}})
    rule = Rule(name="pay-large", verdict="ask", tool="pay", condition="args.amount > 500.0", risk="high")
    rule_versions.load(rule, "system (load_config shop.yaml)", {}, "Loaded from a configuration file.")
    run = RunBuilder(ada)
    for amount in (40, 140, 240, 900):
        text = f'{{"amount":{amount}}}'
        ruling: dict[str, Any] = {"verdict": "ask" if amount > 500 else "allow", "reason": "As it was."}
        call = ToolCall(f"c{amount}", "pay", text)
        run.step("", Proposal(call, tool, {"amount": amount}, text, ruling, asks=amount > 500, allowed_by="rule:pay"))
    rule.condition = "args.amount > 200.0"
    rule_versions.load(rule, "system (load_config shop.yaml)", {}, "Loaded from a configuration file.")
    allows = Rule(name="small", verdict="allow", tool="pay", condition="args.amount <= 50.0")
    configuration.save(allows, "test")
    terms = {**rule_terms.terms_of(rule), "condition": "args.amount > 100.0", "description": "Large payments. " * 12}
    kept = rule_versions.keep_draft(rule, terms, ada, "test")
    assert isinstance(kept, RuleVersion)
    return rule


def test_the_page_of_a_rules_versions_is_accessible_in_each_of_its_states(
    browse: Callable[..., Page], complaints: list[str], rule: Rule, ada: User
) -> None:
    page = browse(ada, reverse("admin:rule_versions", args=[rule.pk]))
    wrong: dict[str, list[str]] = {}
    states = (
        ("drafted", ""),
        ("simulated", "Simulate"),
        ("watching", "Start watching"),
        ("changing", "Change the draft"),
    )
    for state, press in states:
        if state == "changing":
            page.get_by_role("link", name=press).click()
            page.get_by_text("This is the draft.").wait_for()
        elif press:
            page.get_by_role("button", name=press, exact=True).click()
            page.locator(".messagelist").wait_for()
        for width in (1440, 390, 320):
            page.set_viewport_size({"width": width, "height": 900})
            look(page, state, wrong, full_page=True)
    assert wrong == {}
    assert complaints == []


def test_without_script_a_version_is_brought_back(browse: Callable[..., Page], rule: Rule, ada: User) -> None:
    page = browse(ada, reverse("admin:rule_versions", args=[rule.pk]), java_script_enabled=False)
    page.get_by_role("button", name="Discard the draft").click()
    page.get_by_role("button", name="Draft the terms of version 1 and simulate them").click()
    page.get_by_text("was made and simulated").wait_for()
    page.get_by_label("Why:").fill("The small ones are too many.")
    page.get_by_role("button", name="Activate it").click()
    page.get_by_text("pay-large is in force as drafted.").wait_for()
    rule.refresh_from_db()
    assert (rule.version, rule.condition) == (3, "args.amount > 500.0")
    page.get_by_label("From").select_option("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#content-main")).to_contain_text("args.amount > 200.0")
