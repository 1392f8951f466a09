"""Rules change by versions: drafted, simulated, activated, restored. The rule in force stays until then."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentapp import tool_sync
from approvals import ledger
from approvals.models import Rule, RuleVersion
from tests.admin_pages import address, configuration_events, save, submit
from tests.rule_life import activate, do, in_force

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    client.force_login(ada)
    return client


@pytest.fixture
def rule(staff: Client) -> Rule:
    save(staff, address(Rule, "add"), name="pay-large", verdict="ask", tool="pay_out", condition="args.amount > 100.0")
    return in_force(staff, Rule.objects.get())


def page(client: Client, rule: Rule, query: str = "") -> str:
    answer = client.get(reverse("admin:rule_versions", args=[rule.pk]) + query)
    assert answer.status_code == 200
    return answer.content.decode().replace("&gt;", ">").replace("&#x27;", "'")


def change(client: Client, rule: Rule, **fields: Any) -> None:
    save(client, address(Rule, "change", rule.pk), **fields)


def test_a_new_rule_is_a_draft_that_decides_nothing_until_it_is_simulated_and_activated(staff: Client) -> None:
    save(staff, address(Rule, "add"), name="pay-large", verdict="deny", tool="pay_out")
    rule = Rule.objects.get()
    assert (rule.active, rule.version) == (False, 0)
    assert "it was never activated" in page(staff, rule)
    assert "Simulate it first" in do(staff, rule, "activate")
    rule.refresh_from_db()
    assert not rule.active
    do(staff, rule, "simulate")
    assert "is in force" in do(staff, rule, "activate", why="Too much money left.")
    rule.refresh_from_db()
    assert (rule.active, rule.version, rule.verdict) == (True, 1, "deny")
    [version] = rule.versions.all()
    assert (version.state, version.number, version.why, version.who) == (
        "in_force", 1, "Too much money left.", "ada (admin)",
    )  # fmt: skip


def test_what_is_in_force_stays_while_its_draft_is_changed(staff: Client, rule: Rule, roles: dict[str, Group]) -> None:
    change(staff, rule, condition="args.amount > 50.0", groups=[roles["approver"].pk])
    rule.refresh_from_db()
    assert (rule.condition, rule.version, rule.groups.count()) == ("args.amount > 100.0", 1, 0)
    shown = staff.get(address(Rule, "change", rule.pk))
    assert shown.context["adminform"].form["condition"].value() == "args.amount > 50.0"
    text = page(staff, rule)
    assert "args.amount > 100.0" in text
    assert "args.amount > 50.0" in text
    change(staff, rule, order="7")
    assert rule.versions.filter(state="draft").count() == 1
    activate(staff, rule)
    rule.refresh_from_db()
    assert (rule.condition, rule.order, rule.version) == ("args.amount > 50.0", 7, 2)
    assert [group.name for group in rule.groups.all()] == ["approver"]
    assert list(rule.versions.values_list("number", "state")) == [(2, "in_force"), (1, "retired")]


def test_saving_what_is_in_force_makes_no_draft(staff: Client, rule: Rule) -> None:
    seen = ledger.height()
    change(staff, rule)
    assert not rule.versions.filter(number=None).exists()
    assert ledger.height() == seen


def test_a_simulation_of_other_terms_is_none(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "simulate")
    change(staff, rule, condition="args.amount > 60.0")
    assert "Simulate it first" in do(staff, rule, "activate")


def test_a_simulation_of_yesterday_is_none(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "simulate")
    RuleVersion.objects.filter(number=None).update(simulated_at=timezone.now() - timedelta(days=1, minutes=1))
    assert "more than a day old" in do(staff, rule, "activate")


def test_a_simulation_beside_other_rules_is_none(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    save(staff, address(Rule, "add"), name="other", verdict="deny", tool="pay_out")
    do(staff, rule, "simulate")
    activate(staff, Rule.objects.get(name="other"))
    assert "have changed since its simulation" in do(staff, rule, "activate")


def test_a_draft_made_or_thrown_away_meanwhile_leaves_a_simulation_what_it_is(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "simulate")
    for name in ("one", "two"):
        save(staff, address(Rule, "add"), name=name, verdict="deny", tool="pay_out")
    do(staff, Rule.objects.get(name="one"), "discard")
    assert "is in force" in do(staff, rule, "activate")


def test_a_draft_that_was_changed_since_it_was_looked_at_is_not_activated(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    seen = RuleVersion.objects.get(number=None).terms_digest
    change(staff, rule, condition="args.amount > 60.0")
    do(staff, rule, "simulate")
    assert "Somebody was here before you" in do(staff, rule, "activate", terms=seen)
    rule.refresh_from_db()
    assert rule.version == 1


def test_an_older_version_is_brought_back_under_a_new_number(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0", risk="high")
    activate(staff, rule)
    said = do(staff, rule, "restore", number="1")
    assert "was made and simulated" in said
    do(staff, rule, "activate")
    rule.refresh_from_db()
    assert (rule.condition, rule.risk, rule.version) == ("args.amount > 100.0", "medium", 3)
    assert rule.versions.get(number=3).restores == 1


def test_two_versions_are_compared_in_words_and_by_field(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    activate(staff, rule)
    change(staff, rule, verdict="deny")
    activate(staff, rule)
    text = page(staff, rule, "?from=1&to=3")
    assert "where args.amount > 100.0 waits for a person" in text
    assert "where args.amount > 50.0 is refused" in text
    assert '<span class="vh">was </span>ask</del>' in text
    assert '<span class="vh">was </span>args.amount > 100.0</del>' in text
    assert '<span class="vh">was </span>args.amount > 100.0</del>' not in page(staff, rule, "?from=2&to=3")


def test_every_act_is_an_event_with_what_was_there_before(staff: Client, rule: Rule) -> None:
    seen = ledger.height()
    change(staff, rule, condition="args.amount > 50.0")
    activate(staff, rule)
    events = [(event.type, event.data["table"], event.data) for event in configuration_events(after=seen)]
    assert [(kind, table) for kind, table, _ in events] == [
        ("configuration.created", "approvals.RuleVersion"),
        ("configuration.changed", "approvals.RuleVersion"),  # simulated
        ("configuration.changed", "approvals.RuleVersion"),  # the old one retired
        ("configuration.changed", "approvals.RuleVersion"),  # in force
        ("configuration.changed", "approvals.Rule"),
    ]
    assert events[-1][2]["before"] == {"condition": "args.amount > 100.0", "version": 1}
    assert events[-1][2]["after"] == {"condition": "args.amount > 50.0", "version": 2}
    assert events[3][2]["before"]["state"] == "draft"
    assert events[3][2]["after"]["state"] == "in_force"


def test_somebody_else_than_the_last_editor_activates_where_that_is_asked(
    staff: Client, rule: Rule, settings: Any, otto: User, roles: dict[str, Group]
) -> None:
    settings.RULES_NEED_SECOND_PERSON = True
    otto.is_staff = True
    otto.save()
    otto.groups.set([roles["admin"]])
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "simulate")
    assert "somebody else must activate it" in do(staff, rule, "activate")
    staff.force_login(otto)
    assert "is in force" in do(staff, rule, "activate")
    rule.refresh_from_db()
    assert rule.condition == "args.amount > 50.0"


def test_a_rule_that_allows_is_switched_off_at_once(staff: Client) -> None:
    save(staff, address(Rule, "add"), name="pay", verdict="allow", tool="pay_out")
    rule = in_force(staff, Rule.objects.get())
    assert "Switch it off now" in page(staff, rule)
    do(staff, rule, "switch-off")
    rule.refresh_from_db()
    assert (rule.active, rule.version) == (False, 2)
    assert rule.versions.get(number=2).origin == "switch"


@pytest.mark.parametrize("by", ["button", "list"])
def test_a_rule_that_asks_is_switched_off_only_after_a_simulation(staff: Client, rule: Rule, by: str) -> None:
    if by == "button":
        assert "Without pay-large, calls may run" in do(staff, rule, "switch-off")
        change(staff, rule, active=None)
    else:
        staff.post(address(Rule, "changelist"), {"action": "switch_off", "_selected_action": [str(rule.pk)]})
    rule.refresh_from_db()
    assert rule.active
    assert "It would switch the rule off." in page(staff, rule)
    activate(staff, rule)
    rule.refresh_from_db()
    assert not rule.active


def test_a_rule_that_asks_is_not_deleted_while_it_is_in_force(staff: Client, rule: Rule) -> None:
    delete = address(Rule, "delete", rule.pk)
    assert delete not in staff.get(address(Rule, "change", rule.pk)).content.decode()
    assert staff.post(delete, {"post": "yes"}).status_code == 403
    selected = {"action": "delete_selected", "_selected_action": [str(rule.pk)], "post": "yes"}
    staff.post(address(Rule, "changelist"), selected)
    assert Rule.objects.filter(pk=rule.pk).exists()
    change(staff, rule, active=None)
    activate(staff, rule)
    assert delete in staff.get(address(Rule, "change", rule.pk)).content.decode()
    assert staff.post(delete, {"post": "yes"}).status_code == 302
    assert not Rule.objects.exists()


def test_a_draft_is_thrown_away_and_a_rule_that_never_was_goes_with_it(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "discard")
    assert not rule.versions.filter(number=None).exists()
    save(staff, address(Rule, "add"), name="never", verdict="deny")
    do(staff, Rule.objects.get(name="never"), "discard")
    assert list(Rule.objects.values_list("name", flat=True)) == ["pay-large"]


@pytest.mark.parametrize("act", ["simulate", "activate", "watch", "discard", "restore", "switch-off"])
def test_only_whoever_may_change_rules_acts(staff: Client, rule: Rule, mia: User, act: str, roles: Any) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    draft = RuleVersion.objects.get(number=None)
    seen = ledger.height()
    mia.is_staff = True
    mia.save()
    staff.force_login(mia)
    url = reverse("admin:rule_versions", args=[rule.pk])
    assert staff.get(url).status_code == 403
    mia.user_permissions.add(*permission("view_rule"))
    staff.force_login(User.objects.get(pk=mia.pk))
    text = staff.get(url).content.decode()
    assert 'name="do"' not in text
    fields = {"do": act, "terms": draft.terms_digest, "number": "1"}
    assert staff.post(reverse("admin:rule_do", args=[rule.pk]), fields).status_code == 403
    assert [event.type for event in configuration_events(after=seen) if event.type.startswith("configuration.")] == []


def permission(codename: str) -> Any:
    return Permission.objects.filter(codename=codename)


def test_a_look_changes_nothing(staff: Client, rule: Rule) -> None:
    change(staff, rule, condition="args.amount > 50.0")
    seen = ledger.height()
    page(staff, rule)
    draft = RuleVersion.objects.get(number=None)
    fields = {"do": "discard", "terms": draft.terms_digest}
    assert staff.get(reverse("admin:rule_do", args=[rule.pk]), fields).status_code == 302
    assert ledger.height() == seen
    assert RuleVersion.objects.filter(pk=draft.pk).exists()


def test_the_page_of_a_rule_costs_the_same_however_many_versions_it_has(
    staff: Client, rule: Rule, django_assert_max_num_queries: Any
) -> None:
    for number in range(3):
        change(staff, rule, order=str(number))
        activate(staff, rule)
    change(staff, rule, condition="args.amount > 50.0")
    do(staff, rule, "simulate")
    do(staff, rule, "watch")
    with django_assert_max_num_queries(14):
        page(staff, rule)


def test_the_list_says_which_rules_have_a_draft(staff: Client, rule: Rule) -> None:
    url = reverse("admin:rule_versions", args=[rule.pk])
    assert f'href="{url}"' not in staff.get(address(Rule, "changelist")).content.decode()
    change(staff, rule, condition="args.amount > 50.0")
    assert f'href="{url}"' in staff.get(address(Rule, "changelist")).content.decode()


def test_a_rule_keeps_its_name(staff: Client, rule: Rule) -> None:
    submit(staff, address(Rule, "change", rule.pk), name="another")
    assert Rule.objects.get().name == "pay-large"
