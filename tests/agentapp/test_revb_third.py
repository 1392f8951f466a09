"""Review: asking for an undo that nobody decided; what may be decided; dry runs."""

from typing import Any

import pytest
from django.utils import timezone

from agentapp import actions, runs
from agentapp.models import Run
from agentapp.tools.base import tool
from approvals import decisions, ledger
from approvals.models import Approval, Rule
from tests.agentapp.test_revb_more import lent  # noqa: F401
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_undo_that_nobody_decided_in_time_can_be_asked_for_again(clerk, lent, dana, marco):  # noqa: F811
    done = lent()
    run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
    (approval,) = clerk.open(run)
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now())
    with ledger.transaction():
        runs.lock(run.pk)
        assert decisions.expire(approval.pk)
    runs_wake = Run.objects.filter(pk=run.pk).update(wake_at=timezone.now())
    run = clerk.drive(run)
    assert run.is_final
    again = actions.undo_call(done.pk, "It is still wrong.", dana)
    assert again.pk != run.pk


def test_an_undo_whose_run_was_cancelled_can_be_asked_for_again(clerk, lent, dana, marco):  # noqa: F811
    done = lent()
    run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
    actions.cancel_run(run.pk, dana)
    again = actions.undo_call(done.pk, "It is still wrong.", dana)
    assert again.pk != run.pk


def test_an_edit_that_changes_nothing_is_no_approval_where_the_rule_allows_none(clerk, dana):
    Rule.objects.create(name="only-edits", tool="pay", verdict="ask", allowed_decisions=["edit", "reject"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused):
        clerk.decide(approval, dana, "edit", arguments_text=approval.arguments_text)
    clerk.drive(run)
    assert effects_of("pay") == []


def test_what_a_dry_run_that_failed_says_hides_secrets(clerk, offer, dana):
    def failing(pin: str, door: str) -> Any:
        raise RuntimeError(f"no door for {pin}")

    @tool("unlock", effect="irreversible", secret=("pin",), preview=failing)
    def unlock(pin: str, door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", pin="  48213377 ", door="x")), says("done"))
    (approval,) = clerk.open(run)
    assert "48213377" not in approval.preview_text


@pytest.mark.parametrize(
    "found",
    [
        [{"name": "a", "after": float("nan")}],
        [{"name": "a", "after": 10**400}],
        [{"name": "a", "after": 2**60}],
        [{"name": "\ud800", "after": "\x00"}],
        [{"name": "a", "after": 1e300}],
        [{"name": 5, "after": 1}],
        "x",
        None,
        [None],
        [{"name": "a"}],
        [{"name": "a", "after": True, "before": None}],
    ],
)
def test_odd_dry_runs_stop_nothing(clerk, offer, dana, client, found):
    @tool(
        "unlock",
        effect="irreversible",
        preview=lambda door: found,
        outcome=lambda door, result: {"a": float("inf"), "b\ud800": 10**400, "c": 2**60},
    )
    def unlock(door: str) -> str:
        """Unlock."""
        return "ok"

    offer(unlock)
    run = clerk.run(calls(call("a", "unlock", door="x")), says("done"))
    (approval,) = clerk.open(run)
    client.force_login(dana)
    assert client.get(f"/approvals/{approval.pk}/").status_code == 200
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert client.get(f"/approvals/{approval.pk}/").status_code == 200
    assert client.get(f"/runs/{run.pk}/").status_code == 200
