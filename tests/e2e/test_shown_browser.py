"""The browser's own notifications, in a browser that can show them."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, Playwright, expect

from tests.e2e.conftest import BROWSERS, launched

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Browse = Callable[..., Page]


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright, BROWSERS) as browser:
        yield browser


def test_a_test_notification_says_of_mail_and_browser_what_became_of_it(browse: Browse, dana: User) -> None:
    page = browse(dana, "/settings/notifications/")
    page.get_by_role("button", name="Send a test").click()
    said = page.locator("[data-tested]")
    expect(said).to_contain_text("the mail server accepted it for dana@example.test")
    expect(said).to_contain_text("Browser: not shown.")
    page.context.grant_permissions(["notifications"])
    page.get_by_role("button", name="Send a test").click()
    expect(said).to_contain_text("Browser: shown")
