"""Review: a rejection that has not been told yet, and a contract that changes; what the batch decides."""

import json
from typing import Any

import pytest

from agentapp import actions, contracts, runs
from agentapp.models import Run, Tool, ToolExecution
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_rejection_stands_though_the_contract_changes_before_it_is_told(clerk, dana, marco):
    run = clerk.run(
        calls(call("p", "pay", account="ana", amount=5), call("q", "pay_once", account="bo", amount=6)), says("done")
    )
    first, second = clerk.open(run)
    assert second.tool == "pay_once"
    clerk.decide(second, marco, "reject", message="Bo is a fraud.")
    clerk.drive(run)
    Tool.objects.filter(name="pay_once").update(version="2" * 64)
    contracts.void_outdated()
    clerk.drive(run)
    states = list(Approval.objects.filter(tool="pay_once").order_by("created_at").values_list("state", flat=True))
    assert states == ["rejected"], states


def test_what_an_edit_that_changes_nothing_comes_to(clerk, dana):
    Rule.objects.create(name="only-edits", tool="pay", verdict="ask", allowed_decisions=["edit", "reject"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana, "edit", arguments_text=approval.arguments_text)
    clerk.drive(run)
    print(
        effects_of("pay"),
        run.state,
        [(a.state, a.reason, a.difference) for a in Approval.objects.order_by("created_at")],
    )
    print(
        [
            e
            for e in __import__("approvals.models")
            .models.Event.objects.filter(type="approval.superseded")
            .values_list("body", flat=True)
        ]
    )
    assert run.state == "succeeded"


def test_a_lent_right_and_a_comment(clerk, dana, marco):
    pass
