"""A tool's page shows what people would read, what those words leave out, the rules on it and its versions."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentapp import tool_sync
from agentapp.models import Tool, ToolSource
from approvals import configuration
from approvals.masking import MASK
from approvals.models import Rule
from tests.admin_pages import address

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    client.force_login(ada)
    return client


@pytest.fixture
def pay_out(staff: Client) -> Tool:
    return Tool.objects.get(name="pay_out")


@pytest.fixture
def shown(staff: Client, pay_out: Tool) -> Callable[..., str]:
    """The part of the page that shows the request, for these arguments."""

    def ask(arguments: object, **headers: str) -> str:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        url = reverse("admin:tool_card", args=[pay_out.pk])
        answer = staff.post(url, {"_example": text}, headers={"x-part": "1", **headers})
        assert answer.status_code == 200
        return answer.content.decode()

    return ask


def test_the_request_is_shown_as_people_would_read_it(shown: Callable[..., str]) -> None:
    text = shown({"account": "4711", "amount": 12.5, "pin": "0000"})
    assert "<b>4711</b>" in text
    assert "0000" not in text
    assert "<html" not in text


def test_what_is_typed_is_shown_and_never_acts(shown: Callable[..., str]) -> None:
    text = shown({"account": "<script>alert(1)</script>", "amount": 1.0, "pin": "1"})
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("{", "malformed or truncated"),
        ("[]", "The arguments must be an object"),
        ('{"amount": NaN}', "NaN is not JSON"),
        ('{"amount": 1, "amount": 2}', "appears twice"),
        ({"account": "1"}, "A call with these would be refused."),
    ],
)
def test_arguments_that_could_not_be_proposed_are_said_to_be_so(
    shown: Callable[..., str], typed: object, said: str
) -> None:
    assert said in shown(typed)


def test_the_words_are_checked_for_arguments_they_leave_out(
    staff: Client, pay_out: Tool, shown: Callable[..., str]
) -> None:
    whole = {"sentence_template": "Pay {amount:money} to {account}.", "effects_template": [{"title": "With {pin}"}]}
    Tool.objects.filter(pk=pay_out.pk).update(**whole)
    assert "The words name every argument" in shown({})
    Tool.objects.filter(pk=pay_out.pk).update(effects_template=[{"title": "Money leaves", "detail": ""}])
    assert "The words leave out an argument:</strong> <code>pin</code>" in shown({})
    assert "Leave out “pin”" in staff.get(address(Tool, "changelist")).content.decode()


def test_a_browser_without_script_gets_a_page_around_it(staff: Client, pay_out: Tool) -> None:
    text = staff.post(reverse("admin:tool_card", args=[pay_out.pk]), {"_example": "{}"}).content.decode()
    assert "<html" in text
    assert "What people see of pay_out" in text


def test_it_is_shown_to_nobody_who_may_not_see_the_tool(client: Client, pay_out: Tool, otto: User) -> None:
    otto.is_staff = True
    otto.save()
    client.force_login(otto)
    assert client.post(reverse("admin:tool_card", args=[pay_out.pk]), {"_example": "{}"}).status_code == 403


def test_the_page_begins_with_made_up_arguments_where_there_was_no_call(staff: Client, pay_out: Tool) -> None:
    text = staff.get(address(Tool, "change", pay_out.pk)).content.decode()
    assert "Made up from the schema." in text
    assert "[account]" in text
    assert MASK in text


def test_the_page_lists_the_rules_that_can_fit_in_their_order(staff: Client, pay_out: Tool) -> None:
    for order, fields in enumerate(
        [{"tool": "pay_out"}, {"tool": "look_up_order"}, {"effect_class": pay_out.effect_class}, {"active": False}]
    ):
        Rule.objects.create(name=f"rule-{order}", verdict="ask", order=9 - order, **fields)
    text = staff.get(address(Tool, "change", pay_out.pk)).content.decode()
    assert text.index(">rule-2<") < text.index(">rule-0<")
    assert ">rule-1<" not in text
    assert ">rule-3<" not in text


def test_a_changed_contract_is_shown_beside_the_one_before(staff: Client, pay_out: Tool) -> None:
    page = address(Tool, "change", pay_out.pk)
    assert "This is the first version" in staff.get(page).content.decode()
    pay_out.description, pay_out.version = "Pay out in cash.", "2" * 64
    configuration.save(pay_out, "user:1:dev (sync_tools)")
    text = staff.get(page).content.decode()
    assert "Version 222222222222" in text
    assert "by dev (sync_tools)" in text
    assert "Pay out in cash." in text.split("Version 2222")[1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("python", ["The words of a request come from the tool's code", "Read from code.", "was read from code"]),
        ("openapi", ["made from the service's document", "importing the document", "the document was imported"]),
        ("mcp", ["A server gives no words", "asking the server again", "the server listed the tool"]),
        ("agent", ["the same for every agent", "Made from the agent", "the agent could be asked"]),
    ],
)
def test_where_the_contract_comes_from_is_said_as_it_is(
    staff: Client, pay_out: Tool, kind: str, said: list[str]
) -> None:
    ToolSource.objects.update(kind=kind)
    text = staff.get(address(Tool, "change", pay_out.pk)).content.decode()
    assert [words for words in said if words not in text] == []
    for words in ("from code", "the tool's code", "<code>sentence</code>"):
        assert (words in text) == (kind == "python")


def test_several_tools_are_switched_off_at_once_each_with_its_event(staff: Client) -> None:
    tools = Tool.objects.filter(name__in=["pay_out", "look_up_order"])
    chosen = {"action": "switch_off", "_selected_action": [str(tool.pk) for tool in tools]}
    staff.post(address(Tool, "changelist"), chosen)
    assert not tools.filter(enabled=True).exists()
    text = staff.get(address(Tool, "history", tools[0].pk)).content.decode()
    assert "Enabled" in text
    assert "ada (admin)" in text


def test_a_list_of_tools_costs_the_same_for_two_and_for_many(staff: Client, django_assert_max_num_queries: Any) -> None:
    source = Tool.objects.first().source  # type: ignore[union-attr]
    Tool.objects.bulk_create(Tool(name=f"tool_{n}", source=source, version="1") for n in range(60))
    with django_assert_max_num_queries(12):
        staff.get(address(Tool, "changelist"))
