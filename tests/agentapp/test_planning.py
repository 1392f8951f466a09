"""What may be in a plan, and on which terms people decide about it."""

import pytest
from django.contrib.auth.models import Group

from agentapp.models import Tool
from agentapp.refused import Refused
from approvals.models import Approval, PlannedCall, Rule
from tests.clerk_tools import EFFECTS
from tests.conftest import calls, says
from tests.plans import ANN, BOB, EVE, a_plan, let_plan, made, refund
from tests.plans import planned as item


@pytest.fixture(autouse=True)
def _plans(clerk, offer, settings):
    offer(refund)
    let_plan(clerk, settings)


class TestWhatCannotBePlanned:
    def refused(self, clerk, *items) -> str:
        run = clerk.run(a_plan(*items), says("done"))
        execution = clerk.execution(run, "plan")
        assert (run.state, execution.reason, execution.approval) == ("succeeded", "plan_refused", None)
        assert (EFFECTS, Approval.objects.count()) == ([], 0)
        return execution.message

    def test_a_plan_of_a_denied_call_is_refused(self, clerk):
        Rule.objects.create(name="no", tool="label", verdict="deny", description="Labels are closed.")
        assert "2. label: A rule forbids this call: Labels are closed." in self.refused(clerk, ANN, EVE)

    def test_an_irreversible_call_is_never_planned(self, clerk):
        assert "2. pay: It cannot be taken back" in self.refused(clerk, ANN, item("pay", account="ann", amount=5))

    def test_a_critical_call_is_never_planned(self, clerk):
        Rule.objects.create(name="critical", tool="label", verdict="ask", risk="critical")
        assert "Its risk is critical" in self.refused(clerk, ANN, EVE)

    def test_a_call_that_the_customer_answers_is_not_planned(self, clerk):
        Rule.objects.create(name="mine", tool="label", verdict="ask", answered_by="customer")
        run = clerk.run(a_plan(ANN, EVE), says("done"))
        # Nobody reaches this run's customer, so people are asked; if the customer is reached, it is left out.
        assert run.waiting_for == "approval"

    def test_a_call_with_thresholds_is_not_planned(self, clerk):
        Rule.objects.create(name="two", tool="label", verdict="ask", thresholds=[{"approve": 2}])
        assert "each with its own count" in self.refused(clerk, ANN, EVE)

    def test_a_read_is_not_planned(self, clerk):
        assert "2. look_up: It only reads" in self.refused(clerk, ANN, item("look_up", what="x"))

    def test_a_call_that_a_rule_allows_is_not_planned(self, clerk):
        Rule.objects.create(name="yes", tool="label", verdict="allow")
        assert "2. label: It needs no approval" in self.refused(clerk, ANN, EVE)

    def test_a_call_of_a_tool_that_is_not_disclosed_is_not_planned(self, clerk):
        assert "2. nothing: There is no such tool here." in self.refused(clerk, ANN, item("nothing"))

    def test_a_call_whose_arguments_do_not_fit_is_not_planned(self, clerk):
        assert "2. refund: refund:" in self.refused(clerk, ANN, item("refund", account="ann"))

    def test_the_same_call_twice_is_not_planned(self, clerk):
        assert "2. refund: The same call is already" in self.refused(clerk, ANN, {**ANN})

    def test_the_same_call_twice_is_not_planned_even_of_a_tool_that_may_be_repeated(self, clerk):
        Tool.objects.filter(name="refund").update(repeatable=True)
        assert "2. refund: The same call is already in the plan" in self.refused(clerk, ANN, {**ANN})

    def test_a_plan_is_not_planned(self, clerk):
        inner = item("propose_plan", purpose="x", calls=[ANN, BOB])
        assert "2. propose_plan: A plan cannot contain a plan." in self.refused(clerk, ANN, inner)

    def test_a_secret_is_not_planned(self, clerk):
        Tool.objects.filter(name="refund").update(secret_fields=["account"])
        assert "1. refund: It contains a secret" in self.refused(clerk, ANN, EVE)

    def test_calls_that_different_people_decide_are_not_planned_together(self, clerk):
        for name, tool_name in (("payers", "refund"), ("labellers", "label")):
            rule = Rule.objects.create(name=name, tool=tool_name, verdict="ask")
            rule.groups.add(Group.objects.create(name=name))
        assert "Different people decide these calls" in self.refused(clerk, ANN, EVE)

    def test_every_call_that_does_not_belong_is_named_at_once(self, clerk):
        message = self.refused(clerk, item("look_up", what="x"), ANN, item("pay", account="ann", amount=5))
        assert "1. look_up:" in message
        assert "3. pay:" in message
        assert "2. refund" not in message

    @pytest.mark.parametrize("number", [0, 1, 21])
    def test_a_plan_has_two_to_twenty_calls(self, clerk, number):
        items = [item("label", text=str(n)) for n in range(number)]
        run = clerk.run(a_plan(*items), says("done"))
        assert clerk.execution(run, "plan").reason == "invalid_arguments"

    def test_what_was_done_in_this_run_is_not_planned_again(self, clerk, dana):
        run = clerk.run(calls(made("a", ANN)), a_plan(ANN, BOB), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        run = clerk.drive(run)
        assert clerk.execution(run, "plan").reason == "plan_refused"


class TestTheTermsOfAPlan:
    def test_are_the_strictest_of_its_calls(self, clerk):
        team = Group.objects.create(name="payers")
        rule = Rule.objects.create(
            name="two", tool="refund", verdict="ask", risk="high", approvals_needed=2, expires_seconds=600,
            hold_seconds=9,
        )  # fmt: skip
        rule.groups.add(team)
        Rule.objects.create(name="one", tool="label", verdict="ask", expires_seconds=900, hold_seconds=2)
        [approval] = clerk.open(clerk.run(a_plan(ANN, EVE), says("done")))
        assert (approval.risk, approval.approvals_needed, approval.hold_seconds) == ("high", 2, 9)
        assert approval.expires_seconds == 600
        assert list(approval.groups.all()) == [team]

    def test_let_it_only_be_rejected_where_a_rule_lets_a_call_only_be_rejected(self, clerk):
        Rule.objects.create(name="no", tool="label", verdict="ask", allowed_decisions=["reject"])
        [approval] = clerk.open(clerk.run(a_plan(ANN, EVE), says("done")))
        assert approval.allowed_decisions == ["reject"]

    def test_keep_the_starter_from_deciding(self, clerk, sam):
        [approval] = clerk.open(clerk.run(a_plan(ANN, EVE), says("done")))
        with pytest.raises(Refused):
            clerk.decide(approval, sam)

    def test_become_void_when_the_rules_become_stricter_before_it_is_used(self, clerk, dana):
        run = clerk.run(a_plan(ANN, EVE), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        Rule.objects.create(name="two", tool="label", verdict="ask", approvals_needed=2)
        run = clerk.drive(run)
        approval.refresh_from_db()
        assert (run.waiting_for, approval.state, PlannedCall.objects.count()) == ("approval", "superseded", 0)
