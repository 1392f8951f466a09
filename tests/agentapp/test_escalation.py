"""Escalation, targets and asking again, together with their runs."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import F
from django.utils import timezone

from agentapp import actions, sweep
from agentapp.models import ToolExecution
from agentapp.topics import topics_of
from approvals import configuration
from approvals.models import Approval, Event, Notification, Rule
from tests import clerk_tools
from tests.conftest import call, calls, make_user, says
from tests.races import few_tries, race

pytestmark = pytest.mark.django_db(transaction=True)

PAYS = (calls(call("p", "pay", account="ana", amount=5)), says("done"))
TWICE = (
    calls(call("p", "pay", account="ana", amount=5), call("q", "pay", account="ben", amount=6)),
    says("done"),
)


@pytest.fixture
def leads(roles: dict[str, Group]) -> Group:
    group = Group.objects.create(name="leads")
    group.permissions.set(roles["approver"].permissions.filter(codename="decide_approval"))
    return group


@pytest.fixture
def lea(leads: Group) -> User:
    return make_user("Lea Lead", "leads")


@pytest.fixture
def rule(roles: dict[str, Group], leads: Group) -> Rule:
    made = Rule(
        name="payments", verdict="ask", tool="pay", escalation=[{"after": 1800, "group": "leads"}], target_seconds=600
    )
    configuration.save(made, "test", {"groups": [roles["approver"]]})
    return made


def pass_time(approval: Approval, **by: int) -> None:
    """Let this much time pass for a request."""
    columns = {name: F(name) - timedelta(**by) for name in ("created_at", "expires_at", "escalates_at", "target_at")}
    Approval.objects.filter(pk=approval.pk).update(**columns)


def kinds(approval: Approval) -> list[str]:
    found = Event.objects.filter(run_id=approval.run_id, type__startswith="approval.").order_by("seq")
    return [event.type.removeprefix("approval.") for event in found]


def expired(approval: Approval) -> Approval:
    pass_time(approval, days=2)
    sweep.sweep()
    approval.refresh_from_db()
    assert approval.state == "expired"
    return approval


# --- The sweep ---------------------------------------------------------------------------------


def test_the_sweep_takes_a_step_once_and_what_the_new_group_approves_runs(clerk, rule, lea):
    run = clerk.run(*PAYS)
    [approval] = clerk.open(run)
    sweep.sweep()
    with pytest.raises(actions.Refused):
        clerk.decide(approval, lea)
    pass_time(approval, minutes=31)
    sweep.sweep()
    sweep.sweep()
    assert kinds(approval) == ["requested", "breached", "escalated"]
    assert Notification.objects.get(user=lea).kind == "escalated"
    clerk.decide(approval, lea)
    clerk.drive(run)
    assert run.state == "succeeded"
    assert len(clerk_tools.effects_of("pay")) == 1


def test_what_the_new_group_approved_is_asked_again_when_the_rule_no_longer_lets_it(clerk, rule, lea):
    run = clerk.run(*PAYS)
    [approval] = clerk.open(run)
    pass_time(approval, minutes=31)
    sweep.sweep()
    clerk.decide(approval, lea)
    rule.escalation = [{"after": 3600, "group": "leads"}]
    configuration.save(rule, "test")
    clerk.drive(run)
    assert clerk_tools.effects_of("pay") == []
    [again] = clerk.open(run)
    assert again.supersedes == approval
    assert [step["after"] for step in again.escalation] == [3600]


def test_a_target_is_missed_before_the_request_expires_however_late_the_sweep_comes(clerk, rule, dana):
    run = clerk.run(*PAYS)
    approval = expired(clerk.open(run)[0])
    assert kinds(approval) == ["requested", "breached", "expired"]
    assert approval.escalated == 0, "nobody is added to what has ended"


def test_the_installation_has_a_target_for_rules_that_have_none(clerk, settings, dana):
    settings.APPROVAL_TARGET_SECONDS = 120
    [approval] = clerk.open(clerk.run(*PAYS))
    assert approval.target_at - approval.created_at == timedelta(minutes=2)


def test_two_sweeps_at_once_take_one_step_and_note_one_breach(clerk, rule, lea):
    for _ in range(few_tries()):
        [approval] = clerk.open(clerk.run(*PAYS))
        pass_time(approval, minutes=31)
        assert not [result for result in race(sweep.sweep, sweep.sweep) if isinstance(result, Exception)]
        assert kinds(approval) == ["requested", "breached", "escalated"]


def test_a_step_and_a_decision_at_once_leave_one_order_of_events(clerk, rule, dana):
    for _ in range(few_tries()):
        [approval] = clerk.open(clerk.run(*PAYS))
        pass_time(approval, minutes=31)
        race(sweep.sweep, lambda asked=approval: clerk.decide(asked, dana))
        approval.refresh_from_db()
        assert approval.state == "approved"
        assert kinds(approval) in (
            ["requested", "breached", "approved"], ["requested", "breached", "escalated", "approved"],
        )  # fmt: skip
        assert approval.escalated == kinds(approval).count("escalated")


def test_the_stream_of_a_request_is_for_the_new_group_from_then_on_and_not_before(clerk, rule, lea):
    [approval] = clerk.open(clerk.run(*PAYS))
    name = f"approval:{approval.pk}"
    assert list(topics_of(name, lea)) == []
    pass_time(approval, minutes=31)
    sweep.sweep()
    assert [topic.run for topic in topics_of(name, lea)] == [str(approval.run_id)]


# --- Asking again ------------------------------------------------------------------------------


def test_what_nobody_decided_is_asked_again_while_a_call_before_it_still_waits(clerk, dana):
    run = clerk.run(*TWICE)
    first, second = clerk.open(run)
    expired(second)
    actions.ask_again(second.pk, dana)
    clerk.drive(run)
    still, again = clerk.open(run)
    assert still == first
    second.refresh_from_db()
    assert (second.state, again.supersedes, again.arguments) == ("superseded", second, second.arguments)
    assert again.expires_at > timezone.now()
    for approval in (first, again):
        clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert len(clerk_tools.effects_of("pay")) == 2


def test_a_call_before_it_that_was_decided_meanwhile_still_wakes_the_run(clerk, dana, settings):
    run = clerk.run(*TWICE)
    first, second = clerk.open(run)
    expired(second)
    clerk.decide(first, dana)
    actions.ask_again(second.pk, dana)
    clerk.drive(run)
    assert len(clerk_tools.effects_of("pay")) == 1
    assert [row.supersedes for row in clerk.open(run)] == [second]


def test_the_starter_can_ask_again_and_still_decides_nothing(clerk, sam):
    run = clerk.run(*TWICE)
    _, second = clerk.open(run)
    expired(second)
    actions.ask_again(second.pk, sam)
    clerk.drive(run)
    with pytest.raises(actions.Refused):
        clerk.decide(clerk.open(run)[1], sam)


def test_nobody_else_asks_again_nor_hears_that_there_is_something(clerk, otto, mia):
    _, second = clerk.open(clerk.run(*TWICE))
    expired(second)
    assert refused(second, otto) == "not_found"
    assert refused(second, mia) == "forbidden"
    second.refresh_from_db()
    assert second.state == "expired"


def test_it_is_asked_again_once(clerk, dana, marco):
    for _ in range(few_tries()):
        run = clerk.run(*TWICE)
        _, second = clerk.open(run)
        expired(second)
        results = race(
            lambda it=second: actions.ask_again(it.pk, dana), lambda it=second: actions.ask_again(it.pk, marco)
        )
        codes = [result.code for result in results if isinstance(result, actions.Refused)]
        assert codes == ["already_asked"]
        assert kinds(second).count("superseded") == 1


def test_of_a_run_that_has_ended_nothing_is_asked_again(clerk, dana, sam):
    run = clerk.run(*TWICE)
    _, second = clerk.open(run)
    expired(second)
    actions.cancel_run(run.pk, sam)
    assert refused(second, dana) == "run_ended"


def test_what_the_agent_has_been_told_is_not_asked_again_here(clerk, dana):
    run = clerk.run(*PAYS)
    [approval] = clerk.open(run)
    expired(approval)
    clerk.drive(run)
    assert ToolExecution.objects.get(run=run).reason == "approval_expired"
    assert refused(approval, dana) == "too_late"


@pytest.mark.parametrize("type", ["approve", "reject"])
def test_what_was_decided_is_not_asked_again(clerk, dana, marco, type):
    [approval, _] = clerk.open(clerk.run(*TWICE))
    clerk.decide(approval, dana, type, message="No.")
    assert refused(approval, marco) == "already_decided"


def test_what_people_are_being_asked_about_is_not_asked_again(clerk, dana):
    [approval, _] = clerk.open(clerk.run(*TWICE))
    assert refused(approval, dana) == "already_asked"


def test_what_expired_takes_no_decision_any_more_and_says_so(clerk, dana):
    _, second = clerk.open(clerk.run(*TWICE))
    expired(second)
    with pytest.raises(actions.Refused) as found:
        clerk.decide(second, dana)
    assert (found.value.code, found.value.message) == ("expired", "No one decided in time; the call will not run.")


def refused(approval: Approval, user: Any) -> str:
    with pytest.raises(actions.Refused) as found:
        actions.ask_again(approval.pk, user)
    return found.value.code
