"""The admin in a real browser: accessible to everybody, and nothing blocked by the policy."""

import json
import re
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import auth, breakers, tool_sync
from agentapp.importing import pending
from agentapp.importing.planning import Given
from agentapp.models import (
    Agent,
    ApiToken,
    Breaker,
    KillSwitch,
    PendingImport,
    Preferences,
    Route,
    SourceHealth,
    Tool,
    ToolSource,
)  # fmt: skip
from approvals import configuration, ledger, rule_versions
from approvals.models import Channel, Event, Rule
from tests.admin_pages import address
from tests.agentapp.importing.test_planning import imported, shop
from tests.e2e.looks import look
from tests.service import document

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
    configuration.save(Channel(name="desk", kind="memory"), "test")
    Tool.objects.filter(name="send_letter").update(missing_since=timezone.now())
    server = ToolSource(name="files", kind="mcp", location="stdio:files", details={"title": "Files", "version": "1.0"})
    configuration.save(server, "test")
    SourceHealth.objects.create(
        source=server, ok=False, problem="It did not answer within 10 s.", failures=3, checked_at=timezone.now()
    )
    promise = {
        "description": "Write a file, anywhere.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}, "mode": {"type": "string"}}},
        "claims": {"destructive_hint": True},
    }
    configuration.save(
        Tool(
            source=server, name="write_file", description="Write a file.", version="1",
            input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
            claims={"title": "Write a file", "read_only_hint": False}, waiting_contract=promise,
        ),
        "test",
    )  # fmt: skip
    auth.issue_token(ada, "nightly import", ["runs:read"], "test")
    for _ in range(3):
        with ledger.transaction():
            breakers.failed(breakers.Thing("tool", "pay_out"), "timeout: no answer in 20 s")
    imported(shop(a="get", b="get", c="post"))
    unsent = {"requestBody": {"content": {"application/pdf": {}}}}
    tagged = {"tags": ["orders"], "deprecated": True, "summary": "Take an order away"}
    changed = shop(a="get", b=("get", {"description": "Longer."}), d=("delete", tagged), e=("post", unsent))
    pending.keep(Given(changed), ada)


def pages() -> dict[str, str]:
    found = {"index": "/admin/", "app": "/admin/agentapp/"}
    found["reset"] = reverse("admin:breaker_reset", args=[Breaker.objects.get().pk])
    found["limits"] = reverse("admin:breaker_limits", args=[Breaker.objects.get().pk])
    rows = {
        Agent: Agent.objects.get(),
        Route: Route.objects.get(),
        Tool: Tool.objects.get(name="send_letter"),
        Rule: Rule.objects.get(name="pay-large"),
        Channel: Channel.objects.get(),
        User: User.objects.get(username="ada"),
        Group: Group.objects.first(),
    }
    for model, row in rows.items():
        found |= {
            f"{model.__name__} {page}": address(model, page, row.pk) for page in ("change", "history", "delete")
        } | {f"{model.__name__} list": address(model, "changelist"), f"{model.__name__} add": address(model, "add")}
    for model, row in {
        Breaker: Breaker.objects.get(),
        Event: Event.objects.first(),
        ApiToken: ApiToken.objects.get(),
    }.items():
        found |= {
            f"{model.__name__} list": address(model, "changelist"),
            f"{model.__name__}": address(model, "change", row.pk),
        }
    found["rule's versions"] = reverse("admin:rule_versions", args=[rows[Rule].pk])
    # An ask rule has no delete page while it is in force; one never in force has it, and its versions.
    drafted = Rule.objects.get(name="pay-small").pk
    found["Rule delete"] = address(Rule, "delete", drafted)
    found["a drafted rule"] = address(Rule, "change", drafted)
    found["a drafted rule's versions"] = reverse("admin:rule_versions", args=[drafted])
    del found["Tool add"]  # tools come from code
    found["a tool that is there"] = address(Tool, "change", Tool.objects.get(name="pay_out").pk)
    found["a tool whose contract waits"] = address(Tool, "change", Tool.objects.get(name="write_file").pk)
    server = ToolSource.objects.get(name="files")
    found["server"] = address(ToolSource, "change", server.pk)
    found["new server"] = reverse("admin:toolsource_mcp")
    source = ToolSource.objects.get(name="the-shop")
    found["source"] = address(ToolSource, "change", source.pk)
    found["sources"] = address(ToolSource, "changelist")
    found["import"] = reverse("admin:toolsource_import")
    found["import anew"] = reverse("admin:toolsource_import_anew", args=[source.pk])
    for kept in PendingImport.objects.all():
        found[f"pick of {kept.name}"] = reverse("admin:toolsource_pick", args=[kept.pk])
    found["nothing fits"] = f"{address(Rule, 'changelist')}?q=nothing-fits-this"
    found["no rows"] = address(KillSwitch, "changelist")
    found["token add"] = address(ApiToken, "add")
    return found


# Looking at them all takes minutes: so many tests share the pages, and run beside each other.
SHARES = 6


