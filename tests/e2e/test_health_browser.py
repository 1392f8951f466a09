"""The list of problems above every page for staff: it appears by itself, is accessible, and hides nothing."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import breakers
from agentapp.breakers import Thing
from approvals import ledger
from tests.e2e.looks import shot, sideways, violations

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_what_is_wrong_stands_above_the_page(
    browse: Browse, complaints: list[str], transactional_db: None, ada: User, size: tuple[int, int]
) -> None:
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(Thing("tool", "send"), "The line is dead.")
    page = browse(ada, "/inbox/", *size)
    banner = page.locator("#unwell")
    expect(banner).to_contain_text("1 breaker is open")
    expect(banner).to_contain_text("(send)")
    shot(page, "unwell")
    box, main = banner.bounding_box(), page.locator("#main").bounding_box()
    assert box is not None
    assert main is not None
    assert box["y"] + box["height"] <= main["y"], "it lies over the page"
    assert violations(page) == []
    assert not sideways(page)
    assert complaints == []


def test_what_is_wrong_pushes_nothing_out_of_view(
    browse: Browse, complaints: list[str], transactional_db: None, ada: User
) -> None:
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(Thing("tool", "send"), "The line is dead.")
    page = browse(ada, "/inbox/", 1440, 900)
    expect(page.locator("#unwell")).to_contain_text("1 breaker is open")
    for part in ("#main", ".rail .account"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, part
    assert complaints == []
