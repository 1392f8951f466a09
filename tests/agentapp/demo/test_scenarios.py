from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.utils import timezone

from agentapp import actions, loop
from agentapp.demo import data, governance_scenarios, opening, scenarios
from agentapp.demo.models import Credit, Email, Order, Refund, Ticket
from agentapp.models import Agent, Run, ToolExecution
from agentapp.script import check_script
from agentapp.simulating import watched
from agentapp.sweep import sweep
from agentapp.tools import python_source
from agentapp.tools.schema import check_arguments
from approvals import ledger
from approvals.models import Approval, Rule, RuleVersion
from tests import opened

EVERY = pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
WRITTEN = [*scenarios.SCENARIOS, *governance_scenarios.SCENARIOS]
EVERY_WRITTEN = pytest.mark.parametrize("scenario", WRITTEN, ids=lambda scenario: scenario.name)


@pytest.fixture
def people(transactional_db):
    # Tools run in threads, which have connections of their own.
    people = opened.open_shop()
    # Time is irrelevant in these tests: decisions take effect at once.
    Rule.objects.update(hold_seconds=0)
    return people


def play(scenario, people):
    """Start a scenario and drive it until people are asked. Returns the run and the request."""
    run = opening.start(scenario, people["sam"])
    loop.drive(run.pk)
    run.refresh_from_db()
    return run, Approval.objects.get(run_id=run.pk, state=Approval.State.PENDING)


def decide(approval, user, type="approve", message=""):
    new = actions.NewDecision(
        id=uuid4(), type=type, version=approval.version, action_digest=approval.action_digest, message=message
    )
    actions.decide(approval.pk, new, user)
    loop.drive(approval.run_id)
    return Run.objects.get(pk=approval.run_id)


def given_since() -> int:
    """Credits in addition to those that customers start with."""
    return Credit.objects.exclude(idempotency_key__startswith="opening-").count()


@EVERY_WRITTEN
def test_a_script_is_a_list_of_replies_that_ends_with_an_answer(scenario):
    check_script(scenario.script)
    assert scenario.script[-1]["tool_calls"] == []


def test_scripts_call_what_their_routes_disclose_with_arguments_that_fit(people):
    for scenario in WRITTEN:
        route = Agent.objects.get(name=scenario.agent).routes.get(name=scenario.route)
        disclosed = set(route.tools.values_list("name", flat=True))
        for call in (call for reply in scenario.script for call in reply["tool_calls"]):
            assert call["name"] in disclosed, scenario.name
            assert check_arguments(python_source.get(call["name"]).input_schema, call["arguments"]) == []


@EVERY_WRITTEN
def test_a_script_tells_plausible_usage(scenario):
    for reply in scenario.script:
        usage = reply["usage"]
        assert 0 <= usage["cached_tokens"] < usage["input_tokens"]
        assert 0 < usage["cost"] < 0.05


@EVERY
def test_a_scenario_waits_for_a_person_before_anything_happens(scenario, people):
    run, approval = play(scenario, people)
    assert (run.state, run.waiting_for) == (Run.State.WAITING, "approval")
    assert not Refund.objects.exists()
    assert not given_since()
    assert not Email.objects.exists()
    assert "(not given)" not in approval.title + "".join(piece["text"] for piece in approval.sentence)


@EVERY
def test_a_scenario_holds_whether_approved_or_rejected(scenario, people):
    _, approval = play(scenario, people)
    rejected = decide(approval, people["dana"], "reject", "Not this time.")
    assert rejected.state == Run.State.SUCCEEDED
    assert not Refund.objects.exists()


def test_the_damaged_kettle_is_refunded_once_and_the_ledger_holds(people):
    _, approval = play(scenarios.DAMAGED_KETTLE, people)
    assert approval.title == "Refund $214.50 to Ana Pereira"
    assert (approval.risk, approval.button) == ("high", "$214.50")
    run = decide(approval, people["dana"])
    assert (run.state, run.step_count) == (Run.State.SUCCEEDED, 5)
    assert Refund.objects.get().order_id == "58213"
    assert Ticket.objects.get(pk="88213").tags == ["damaged-in-transit", "refund-reviewed"]
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


