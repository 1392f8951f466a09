"""The pages of grants in a browser: the meaning is shown while it is typed, and everybody can use them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import actions
from agentapp.tools.base import ToolContext, tool
from approvals.models import Approval, Grant
from tests.conftest import Clerk, call, calls, says
from tests.e2e.conftest import kept, sent_signed_out
from tests.e2e.looks import look
from tests.grants import grant_from, let_grant

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]

CREDIT = call("c", "credit", to="ann@mail.example", amount=40, note="For the broken kettle.")


@pytest.fixture
def asked(clerk: Clerk, offer: Any) -> Approval:
    @tool(effect="compensable", limits={"recipients": 50}, title="Give {to} store credit of {amount:money}")
    def credit(to: str, amount: float, note: str, context: ToolContext) -> str:
        """Give somebody store credit."""
        context.count("recipients")
        return f"{amount} to {to}"

    offer(credit)
    return clerk.open(clerk.run(calls(CREDIT), says("done"), input="Credit for Ann"))[0]


@pytest.fixture
def grants(clerk: Clerk, asked: Approval, dana: User) -> list[Grant]:
    bounds = {"rules": {"to": "any", "note": "any", "amount": "at_most"}, "most": {"amount": "50"}}
    limits = {"sums": {"amount": "500"}, "counts": {"recipients": "10"}, "max_hits": "20"}
    made = [grant_from(asked, dana, **bounds, **limits), grant_from(asked, dana, reason="The same once more.")]
    actions.revoke_grant(made[1].pk, "One is enough.", dana)
    for _ in range(3):
        clerk.run(calls(CREDIT), says("done"), input="Credit for Ann")
    return made


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_every_page_of_grants_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], dana: User, asked: Approval, grants: list[Grant], size: Any
) -> None:
    page = browse(let_grant(dana), "/grants/", *size)
    paths = {"grants": "/grants/", "grant": f"/grants/{grants[0].pk}/", "revoked": f"/grants/{grants[1].pk}/"}
    paths |= {"new": f"/approvals/{asked.pk}/grant/", "request": f"/approvals/{asked.pk}/"}
    wrong: dict[str, list[str]] = {}
    for name, path in paths.items():
        page.goto(path)
        look(page, name, wrong, full_page=True)
    assert wrong == {}
    assert complaints == []


def test_what_is_typed_is_said_in_words_and_then_allowed_and_taken_back(
    browse: Browse, dana: User, asked: Approval
) -> None:
    page = browse(let_grant(dana), f"/approvals/{asked.pk}/")
    page.locator("summary[aria-label='More actions']:visible").first.click()
    page.get_by_role("link", name="Allow calls like this for a while").first.click()
    amount = page.get_by_role("group", name="amount")
    amount.get_by_label("At most", exact=True).check()
    page.get_by_label("The most that amount may be").fill("75")
    expect(page.locator("#meaning")).to_contain_text("amount is at most 75")
    page.get_by_label("Why").fill("Small credits are harmless.")
    page.get_by_role("button", name="Allow for a while").click()
    expect(page.get_by_role("heading", name="clerk may call credit")).to_be_visible()
    page.get_by_label("Why").fill("Not any more.")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text(re.compile("is revoked. Calls like these ask again."))).to_be_visible()


def test_why_it_is_allowed_and_taken_back_is_there_again(
    browse: Browse, dana: User, asked: Approval, grants: list[Grant]
) -> None:
    why = "The carrier pays until Friday."
    page = browse(let_grant(dana), f"/approvals/{asked.pk}/grant/")
    page.get_by_label("Why").fill(why)
    page.reload()
    expect(page.get_by_label("Why")).to_have_value(why)

    page.goto(f"/grants/{grants[0].pk}/")
    expect(page.get_by_label("Why")).to_have_value("")
    page.get_by_label("Why").fill(why)
    sent_signed_out(page, "**/revoke/", "Revoke", "dana")
    page.goto(f"/grants/{grants[0].pk}/")
    expect(page.get_by_label("Why")).to_have_value(why)
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_text(re.compile("is revoked. Calls like these ask again."))).to_be_visible()
    assert [name for name in kept(page) if "revoke" in name] == []
