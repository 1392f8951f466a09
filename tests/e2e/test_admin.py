"""The admin in a real browser: usable by everybody, and nothing blocked by the policy."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page

from agentapp import tool_sync
from agentapp.models import Agent, ApiToken, Route, Tool
from approvals import configuration
from approvals.models import Event, Rule
from tests.admin_pages import address
from tests.e2e.conftest import violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def configured(ada: User, settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    agent = Agent(name="support", description="Answers customers.", model="anthropic:claude-sonnet-5")
    configuration.save(agent, "test", {"tools": list(Tool.objects.all())})
    configuration.save(Route(agent=agent, name="refunds"), "test")
    rule = Rule(name="pay-large", verdict="ask", tool="pay_out", condition="args.amount > 100.0", risk="high")
    configuration.save(rule, "test")


def pages() -> dict[str, str]:
    return {
        "index": "/admin/",
        "agent": address(Agent, "change", Agent.objects.get().pk),
        "tools": address(Tool, "changelist"),
        "tool": address(Tool, "change", Tool.objects.get(name="pay_out").pk),
        "rules": address(Rule, "changelist"),
        "rule": address(Rule, "change", Rule.objects.get().pk),
        "token": address(ApiToken, "add"),
        "events": address(Event, "changelist"),
        "event": address(Event, "change", Event.objects.first().pk),  # type: ignore[union-attr]
    }


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_is_accessible_and_keeps_the_policy(
    browse: Callable[..., Page],
    complaints: list[str],
    configured: None,
    ada: User,
    width: int,
    color_scheme: str,
) -> None:
    page = browse(ada, "/admin/", width=width, color_scheme=color_scheme)
    for name, path in pages().items():
        page.goto(path)
        assert violations(page) == [], name
    assert complaints == []


def test_a_rule_is_made_with_mouse_and_keyboard(
    browse: Callable[..., Page], complaints: list[str], configured: None, ada: User
) -> None:
    page = browse(ada, address(Rule, "add"))
    page.get_by_label("Name:").fill("pay-at-night")
    page.get_by_label("Tool:").select_option("pay_out")
    page.get_by_label("Condition:").fill("args.amount >")
    page.get_by_label("Verdict:").select_option("deny")
    page.get_by_role("button", name="Save", exact=True).click()
    assert "The condition does not compile" in page.locator(".errorlist").first.inner_text()
    page.get_by_label("Condition:").fill("args.amount > 5.0")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("was added successfully").wait_for()
    assert Rule.objects.get(name="pay-at-night").condition == "args.amount > 5.0"
    assert complaints == []
