"""Rules are edited in typed fields, and refused with a sentence if they could not protect."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentapp import tool_sync
from agentapp.models import Agent, Route
from approvals import ledger
from approvals.models import Rule
from tests.admin_pages import address, configuration_events, errors_of, save, submit
from tests.rule_life import activate, in_force

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    agent = Agent.objects.create(name="support")
    Route.objects.create(agent=agent, name="refunds")
    client.force_login(ada)
    return client


def rule(**fields: Any) -> dict[str, Any]:
    return {
        "name": "pay-large",
        "active": "on",
        "order": "10",
        "agent": "support",
        "route": "refunds",
        "tool": "pay_out",
        "condition": "args.amount > 100.0",
        "verdict": "ask",
        "risk": "high",
        "approvals_needed": "2",
        "starter_excluded": "on",
        "allowed_decisions": ["approve", "reject"],
        "expires_seconds": "3600",
        "on_expiry": "reject",
        "hold_seconds": "0",
        "assurance": "passkey",
        **fields,
    }


def test_a_rule_is_in_force_as_typed_and_recorded_with_its_groups(staff: Client, roles: dict[str, Group]) -> None:
    save(staff, address(Rule, "add"), **rule(groups=[roles["approver"].pk]))
    drafted = configuration_events()[-1]
    assert drafted.data["table"] == "approvals.RuleVersion"
    assert drafted.data["after"]["terms"]["groups"] == ["approver"]
    assert drafted.data["after"]["terms"]["condition"] == "args.amount > 100.0"
    stored = in_force(staff, Rule.objects.get())
    assert stored.active
    assert (stored.agent, stored.route, stored.tool) == ("support", "refunds", "pay_out")
    assert stored.allowed_decisions == ["approve", "reject"]
    assert (stored.approvals_needed, stored.expires_seconds, stored.hold_seconds) == (2, 3600, 0)
    assert stored.assurance == drafted.data["after"]["terms"]["assurance"] == "passkey"
    event = configuration_events()[-1]
    assert event.data["table"] == "approvals.Rule"
    assert event.data["after"] == {"active": True, "version": 1}


def test_a_change_is_one_event_and_one_version_links_included(staff: Client, roles: dict[str, Group]) -> None:
    save(staff, address(Rule, "add"), **rule())
    made = in_force(staff, Rule.objects.get())
    seen = ledger.height()
    url = address(Rule, "change", made.pk)
    save(staff, url, groups=[roles["approver"].pk])
    save(staff, url)
    activate(staff, made)
    [event] = [event for event in configuration_events(after=seen) if event.data["table"] == "approvals.Rule"]
    assert event.data["before"] == {"groups": [], "version": 1}
    assert event.data["after"] == {"groups": ["approver"], "version": 2}
    assert Rule.objects.get().version == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"condition": "args.amount >"}, "The condition does not compile"),
        ({"condition": "world.peace"}, "Unknown name &#x27;world&#x27;; a condition can look at args, tool, agent"),
        ({"allowed_decisions": []}, "This field is required"),
        ({"allowed_decisions": ["dance"]}, "dance is not one of the available choices"),
        ({"tool": "fly"}, "fly is not one of the available choices"),
        ({"agent": "nobody"}, "nobody is not one of the available choices"),
        ({"verdict": "allow", "tool": ""}, "A rule that allows must name one tool exactly, or cover only reads."),
        ({"verdict": ""}, "This field is required"),
        ({"approvals_needed": "0"}, "At least one person must approve."),
        ({"hold_seconds": "61"}, "A decision can be held for at most 60 seconds."),
        (
            {"risk": "low", "approvals_needed": "1", "grants_allowed": "on"},
            "A grant does not show who approves, so none answers if a rule asks for that.",
        ),
        ({"name": "two words"}, "Enter a valid"),
    ],
)
def test_a_rule_that_could_not_protect_is_refused_with_a_sentence(
    staff: Client, fields: dict[str, Any], message: str
) -> None:
    seen = ledger.height()
    assert message in errors_of(submit(staff, address(Rule, "add"), **rule(**fields)))
    assert not Rule.objects.exists()
    assert ledger.height() == seen


def test_a_rule_keeps_the_name_of_a_tool_that_is_gone(staff: Client) -> None:
    old = Rule.objects.create(name="old", verdict="deny", tool="retired", agent="gone", route="closed")
    save(staff, address(Rule, "change", old.pk), order="7")
    stored = in_force(staff, old)
    assert (stored.order, stored.tool, stored.agent, stored.route) == (7, "retired", "gone", "closed")


def test_somebody_without_the_right_changes_no_rule(client: Client, staff: Client, mia: User) -> None:
    save(staff, address(Rule, "add"), **rule())
    mia.is_staff = True
    mia.save()
    client.force_login(mia)
    url = address(Rule, "change", Rule.objects.get().pk)
    assert client.get(url).status_code == 403
    assert client.post(url, rule(verdict="allow")).status_code == 403
    assert Rule.objects.get().verdict == "ask"


def test_deleting_a_rule_names_it_and_no_row_without_a_name(staff: Client, roles: dict[str, Group]) -> None:
    save(staff, address(Rule, "add"), **rule(groups=[roles["approver"].pk]))
    page = staff.get(address(Rule, "delete", Rule.objects.get().pk)).content.decode()
    assert "pay-large</a>" in page
    assert "object (" not in page


def steps(*lines: tuple[str, str]) -> dict[str, str]:
    return {f"escalation_{2 * n + part}": text for n, line in enumerate(lines) for part, text in enumerate(line)}


def test_steps_are_chosen_line_by_line_and_kept_in_their_order(staff: Client, roles: dict[str, Group]) -> None:
    chosen = steps(("1800", "group:manager"), ("600", "remind"), ("2400", "both:admin"))
    save(staff, address(Rule, "add"), **rule(target_seconds="300", business_hours="on", **chosen))
    stored = Rule.objects.get()
    assert stored.escalation == [
        {"after": 600, "group": "", "remind": True},
        {"after": 1800, "group": "manager", "remind": False},
        {"after": 2400, "group": "admin", "remind": True},
    ]
    assert (stored.target_seconds, stored.business_hours) == (300, True)
    shown = staff.get(address(Rule, "change", stored.pk)).content.decode()
    assert shown.count('value="group:manager" selected') == 1
    assert "If nobody decides within 30 minutes of business hours, manager is told too." in shown


@pytest.mark.parametrize("field", ["expires_seconds", "target_seconds"])
def test_a_time_that_no_calendar_has_room_for_is_refused(staff: Client, field: str) -> None:
    for seconds in ("315360001", "1000000000000", "1" + 40 * "0"):
        assert "At most ten years" in errors_of(submit(staff, address(Rule, "add"), **rule(**{field: seconds})))
    assert not Rule.objects.exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (("600", ""), "Step 1: say after how many seconds, and what happens then."),
        (("", "remind"), "Step 1: say after how many seconds, and what happens then."),
        (("600", "group:pilots"), "Select a valid choice"),
        (("0", "remind"), "`after` is a number of seconds"),
        (("3600", "remind"), "The request expires after 3600 seconds, before the last step."),
    ],
)
def test_a_step_that_would_do_nothing_is_refused(staff: Client, line: tuple[str, str], sentence: str) -> None:
    answer = submit(staff, address(Rule, "add"), **rule(**steps(line)))
    assert sentence in errors_of(answer)
    assert not Rule.objects.exists()
