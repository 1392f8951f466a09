"""A forgotten password in a browser: every page of it in both schemes, and the whole way without JavaScript."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from celery import current_app
from django.contrib.auth.models import User
from playwright.sync_api import Page, Request, expect

from tests.e2e.looks import look
from tests.e2e.test_signin_browser import EXPECTED, SIZES, code, sign_in

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
NEW = "a staple that was new"


@pytest.fixture(autouse=True)
def _mail_is_sent(server: str, settings: Any) -> Iterator[None]:
    settings.PASSWORD_RESET, settings.BASE_URL = True, server
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


def ask(page: Page, address: str = "dana@example.test") -> None:
    page.get_by_label("Mail", exact=True).fill(address)
    page.get_by_role("button", name="Mail me a link").click()
    expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()


def choose(page: Page, password: str, again: str) -> None:
    page.get_by_label("New password", exact=True).fill(password)
    page.get_by_label("New password again").fill(again)
    page.get_by_role("button", name="Set the password").click()


def link_in(mail: Any) -> str:
    return str(re.findall(r"http\S+/login/reset/\S+", mail.body)[0])


@pytest.mark.parametrize("size", SIZES, ids=["1440", "390", "320"])
def test_every_page_of_a_reset_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], dana: User, mailoutbox: Any, size: tuple[int, int]
) -> None:
    wrong: dict[str, list[str]] = {}
    page = browse(None, "/login/", *size)
    look(page, "signin", wrong)
    page.get_by_role("link", name="Forgot your password?").click()
    look(page, "ask", wrong)
    page.get_by_label("Mail", exact=True).fill("dana@example")
    page.get_by_role("button", name="Mail me a link").click()
    expect(page.get_by_text("Enter a valid email address.")).to_be_visible()
    look(page, "ask-wrong", wrong)
    ask(page)
    look(page, "asked", wrong)
    page.goto(link_in(mailoutbox[0]))
    look(page, "new", wrong)
    choose(page, "password", "else")
    expect(page.get_by_text("too short")).to_be_visible()
    look(page, "new-wrong", wrong)
    choose(page, NEW, NEW)
    expect(page.get_by_text("Your password was changed.")).to_be_visible()
    look(page, "changed", wrong)
    page.goto(link_in(mailoutbox[0]))
    expect(page.get_by_text("This link is not valid.")).to_be_visible()
    look(page, "dead", wrong)
    assert wrong == {}
    assert [text for text in complaints if not EXPECTED.search(text)] == []


def test_a_forgotten_password_is_replaced_without_script_and_the_second_step_stays(
    browse: Browse, server: str, dana: User, mailoutbox: Any
) -> None:
    secret = generate_totp_secret()
    TOTP.activate(dana, secret)
    page = browse(None, "/login/", java_script_enabled=False)
    page.get_by_role("link", name="Forgot your password?").click()
    ask(page)
    link = link_in(mailoutbox[0])
    told: list[str] = []

    def note(request: Request) -> None:
        told.append(request.headers.get("referer", ""))

    page.on("request", note)
    page.goto(link)
    expect(page).to_have_url(re.compile("-set-password/$"))
    choose(page, NEW, NEW)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, password=NEW)
    expect(page).to_have_url(re.compile("/login/second/"))
    page.get_by_label("Code").fill(code(secret))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    page.context.clear_cookies()
    page.goto(link)
    page.get_by_role("link", name="Ask for a new link").click()
    expect(page.get_by_role("button", name="Mail me a link")).to_be_visible()
    assert [one for one in told if link.removeprefix(server) in one] == []
