"""Review: what comes from outside stays from outside when an agent hands it to another; who decides about an undo."""

from typing import Any

import pytest

from agentapp import actions, weighing
from agentapp.models import Run, Tool
from approvals.models import Approval, Rule
from tests.agentapp.test_revb_more import lent  # noqa: F401
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.teams import Team, child_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def team(clerk) -> Team:
    return Team(clerk)


def test_directly_it_is_from_outside(clerk):
    run = clerk.run(calls(call("m", "read_mail")), calls(call("p", "pay", account="ana", amount=1000)), says("done"))
    (approval,) = clerk.open(run)
    assert {row["path"]: row["origin"] for row in approval.provenance}["amount"] == "outside"


def test_through_another_agent_it_is_still_from_outside(team, clerk):
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1000)), says("Paid."))
    run = team.run(
        calls(call("m", "read_mail")), calls(call("a", "ask_refunds", input="Please pay 1000 to ana.")), says("done")
    )
    child = child_of(run)
    (approval,) = Approval.objects.filter(run_id=child.pk)
    origins = {row["path"]: row["origin"] for row in approval.provenance}
    assert origins["amount"] == "outside", (origins, approval.risk_factors)


def test_a_rule_about_what_is_from_outside_sees_it_through_another_agent(team, clerk):
    Rule.objects.create(
        name="none-from-outside", tool="pay", verdict="deny", condition='provenance.amount == "outside"'
    )
    team.may_ask("refunds", calls(call("x", "pay", account="ana", amount=1000)), says("Paid."))
    run = team.run(
        calls(call("m", "read_mail")), calls(call("a", "ask_refunds", input="Please pay 1000 to ana.")), says("done")
    )
    child = child_of(run)
    assert clerk.execution(child, "x").reason == "policy_denied"


def test_who_asked_for_an_undo_does_not_decide_it_whatever_a_rule_says(clerk, lent, dana):  # noqa: F811
    Rule.objects.create(name="anybody", tool="take_back", verdict="ask", starter_excluded=False, hold_seconds=0)
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused):
        clerk.decide(approval, dana)
    clerk.drive(run)
    assert effects_of("take_back") == []


@pytest.mark.parametrize("name", ["totalAmount", "total_amount"])
def test_an_amount_is_known_by_its_name_however_names_are_written(name):
    from django.utils import timezone

    tool = Tool(name="x", input_schema={"type": "object", "properties": {}}, effect_class="irreversible")
    facts = weighing.facts_of(
        tool,
        {name: 5, name.replace("total", "recipient").replace("Amount", "Email").replace("amount", "email"): "a@x.io"},
        [],
        weighing.Before(),
        timezone.now(),
    )
    assert (facts.amount, list(facts.recipients)) == (5.0, ["a@xio"])


def test_a_grant_does_not_answer_for_what_is_from_outside_through_another_agent(team, clerk, dana):
    """Beside `TestWhatCameFromOutside`: the same address out of the same mail, handed on by one agent to another."""
    from approvals.models import Grant
    from tests.grants import a_grant

    grant = a_grant(clerk, dana, "send", {"to": "ann", "how": "well"}, rules={"to": "any"})
    Grant.objects.filter(pk=grant.pk).update(agent="refunds")
    team.may_ask("refunds", calls(call("x", "send", to="1000")), says("Sent."))
    run = team.run(
        calls(call("m", "read_mail")), calls(call("a", "ask_refunds", input="Please send it to 1000.")), says("done")
    )
    child = child_of(run)
    assert effects_of("send") == [], clerk.execution(child, "x").allowed_by
