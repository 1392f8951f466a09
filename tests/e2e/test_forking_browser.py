"""Forking, replaying and comparing in a real browser: looks, sizes, and the way through without JavaScript."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import actions
from agentapp.models import Run
from approvals.models import Rule
from tests.conftest import Clerk
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


def test_a_run_is_replayed_and_compared(browse: Browse, clerk: Clerk, paid: Run, sam: User) -> None:
    page = browse(sam, f"/runs/{paid.pk}/")
    page.get_by_role("link", name="Replay").first.click()
    page.get_by_role("button", name="Replay and compare").click()
    expect(page.get_by_text("has not ended")).to_be_visible()
    finish(clerk, Run.objects.exclude(pk=paid.pk).get())
    page.get_by_role("link", name="Look again").click()
    expect(page.get_by_text("They are the same")).to_be_visible()
