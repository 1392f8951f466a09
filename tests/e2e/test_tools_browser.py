"""Tools, trying one, and the history of changes, in a browser: by keys, at every size, under the policy."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import breakers
from agentapp.breakers import Thing
from agentapp.models import Route, Run, Tool
from approvals import configuration, ledger
from approvals.models import Rule
from tests import clerk_tools
from tests.clerk_tools import EFFECTS
from tests.conftest import Clerk, call, calls, says
from tests.e2e.conftest import rested
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.fixture
def known(clerk: Clerk, ada: User) -> Clerk:
    """Tools with calls, rules, versions and an open breaker; a rule that has since become stricter."""
    rule = Rule.objects.create(
        name="small-payments", tool="pay", verdict="allow", description="Small sums run by themselves."
    )
    for amount in (3, 400):
        clerk.run(calls(call("l", "look_up", what="x"), call("p", "pay", account="ana", amount=amount)), says("done"))
    actor = ledger.actor_of(ada, "admin")
    rule.condition, rule.order = "args.amount < 100.0", 10
    configuration.save(rule, actor)
    Rule.objects.create(name="large-payments", tool="pay", verdict="deny", condition="args.amount > 900.0")
    tool = Tool.objects.get(name="pay")
    tool.version, tool.description, tool.owner = "2" * 64, "Pay somebody, once.\n" + "It is final. " * 20, "payments"
    configuration.save(tool, actor)
    Route.objects.create(agent=clerk.agent, name="refunds").tools.add(tool)
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(Thing("tool", "send"), "The line is dead.")
    Tool.objects.filter(name="hang").update(missing_since=timezone.now())
    EFFECTS.clear()
    return clerk


PATHS = {
    "tools": "/tools/", "tools-none": "/tools/?q=nothing", "tool": "/tools/pay/",
    "tool-rules": "/tools/pay/?part=rules",
    "tool-calls": "/tools/pay/?part=calls", "tool-versions": "/tools/pay/?part=versions",
    "tool-through": "/tools/pay/through/", "tool-broken": "/tools/send/", "try": "/tools/pay/try/",
    "changes": "/changes/", "what-if": "/changes/what-if/?since=7d", "what-if-begin": "/changes/what-if/",
}  # fmt: skip


@pytest.mark.parametrize("size", [(1440, 900), (800, 900), (390, 844)], ids=["1440", "800", "390"])
def test_every_page_about_tools_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], ada: User, known: Clerk, size: tuple[int, int]
) -> None:
    page = browse(ada, "/tools/", *size)
    wrong: dict[str, list[str]] = {}
    for name, path in PATHS.items():
        page.goto(path)
        if name == "changes":
            page.locator(".change summary").first.click()
            expect(page.locator(".change-fields").first).to_be_visible()
        if name == "try":
            page.get_by_label("Account").fill("northwind-77")
            page.get_by_label("Amount").fill("12.5")
            page.get_by_role("button", name="Dry run").click()
            expect(page.locator("#verdict")).to_contain_text("Nothing was sent.")
        look(page, name, wrong)
    assert wrong == {}
    assert complaints == []


def test_a_tool_is_found_opened_and_tried_by_keys_alone(
    browse: Browse, complaints: list[str], sam: User, known: Clerk
) -> None:
    page = browse(sam, "/runs/")
    rested(page)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url("/tools/")
    rested(page)
    page.keyboard.press("/")
    page.keyboard.type("pay_once")
    page.keyboard.press("Enter")
    expect(page.locator("#tools tbody tr")).to_have_count(1)
    page.goto("/tools/pay/")
    page.get_by_role("link", name="Try it").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Account").fill("northwind-77")
    rested(page).get_by_label("Amount").focus()
    page.keyboard.type("12.5")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#verdict")).to_be_focused()
    expect(page.locator("#verdict")).to_contain_text("It would run")
    expect(page.locator("#trial-said")).to_contain_text("It would run")
    expect(page.get_by_label("Account")).to_have_value("northwind-77")
    assert EFFECTS == []
    assert Run.objects.filter(is_trial=True).count() == 0
    assert complaints == []


def test_for_real_it_leads_to_the_run_that_proposes_the_call(
    browse: Browse, complaints: list[str], sam: User, known: Clerk
) -> None:
    Tool.objects.filter(name="pay").update(version=clerk_tools.pay.version)  # the version that runs here
    page = browse(sam, "/tools/pay/try/")
    page.get_by_label("Account").fill("northwind-77")
    page.get_by_label("Amount").fill("500")
    page.get_by_label("Why, for a real run").fill("The bakery asked.")
    page.get_by_role("button", name="Run for real").click()
    run = Run.objects.get(is_trial=True)
    expect(page).to_have_url(f"/runs/{run.pk}/")
    assert known.drive(run).state == "waiting"
    assert EFFECTS == []
    assert complaints == []


def test_on_a_phone_a_tool_is_read_and_rehearsed(browse: Browse, sam: User, known: Clerk) -> None:
    page = browse(sam, "/tools/pay/try/", 390, 844)
    expect(page.get_by_role("button", name="Dry run")).to_be_visible()
    expect(page.get_by_role("button", name="Run for real")).to_be_hidden()


def test_a_change_opens_in_place_and_calls_go_through_the_rules_in_place(
    browse: Browse, complaints: list[str], ada: User, known: Clerk
) -> None:
    page = browse(ada, "/changes/?kind=rule")
    page.locator(".change summary").first.click()
    expect(page.locator(".change-fields").first).to_contain_text("args.amount < 100.0")
    expect(page).to_have_url("/changes/?kind=rule")
    page.goto("/tools/pay/?part=rules")
    page.get_by_role("link", name="Look", exact=True).click()
    expect(page.locator("#through")).to_contain_text("would be ask today")
    expect(page).to_have_url("/tools/pay/?part=rules")
    assert complaints == []


def test_without_script_everything_works_on_pages_of_its_own(
    browse: Browse, sam: User, ada: User, known: Clerk
) -> None:
    page = browse(sam, "/tools/pay/try/", java_script_enabled=False)
    page.get_by_label("Account").fill("northwind-77")
    page.get_by_label("Amount").fill("12.5")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#verdict")).to_contain_text("Nothing was sent.")
    page = browse(ada, "/changes/", java_script_enabled=False)
    page.locator(".change summary").first.click()
    page.get_by_role("link", name="Show what was changed").first.click()
    expect(page.locator(".change-fields")).to_be_visible()
