"""A rule's page says in words what the rule does, offers names for its condition, and loses nothing."""

import html
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from agentapp import tool_sync
from approvals import ledger
from approvals.models import Rule
from tests.admin_pages import address, errors_of, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    settings.APPROVAL_EXPIRES_SECONDS = 3600
    tool_sync.sync("test")
    client.force_login(ada)
    return client


def meant(staff: Client, **fields: Any) -> str:
    """What the page says of a rule while it is typed."""
    typed = {"verdict": "ask", "approvals_needed": "1", "on_expiry": "reject", "active": "on", **fields}
    answer = staff.post(reverse("admin:rule_meaning"), typed, headers={"x-part": "1"})
    assert answer.status_code == 200
    return answer.content.decode().replace("&quot;", '"').replace("&#x27;", "'").replace("&gt;", ">")


def test_the_rule_is_said_in_words_as_it_is_typed(staff: Client, roles: dict[str, Group]) -> None:
    seen = ledger.height()
    text = meant(
        staff,
        tool="pay_out",
        condition="args.amount > 100.0",
        approvals_needed="2",
        groups=[roles["approver"].pk],
        starter_excluded="on",
        allowed_decisions=["approve", "reject"],
    )
    assert (
        "A call of pay_out where args.amount > 100.0 waits for 2 different people in the group approver, but not the "
        "person who started the run. If nobody decides within 1 hour, it is rejected. People may only approve it or "
        "reject it."
    ) in text
    assert not Rule.objects.exists()
    assert ledger.height() == seen


def test_the_names_of_the_chosen_tool_are_offered(staff: Client) -> None:
    text = meant(staff, tool="pay_out")
    assert 'data-insert="args.amount"' in text
    assert 'data-insert="run.metadata"' in text
    assert 'data-insert="args.amount"' not in meant(staff)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("args.amount >", "it ends at character 14, where something is missing."),
        ("(" * 200, "it is nested too deeply."),
        ("args.amount > 1e400", "invalid double literal, at character 15."),
        ("args.amount = 4.0", "'=' is not allowed at character 13. Use == for equality."),
        ("world.peace", "Unknown name 'world'"),
        ("args.amout > 1.0", "pay_out has no argument amout."),
        ("args.account > 5.0", "It cannot be evaluated for an example"),
        ("args.account", "It cannot be evaluated for an example"),
        ("args.amount > 100000.0", "the condition is false."),
        ('agent.name != "x"', "the condition is true."),
    ],
)
def test_a_condition_is_looked_at_while_it_is_typed(staff: Client, condition: str, said: str) -> None:
    assert said in meant(staff, tool="pay_out", condition=condition)


def test_markup_in_a_condition_is_shown_and_never_acts(staff: Client) -> None:
    assert "<img" not in meant(staff, condition='customer == "<img src=x onerror=alert(1)>"')


def test_what_was_typed_stands_there_again_when_it_is_refused(staff: Client, roles: dict[str, Group]) -> None:
    typed = {
        "name": "pay-large",
        "description": "Words I would not want to type twice.",
        "tool": "pay_out",
        "condition": "args.amount >\n  100.0 &&",
        "verdict": "ask",
        "risk": "high",
        "approvals_needed": "2",
        "groups": [roles["approver"].pk],
        "allowed_decisions": ["approve"],
        "on_expiry": "stop",
    }
    answer = submit(staff, address(Rule, "add"), **typed)
    assert "The condition does not compile" in errors_of(answer)
    form = answer.context["adminform"].form
    for name, value in typed.items():
        found = form[name].value()
        assert ([int(item) for item in found] if name == "groups" else found) == value, name


def test_a_condition_that_names_what_its_tool_does_not_have_is_saved_with_a_warning(staff: Client) -> None:
    answer = submit(
        staff, address(Rule, "add"), name="typo", tool="pay_out", verdict="deny", condition="args.amout > 1.0"
    )
    assert answer.status_code == 302
    text = staff.get(answer.url).content.decode()  # type: ignore[attr-defined]
    assert "pay_out has no argument amout, so the condition cannot be evaluated" in text


@pytest.mark.parametrize(
    ("tool", "condition", "said"),
    [
        ("pay_out", "args.amount > '5'", "(it combines different types, such as a number and text)"),
        ("pay_out", "args.account", "(it gave str, not true or false)"),
        ("pay_out", "1 + 1", "(it gave int, not true or false)"),
        ("", "1 + 1", "The condition cannot be evaluated (it gave int, not true or false). Such a call waits"),
        ("pay_out", "args.amount > 5.0", ""),
        ("pay_out", "run.metadata.channel == 'mail'", ""),
        ("", "args.amount > '5'", ""),
        ("", "true", ""),
    ],
)
def test_a_condition_that_can_never_be_evaluated_is_saved_with_a_warning(
    staff: Client, tool: str, condition: str, said: str
) -> None:
    answer = submit(staff, address(Rule, "add"), name="typo", tool=tool, verdict="deny", condition=condition)
    assert answer.status_code == 302
    text = html.unescape(staff.get(answer.url).content.decode())  # type: ignore[attr-defined]
    assert ("The condition cannot be evaluated" in text) == bool(said)
    assert said in text
    assert ("It cannot be evaluated" in meant(staff, tool=tool, condition=condition)) == (
        bool(said) or "metadata" in condition
    )


def test_what_a_rule_means_is_told_to_nobody_who_may_not_see_rules(client: Client, staff: Client, mia: User) -> None:
    mia.is_staff = True
    mia.save()
    client.force_login(mia)
    assert client.post(reverse("admin:rule_meaning"), {"verdict": "ask"}).status_code == 403


def test_rules_stand_in_their_order_with_what_they_do(staff: Client) -> None:
    for order in (30, 10, 20):
        Rule.objects.create(name=f"rule-{order}", verdict="deny", order=order)
    text = staff.get(address(Rule, "changelist")).content.decode()
    assert text.index("rule-10") < text.index("rule-20") < text.index("rule-30")
    assert "Any call is refused, and the model is told why." in text


def test_a_list_of_rules_costs_the_same_for_one_and_for_many(
    staff: Client, roles: dict[str, Group], django_assert_max_num_queries: Any
) -> None:
    for number in range(40):
        Rule.objects.create(name=f"rule-{number}", verdict="ask").groups.add(roles["approver"])
    with django_assert_max_num_queries(12):
        staff.get(address(Rule, "changelist"))
