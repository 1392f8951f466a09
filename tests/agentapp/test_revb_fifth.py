"""Review: whose wish it is that a run stops; comments; captions."""

from typing import Any

import pytest

from agentapp import actions
from agentapp.models import Run, Tool
from approvals.models import Approval, Notification, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_is_stopped_by_who_rejects_and_wants_it_stopped(clerk, dana, marco, roles):
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2)
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana, stop_run=True)
    clerk.decide(approval, marco, "reject", message="Not this one; propose another.")
    run = clerk.drive(run)
    assert run.state == "succeeded", (run.state, run.stop_reason, run.stop_message)