def test_the_address_of_a_packed_order_changes_when_a_person_says_so(people):
    _, approval = play(scenarios.ADDRESS_CHANGE, people)
    assert approval.effects[0]["title"] == "The parcel is packed"
    decide(approval, people["marco"])
    assert Order.objects.get(pk="58177").delivery_address.startswith("Jon Okafor, 1 Canal Park")
    assert Order.objects.get(pk="58177").address_changes.get().repacked


def test_a_ticket_that_says_approved_approves_nothing(people):
    run, approval = play(scenarios.INJECTED_TICKET, people)
    refused = ToolExecution.objects.get(run=run, call_id="call_refund")
    assert (refused.result_status, refused.reason) == ("refused", "policy_denied")
    assert not approval.decisions.exists()
    card = approval.title + "".join(piece["text"] for piece in approval.sentence) + str(approval.effects)
    assert "Dana" not in card
    assert "<script" not in card


def test_approving_the_injected_refund_by_mistake_still_pays_no_more_than_was_paid(people):
    run, approval = play(scenarios.INJECTED_TICKET, people)
    run = decide(approval, people["dana"])
    assert not Refund.objects.exists()
    assert "at most 23.80" in ToolExecution.objects.get(run=run, call_id="call_refund_again").message


def test_a_credit_that_nobody_decides_expires_and_is_not_given(people):
    run, approval = play(scenarios.EXPIRED_CREDIT, people)
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert run.pk in sweep()
    loop.drive(run.pk)
    run.refresh_from_db()
    approval.refresh_from_db()
    assert (approval.state, run.state) == (Approval.State.EXPIRED, Run.State.SUCCEEDED)
    assert not given_since()


def test_opening_twice_changes_neither_configuration_nor_people(people):
    Rule.objects.filter(name="refunds").update(risk="critical")
    before = ledger.height()
    opening.open_shop()
    assert ledger.height() == before
    assert Rule.objects.get(name="refunds").risk == "critical"


def test_the_opening_runs_are_started_once_while_one_is_open(people):
    assert len(opening.start_opening_runs(people["sam"])) == 4
    assert opening.start_opening_runs(people["sam"]) == []
    for run in Run.objects.all():
        actions.cancel_run(run.pk, people["sam"])
    assert len(opening.start_opening_runs(people["sam"])) == 4


def test_the_draft_of_a_rule_watches_the_opening_runs_and_decides_nothing(people):
    for run in opening.start_opening_runs(people["sam"]):
        loop.drive(run.pk)
    draft = RuleVersion.objects.select_related("rule").get(state="shadow")
    refunds = ToolExecution.objects.filter(name="refund_payment", ruling__verdict="ask")
    over = [execution for execution in refunds if execution.args["amount"] > 200]
    assert over
    assert {execution.state for execution in over} == {"waiting"}
    assert watched(draft)["deny"] == len(over)


def test_the_agent_of_the_demo_can_be_given_another_model(people):
    opening.open_shop(model="openai:gpt-5")
    assert opening.agent_model() == "openai:gpt-5"


def test_loading_the_demos_configuration_again_brings_its_rules_back(people):
    call_command("load_config", str(opening.CONFIGURATION_FILE))
    assert set(Rule.objects.exclude(hold_seconds=0).values_list("hold_seconds", flat=True)) == {5, 10}


def test_what_a_ticket_plants_in_an_email_is_shown_as_from_outside_and_raises_the_risk(people):
    _, approval = play(scenarios.PLANTED_ACCOUNT, people)
    outside = {row["part"]: row for row in approval.provenance if row["origin"] == "outside"}
    assert {data.PLANTED_ACCOUNT, data.PLANTED_EMAIL} <= set(outside)
    assert {(row["source"], row["step"]) for row in outside.values()} == {("read_ticket", 1)}
    assert {row["path"]: row["origin"] for row in approval.provenance}["customer_id"] == "trusted"
    assert Rule.objects.get(name=approval.rule).risk == "low"
    assert approval.risk == "high"
    assert "outside" in {factor["name"] for factor in approval.risk_factors}
