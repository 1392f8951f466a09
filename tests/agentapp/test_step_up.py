"""What an approval demands of the approver while runs go on: customers, rules that change, grants."""

import pytest

from agentapp import actions
from agentapp.configuration_file import loading
from agentapp.models import Run
from approvals import granted
from approvals.clock import Now
from approvals.models import Approval, Rule
from approvals.policy import Ruling
from tests import clerk_tools
from tests.agentapp.customers_at_work import access_to, confirm, customer_rule
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)
PAY = calls(call("p", "pay", account="ana", amount=5))


def paid() -> int:
    return len(clerk_tools.effects_of("pay"))


def resumed(clerk, run):
    Run.objects.filter(pk=run.pk).exclude(state__in=Run.FINAL).update(wake_at=Now())
    return clerk.drive(run)


def test_a_customer_is_asked_for_nothing_and_then_people_are_asked_who_show_who_they_are(clerk, dana, settings):
    settings.STEP_UP = {"low": "totp"}
    customer_rule()
    access = access_to(clerk)
    run = clerk.run(PAY, says("It is paid."), conversation="ticket-7", customer="Ana")
    [asked] = clerk.open(run)
    assert (asked.kind, asked.assurance_needed) == ("confirmation", "")
    confirm(access, asked)
    run = clerk.drive(run)
    assert paid() == 0
    [approval] = clerk.open(run)
    assert (approval.kind, approval.assurance_needed) == ("authorization", "totp")
    with pytest.raises(actions.Refused):
        clerk.decide(approval, dana, assurance="password")
    clerk.decide(approval, dana, assurance="totp")
    assert (resumed(clerk, run).answer, paid()) == ("It is paid.", 1)


def test_where_more_is_asked_by_the_time_it_runs_it_is_asked_again(clerk, dana, settings):
    Rule.objects.create(name="payments", tool="pay", verdict="ask", assurance="password", hold_seconds=0)
    run = clerk.run(PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana, assurance="password")
    Rule.objects.update(assurance="passkey")
    run = resumed(clerk, run)
    [again] = clerk.open(run)
    assert (paid(), again.assurance_needed) == (0, "passkey")
    assert Approval.objects.get(superseded_by=again).state == "superseded"
    clerk.decide(again, dana, assurance="passkey")
    assert resumed(clerk, run).state == "succeeded"
    assert paid() == 1


@pytest.mark.parametrize("decided_first", [True, False])
def test_where_its_tool_is_said_to_do_worse_by_the_time_it_runs_it_is_asked_again(clerk, dana, settings, decided_first):
    settings.STEP_UP = {"irreversible": "passkey"}
    run = clerk.run(calls(call("s", "send", to="ann")), says("done"))
    [approval] = clerk.open(run)
    assert (approval.effect_class, approval.assurance_needed) == ("compensable", "")
    steps = [
        lambda: clerk.decide(approval, dana),
        lambda: loading.load("tools:\n  send: {effect_class: irreversible}\n", "user:ada"),
    ]
    for step in steps if decided_first else reversed(steps):
        step()
    run = resumed(clerk, run)
    [again] = clerk.open(run)
    assert clerk_tools.effects_of("send") == []
    assert (again.effect_class, again.assurance_needed) == ("irreversible", "passkey")
    clerk.decide(again, dana, assurance="passkey")
    assert resumed(clerk, run).state == "succeeded"
    assert clerk_tools.effects_of("send") == [{"to": "ann"}]


def test_no_grant_answers_where_somebody_shows_who_they_are(clerk, dana, settings):
    ruling = Ruling("ask", "", risk="medium", grants_allowed=True)
    assert granted.may_be_granted(ruling, "compensable")
    assert not granted.may_be_granted(
        Ruling("ask", "", risk="medium", grants_allowed=True, assurance="totp"), "compensable"
    )
    settings.STEP_UP = {"medium": "password"}
    assert not granted.may_be_granted(ruling, "compensable")