@pytest.mark.parametrize("share", range(SHARES))
def test_every_page_is_accessible_and_keeps_the_policy(
    browse: Callable[..., Page], complaints: list[str], configured: None, ada: User, settings: Any, share: int
) -> None:
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 3600  # however long this machine takes for all these pages
    ada.is_superuser = True
    ada.save()
    rule_versions.draft_new(Rule(name="pay-small", verdict="allow", tool="pay_out"), [], ada, "test")
    page = browse(ada, "/reauthenticate/?next=/admin/")
    # Pages of passwords and tokens are shown only to people who have confirmed who they are.
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Use password").click()
    expect(page).to_have_url(re.compile("/admin/$"))
    wrong: dict[str, list[str]] = {}
    for name, path in islice(pages().items(), share, None, SHARES):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, name
        assert page.url.endswith(path), name
        for width in (1440, 390, 320):
            page.set_viewport_size({"width": width, "height": 900})
            look(page, name, wrong)
    assert wrong == {}
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
    expect(page.locator(".errorlist").first).to_contain_text("The condition does not compile")
    page.get_by_label("Condition:").fill("args.amount > 5.0")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("It decides nothing until it is activated.").wait_for()
    assert not Rule.objects.get(name="pay-at-night").active
    page.get_by_role("button", name="Simulate", exact=True).click()
    page.get_by_label("Why:").fill("Nobody pays at night.")
    page.get_by_role("button", name="Activate it").click()
    page.get_by_text("pay-at-night is in force as drafted.").wait_for()
    rule = Rule.objects.get(name="pay-at-night")
    assert (rule.active, rule.condition) == (True, "args.amount > 5.0")
    assert complaints == []


def test_the_request_is_shown_anew_while_arguments_are_typed(
    browse: Callable[..., Page], complaints: list[str], configured: None, ada: User
) -> None:
    page = browse(ada, address(Tool, "change", Tool.objects.get(name="pay_out").pk))
    page.get_by_label("Example arguments").fill('{"account": "4711", "amount": 99.5, "pin": "0000"}')
    page.locator(".card-shown .subject", has_text="Pay $99.50 to 4711").wait_for()
    assert "0000" not in page.locator("[data-preview]").inner_text()
    page.get_by_label("Example arguments").fill('{"account": "<img src=x onerror=alert(1)>", "amount": "{')
    page.locator(".callout.bad", has_text="malformed or truncated").wait_for()
    assert complaints == []


def test_a_rule_is_said_in_words_and_its_names_are_offered_while_it_is_made(
    browse: Callable[..., Page], complaints: list[str], configured: None, ada: User
) -> None:
    page = browse(ada, address(Rule, "add"))
    page.get_by_label("Tool:").select_option("pay_out")
    page.get_by_role("button", name="args.amount").click()
    condition = page.get_by_label("Condition:")
    assert condition.input_value() == "args.amount"
    condition.press_sequentially(" > 100.0")
    page.get_by_label("Verdict:").select_option("deny")
    said = "A call of pay_out where args.amount > 100.0 is refused, and the model is told why."
    page.locator(".plain", has_text=said).wait_for()
    assert not Rule.objects.exclude(name="pay-large").exists()
    assert complaints == []


def test_without_script_a_button_shows_the_same(browse: Callable[..., Page], configured: None, ada: User) -> None:
    path = address(Tool, "change", Tool.objects.get(name="pay_out").pk)
    page = browse(ada, path, java_script_enabled=False)
    page.get_by_label("Example arguments").fill('{"account": "4711", "amount": 99.5, "pin": "0000"}')
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Show the request").click()
    opened.value.get_by_text("Pay $99.50 to 4711").wait_for()


@pytest.mark.parametrize(
    ("theme", "system", "background"), [("dark", "light", "rgb(19, 21, 25)"), ("light", "dark", "rgb(255, 255, 255)")]
)
def test_the_theme_somebody_chose_counts_here_too(
    browse: Callable[..., Page], ada: User, theme: str, system: str, background: str
) -> None:
    Preferences.objects.create(user=ada, theme=theme)
    page = browse(ada, address(Rule, "changelist"), color_scheme=system)
    assert page.locator("#content-start").evaluate("e => getComputedStyle(e).backgroundColor") == background


def test_operations_are_found_picked_and_imported_with_the_keyboard(
    browse: Callable[..., Page], complaints: list[str], ada: User
) -> None:
    page = browse(ada, reverse("admin:toolsource_import"))

    def find(words: str) -> None:
        page.get_by_label("Words").fill(words)
        with page.expect_navigation():
            page.keyboard.press("Enter")

    page.get_by_label("Or its text").fill(json.dumps(document("github")))
    page.get_by_label("Name of the source").fill("github")
    page.keyboard.press("Enter")
    find("create an issue")
    tick = page.get_by_role("checkbox", name="Pick POST /repos/{owner}/{repo}/issues", exact=True)
    tick.focus()
    page.keyboard.press("Space")
    find("gist star")
    page.get_by_role("button", name="Pick all").click()
    page.get_by_label("State").select_option("Picked")
    find("")
    assert tick.is_checked()
    page.get_by_role("button", name="Import picked operations").click()
    page.get_by_text("operations are tools of github").wait_for()
    assert Tool.objects.get(name="issues_create").effect_class == "irreversible"
    assert Tool.objects.filter(source__name="github").count() > 1
    assert complaints == []


def test_without_script_an_import_is_the_same(browse: Callable[..., Page], ada: User) -> None:
    page = browse(ada, reverse("admin:toolsource_import"), java_script_enabled=False)
    page.get_by_label("Or its text").fill(shop(a="get", b="post"))
    page.get_by_role("button", name="Read it").click()
    page.get_by_role("checkbox", name="Pick POST /b").check()
    page.get_by_role("button", name="Import picked operations").click()
    page.get_by_text("1 operation").wait_for()
    assert [tool.name for tool in Tool.objects.all()] == ["b"]
