"""What the API says of a plan."""

from typing import Any

from django.contrib.auth.models import User

from tests.conftest import Clerk, calls, says
from tests.plans import ANN, BOB, a_plan, approved_plan, let_plan, made, refund


def test_a_plan_that_waits_has_its_calls_in_our_words(deciding: Any, clerk: Clerk, offer: Any, settings: Any) -> None:
    offer(refund)
    let_plan(clerk, settings)
    [approval] = clerk.open(clerk.run(a_plan(ANN, BOB), says("done")))
    shown = deciding.get(f"/approvals/{approval.pk}").data
    assert (shown["kind"], shown["title"]) == ("plan", "Carry out 2 calls as one plan")
    first, second = shown["plan"]
    assert (first["position"], first["tool"], first["args"]["account"]) == (1, "refund", "ann")
    assert first["sentence"] == "The agent will refund $5.00 to Ann (ann)."
    assert (second["snapshot"], second["use_by"], second["execution"]) == (
        {"holder": "Bob", "balance": 100},
        None,
        None,
    )


def test_a_plan_that_was_approved_says_which_execution_each_call_became(
    deciding: Any, clerk: Clerk, dana: User, offer: Any, settings: Any
) -> None:
    offer(refund)
    let_plan(clerk, settings)
    run, approval = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)))
    first, second = deciding.get(f"/approvals/{approval.pk}").data["plan"]
    assert first["execution"] == str(clerk.execution(run, "a").pk)
    assert (second["execution"], second["use_by"] is not None, second["ended_at"]) == (None, True, None)
