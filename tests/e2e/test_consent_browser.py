"""What a call would change, what it did change, and undoing it: readable at any width, light and dark."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp.tools.base import EffectLine, tool
from approvals.models import Approval
from tests.conftest import Clerk, call, calls, says
from tests.e2e.looks import shot, sideways, violations

pytestmark = pytest.mark.browser
GIVEN = {"credit": 0.0, "fee": 0.0}


@tool(effect="compensable", title="Cancel credit {credit}", sentence="The agent will cancel {credit}.", button="Cancel")
def cancel_credit(credit: str) -> str:
    """Cancel credit."""
    GIVEN["credit"] = 0
    return "cancelled"


@tool(
    effect="compensable",
    title="Give {customer} {amount:money} of store credit",
    sentence="The agent will give {customer} {amount:money} of store credit.",
    effects=(EffectLine("{amount:money} of credit", "Can be spent on any order", "money"),),
    button="{amount:money}",
    preview=lambda amount: [
        {"name": "Store credit", "before": f"${GIVEN['credit']:.2f}", "after": f"${GIVEN['credit'] + amount:.2f}"},
        {"name": "Emails to the customer", "after": 1},
    ],
    outcome=lambda: {"Store credit": f"${GIVEN['credit']:.2f}", "Emails to the customer": 1},
    undone_by="cancel_credit",
    undo=lambda result: {"credit": result["credit"]},
)
def give_credit(customer: str, amount: float) -> dict[str, Any]:
    """Give credit."""
    GIVEN["credit"] += amount + GIVEN["fee"]
    return {"credit": "CR-7"}


@pytest.fixture
def asked(clerk: Clerk, offer: Callable[..., Any]) -> Approval:
    GIVEN.update(credit=0.0, fee=0.0)
    offer(give_credit, cancel_credit)
    give = call("a", "give_credit", customer="Lena Fischer", amount=15)
    run = clerk.run(
        calls(give, text="A small credit is allowed."), says("done"), input="Ticket 88155: a chip in the lid"
    )
    (approval,) = clerk.open(run)
    return approval


def fits(page: Page, name: str) -> None:
    """Nothing wider than the page, no findings by axe; a picture if one is wanted."""
    shot(page, name, full_page=True)
    assert not sideways(page)
    assert violations(page) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_from_dry_run_over_drift_to_undo(
    browse: Callable[..., Page], clerk: Clerk, asked: Approval, dana: User, marco: User, width: int
) -> None:
    page = browse(dana, f"/approvals/{asked.pk}/", width)
    dry_run = page.get_by_role("region", name="Dry run")
    expect(dry_run).to_contain_text("$0.00 → $15.00")
    fits(page, "dry-run")
    GIVEN["fee"] = 2.5
    clerk.decide(asked, dana)
    run = clerk.drive(asked.execution.run)  # type: ignore[attr-defined]
    page.goto(f"/runs/{run.pk}/?step=1&call=0")
    expect(dry_run).to_contain_text("1 came out differently")
    expect(dry_run).to_contain_text("is $17.50")
    fits(page, "drift")
    page.get_by_role("link", name="Undo…").click()
    page.get_by_label("Why should it be undone?").fill("The chip was ours to mend, not to pay for.")
    fits(page, "undo-form")
    page.get_by_role("button", name="Ask for it to be undone").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Undo give_credit")
    undoing = clerk.drive(asked.execution.undone_in.get())  # type: ignore[attr-defined]
    page.goto(f"/runs/{undoing.pk}/")
    expect(page.get_by_text("This takes a call back:")).to_be_visible()
    fits(page, "undo-run")
    (request,) = clerk.open(undoing)
    page = browse(marco, f"/approvals/{request.pk}/", width)
    expect(page.get_by_text("This takes a call back:")).to_be_visible()
    fits(page, "undo-request")
    page.goto(f"/approvals/{asked.pk}/")
    expect(page.get_by_text(f"Undo asked for in {undoing.reference}")).to_be_visible()
    fits(page, "undone")
