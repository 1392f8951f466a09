"""Forking, replaying and comparing in a real browser: looks, sizes, and the way through without JavaScript."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from agentapp import actions
from agentapp.models import Run, ToolExecution
from agentapp.tools.base import tool
from approvals.models import Rule
from tests.conftest import Clerk, call, calls
from tests.e2e.looks import look
from tests.forks import BOTH, DONE, LOOK, PAY, fork

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390")]


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    run = clerk.run(LOOK, PAY, DONE, input="Look, then pay Ana.")
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


class Line(BaseModel):
    article: str
    count: int


@tool(effect="irreversible")
def order(lines: list[Line], labels: list[str]) -> str:
    """Order some things."""
    return f"{len(lines)} ordered"


@pytest.fixture
def ordered(clerk: Clerk, offer: Any) -> Run:
    """A run that proposed to order one thing, and was cancelled."""
    offer(order)
    lines = [{"article": "cup", "count": 2}]
    run = clerk.run(calls(call("o", "order", lines=lines, labels=["blue", "gift"]), text="I order."), DONE)
    return actions.cancel_run(run.pk, clerk.starter)


def finish(clerk: Clerk, run: Run) -> Run:
    for _ in range(20):
        if clerk.drive(run).is_final:
            break
    return run


@pytest.mark.parametrize("size", SIZES)
def test_every_page_of_it_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], clerk: Clerk, paid: Run, sam: User, size: tuple[int, int]
) -> None:
    forked = finish(clerk, fork(paid, sam, 3, instructions="Be kind."))
    Rule.objects.create(name="no-pay", tool="pay", verdict="deny", order=1, description="Nobody is paid today.")
    replay = finish(clerk, actions.replay_run(paid.pk, sam))
    other = clerk.run(BOTH, DONE)
    page = browse(sam, "/runs/", *size)
    wrong: dict[str, list[str]] = {}
    for path in (
        f"/runs/{paid.pk}/?step=2",
        f"/runs/{paid.pk}/?step=2&call=0",
        f"/runs/{forked.pk}/",
        f"/runs/{replay.pk}/",
        f"/runs/{paid.pk}/fork/?step=2",
        f"/runs/{paid.pk}/fork/?step=2&call=0",
        f"/runs/{replay.pk}/fork/",
        f"/runs/{other.pk}/fork/",
        f"/runs/{paid.pk}/replay/",
        "/runs/compare/",
        f"/runs/compare/?a={paid.pk}&b={forked.pk}",
        f"/runs/compare/?a={paid.pk}&b={replay.pk}",
        f"/runs/compare/?a={paid.pk}&b={other.pk}",
    ):
        page.goto(path)
        look(page, path, wrong)
    assert wrong == {}
    assert [said for said in complaints if "409" not in said] == []


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_call_is_forked_with_another_amount_and_the_two_are_compared(
    browse: Browse, clerk: Clerk, paid: Run, sam: User, script: bool
) -> None:
    page = browse(sam, f"/runs/{paid.pk}/?step=2&call=0", java_script_enabled=script)
    page.get_by_role("link", name="Fork with other arguments").click()
    page.get_by_label("Amount").fill("7")
    page.get_by_role("button", name="Start the fork").click()
    page.wait_for_url(lambda url: "/fork/" not in url)
    forked = clerk.drive(Run.objects.exclude(pk=paid.pk).get())
    assert clerk.open(forked)[0].title == "Pay $7.00 to Ana"
    page.reload()
    page.get_by_role("link", name="Compare").first.click()
    expect(page.get_by_role("row", name="amount")).to_contain_text("7")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_entries_are_added_to_a_call_and_removed_before_it_is_forked(
    browse: Browse, complaints: list[str], clerk: Clerk, ordered: Run, sam: User, script: bool
) -> None:
    page = browse(sam, f"/runs/{ordered.pk}/fork/?step=1&call=0", java_script_enabled=script)
    page.get_by_label("Instructions of the agent").fill("Be quick.")
    page.get_by_role("button", name="Add one").click()
    page.get_by_label("Article").nth(1).fill("kettle")
    page.get_by_label("Count", exact=True).nth(1).fill("1")
    page.get_by_role("button", name="Remove blue").click()
    expect(page.get_by_role("button", name="Remove blue")).to_have_count(0)
    page.get_by_role("button", name="Remove Line").first.click()
    expect(page.get_by_label("Article")).to_have_count(1)
    page.get_by_role("button", name="Start the fork").click()
    page.wait_for_url(lambda url: "/fork/" not in url)
    forked = clerk.drive(Run.objects.exclude(pk=ordered.pk).get())
    assert forked.agent_snapshot["instructions"] == "Be quick."
    assert complaints == []
    proposed = ToolExecution.objects.get(run=forked)
    assert proposed.args == {"lines": [{"article": "kettle", "count": 1}], "labels": ["gift"]}


def test_a_run_is_replayed_and_compared(browse: Browse, clerk: Clerk, paid: Run, sam: User) -> None:
    page = browse(sam, f"/runs/{paid.pk}/")
    page.get_by_role("link", name="Replay").first.click()
    page.get_by_role("button", name="Replay and compare").click()
    expect(page.get_by_text("has not ended")).to_be_visible()
    finish(clerk, Run.objects.exclude(pk=paid.pk).get())
    page.get_by_role("link", name="Look again").click()
    expect(page.get_by_text("They are the same")).to_be_visible()
