"""Review: undoing decisions, questions, provenance, what the model is told."""

import json

import pytest
from django.contrib.auth.models import User

from agentapp import actions, answering
from agentapp.answers import answer
from agentapp.llm import ModelError
from agentapp.models import Run, Tool, ToolExecution
from agentapp.transcript import load_steps
from approvals.models import Approval, Question, Rule
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def pays():
    return calls(call("p", "pay", account="ana", amount=5))


def test_taking_back_ones_approval_does_not_take_back_the_rejection_of_another(clerk, dana, marco, roles):
    """Dana approves (two are needed), Marco rejects, Dana takes her approval back: Marco's rejection must stand."""
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=30)
    ned = make_user("ned", "approver")
    run = clerk.run(pays(), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.decide(approval, marco, "reject", message="This is fraud.")
    approval.refresh_from_db()
    assert approval.state == "rejected"
    actions.undo_decision(approval.pk, dana)
    approval.refresh_from_db()
    assert approval.state == "rejected", f"now {approval.state}; Marco never took his rejection back"


def test_what_marco_rejected_runs_without_him(clerk, dana, marco, roles):
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=0)
    ned = make_user("ned", "approver")
    run = clerk.run(pays(), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.decide(approval, marco, "reject", message="This is fraud.")
    actions.undo_decision(approval.pk, dana)  # before the worker comes
    approval.refresh_from_db()
    for user in (dana, ned):
        clerk.decide(approval, user)
    clerk.drive(run)
    assert effects_of("pay") == [], "Marco rejected it, and never took that back"
