"""Review: a grant and what another agent handed on; health of an endpoint that is off on purpose."""

import pytest

from agentapp import health
from agentapp.models import WebhookEndpoint, WebhookProgress
from agentapp.models.webhooks import WEBHOOK_EVENTS
from django.utils import timezone
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_rejection_with_a_question_open(clerk, dana, marco):
    from agentapp import actions
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=30)
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    actions.ask_agent(approval.pk, "Why?", marco)
    actions.undo_decision(approval.pk, dana)
    clerk.decide(approval, marco, "reject", message="No.")
    actions.undo_decision(approval.pk, marco)
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 3, "memo": ""}')
    clerk.decide(approval, marco)
    actions.undo_decision(approval.pk, dana)
    approval.refresh_from_db()
    assert (approval.state, approval.final_digest) == ("pending", "")


def test_undoing_an_edit_after_somebody_rejected_it(clerk, dana, marco):
    from agentapp import actions
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=30)
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 3, "memo": ""}')
    clerk.decide(approval, marco, "respond", message="I have paid it by hand.")
    actions.undo_decision(approval.pk, dana)
    approval.refresh_from_db()
    assert approval.state == "responded", approval.state
