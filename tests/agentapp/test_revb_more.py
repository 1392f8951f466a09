"""Review: origins of what is taken back, amounts as texts, secrets in results, a changed secret, long histories."""

from typing import Any

import pytest

from agentapp import actions
from agentapp.models import Tool, ToolExecution
from agentapp.tools.base import tool
from approvals.models import Rule
from tests.agentapp.test_undoing import LENT, lending, take_back
from tests.clerk_tools import note
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lent(clerk, offer, dana):
    LENT.clear()

    def make(amount: float = 2050, lend: Any = None) -> ToolExecution:
        offer(lend or lending(), take_back)
        clerk.agent.tools.remove(Tool.objects.get(name="take_back"))
        run = clerk.run(calls(call("a", "lend", account="ana-3344-5566", amount=20)), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).state == "succeeded"
        return clerk.execution(run, "a")

    return make


def secretive() -> Any:
    @tool("give", effect="compensable", title="Give {amount:money}", secret=("iban",))
    def give(iban: str, amount: float) -> dict[str, Any]:
        """Give."""
        note("give", iban=iban, amount=amount)
        return {"iban": iban, "given": amount}

    return give


def test_the_end_of_a_long_history_is_shown(clerk, dana, client):
    Rule.objects.create(name="hold", tool="pay", verdict="ask", hold_seconds=30)
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    for _ in range(20):
        clerk.decide(approval, dana)
        actions.undo_decision(approval.pk, dana)
    clerk.decide(approval, dana, "reject", message="No.")
    client.force_login(dana)
    history = client.get(f"/approvals/{approval.pk}/").context["history"]
    assert "rejected" in history[-1].words, history[-1]
