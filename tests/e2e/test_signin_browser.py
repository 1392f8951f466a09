"""Signing in, and settings, in a browser: virtual passkeys, every page in both schemes, no JavaScript."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from agentapp import auth, first_admin
from approvals import absences, ledger
from approvals.models import Event
from tests import openid_provider
from tests.e2e.conftest import PASSWORD
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
type Browse = Callable[..., Page]
SIZES = [(1440, 900), (390, 844), (320, 700)]
# What the browser itself logs about a page that refuses something.
EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of (4\d\d|502)")


def sign_in(page: Page, name: str = "dana", password: str = PASSWORD) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in with password").click()


def renew(page: Page) -> None:
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Use password").click()


def code(secret: str, later: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(timezone.now().timestamp()) // 30 + later))


@pytest.mark.parametrize("size", SIZES, ids=["1440", "390", "320"])
def test_every_page_on_the_way_in_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], settings: Any, size: tuple[int, int]
) -> None:
    wrong: dict[str, list[str]] = {}
    with openid_provider.serving(settings) as provider:
        page = browse(None, f"/setup/?token={first_admin.issue_token()}", *size)
        look(page, "setup", wrong)
        page.goto("/setup/")
        look(page, "setup-token", wrong)
        dana = User.objects.create_user("dana", "dana@example.test", PASSWORD)
        secret = generate_totp_secret()
        TOTP.activate(dana, secret)
        page.goto("/login/?next=/approvals/018f0000-0000-7000-8000-0000007f3ka1/".replace("k", "0"))
        look(page, "signin", wrong)
        provider.refuses = {"error": "server_error", "error_description": "<b>Down</b> for \u202erepairs" * 8}
        page.get_by_role("link", name="Continue with Corp").click()
        expect(page.get_by_role("alert")).to_contain_text("Corp did not sign you in.")
        look(page, "signin-provider", wrong)
        page.goto("/login/")
        sign_in(page, password="wrong")
        expect(page.get_by_role("alert")).to_contain_text("do not match")
        look(page, "signin-wrong", wrong)
        for _ in range(6):
            sign_in(page, "nobody", "wrong")
        expect(page.get_by_role("alert")).to_contain_text("Locked for")
        look(page, "signin-locked", wrong)
        sign_in(page)
        expect(page).to_have_url(re.compile("/login/second/"))
        look(page, "second", wrong)
        page.get_by_label("Code").fill(code(secret))
        page.get_by_role("button", name="Continue").click()
        page.goto("/reauthenticate/?next=/settings/")
        look(page, "reauthenticate", wrong)
        provider.refuses, provider.remembers = {}, True
        provider.person |= {"email": "dana@example.test", "email_verified": True}
        page.goto("/login/sso/corp/?next=/settings/")
        expect(page.get_by_role("alert")).to_contain_text("Corp did not ask you to sign in again.")
        look(page, "not-renewed", wrong)
        provider.silent = True
        page.goto("/login/sso/corp/?next=/settings/")
        expect(page.get_by_role("alert")).to_contain_text("Corp does not say when you signed in.")
        look(page, "not-renewed-untold", wrong)
        page.get_by_role("link", name="Back").click()
        expect(page).to_have_url(re.compile("/reauthenticate/[?]next=.*settings"))
    assert wrong == {}
    assert [text for text in complaints if not EXPECTED.search(text)] == []


@pytest.mark.parametrize("size", SIZES, ids=["1440", "390", "320"])
def test_every_section_of_the_settings_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], dana: User, marco: User, size: tuple[int, int]
) -> None:
    TOTP.activate(dana, generate_totp_secret())
    RecoveryCodes.activate(dana)
    auth.issue_token(dana, "nightly import", ["runs:read", "approvals:decide", "configuration:read"], "test")
    absences.begin(dana, marco, timezone.now(), timezone.now() + timedelta(days=3))
    wrong: dict[str, list[str]] = {}
    page = browse(None, "/login/", *size)
    sign_in(page)
    page.get_by_label("Code").fill(
        RecoveryCodes(Authenticator.objects.get(type="recovery_codes")).get_unused_codes()[0]
    )
    page.get_by_role("button", name="Continue").click()
    for name in ("", "notifications", "keys", "appearance", "security", "sessions", "tokens", "absence", "delegation"):
        page.goto(f"/settings/{name}/".replace("//", "/"))
        look(page, f"settings-{name or 'profile'}", wrong)
    page.goto("/settings/security/passkeys/")
    renew(page)
    expect(page.get_by_role("heading", name="Add a passkey")).to_be_visible()
    look(page, "settings-passkey", wrong)
    for name in ("app/remove", "codes", "codes/new"):
        page.goto(f"/settings/security/{name}/")
        look(page, f"settings-{name.replace('/', '-')}", wrong)
    page.goto("/settings/tokens/")
    page.get_by_label("Name").fill("shown once")
    page.get_by_label("runs:read").check()
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#secret")).to_be_visible()
    look(page, "settings-token-made", wrong)
    Authenticator.objects.all().delete()
    page.goto("/settings/security/app/")
    look(page, "settings-app", wrong)
    assert wrong == {}
    assert [text for text in complaints if not EXPECTED.search(text)] == []


def test_a_passkey_is_added_signs_in_renews_and_is_removed(
    device: Callable[..., Page], complaints: list[str], dana: User
) -> None:
    page = device("/login/?next=/settings/security/")
    sign_in(page)
    page.get_by_role("link", name="Add a passkey").click()
    renew(page)
    page.get_by_label("Name").fill("Work laptop")
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    page.get_by_role("link", name="I have saved them").click()
    expect(page.get_by_text("Work laptop")).to_have_count(2)
    # Leave first: an open page refreshes its counts by itself, and complains if it is signed out by then.
    page.goto("about:blank")
    page.context.clear_cookies()
    page.goto("/login/?next=/settings/security/")
    page.get_by_role("button", name="Continue with passkey").click()
    expect(page.get_by_role("heading", name="Password and passkeys")).to_be_visible()
    page.goto("/reauthenticate/?next=/settings/security/")
    page.get_by_role("button", name="Use passkey").click()
    expect(page.get_by_role("heading", name="Password and passkeys")).to_be_visible()
    page.get_by_role("link", name="Remove Work laptop").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("link", name="Remove Work laptop")).to_have_count(0)

    found = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith="signin.").order_by("seq")
    told = [(event.type.removeprefix("signin."), event.data.get("by", event.data.get("kind"))) for event in found]
    assert told[0] == ("succeeded", ["password"])
    assert told[1] == ("renewed", "password")
    assert sorted(told[2:4]) == [("factor_added", "passkey"), ("factor_added", "recovery_codes")]
    assert told[4:6] == [("succeeded", ["passkey"]), ("renewed", "passkey")]
    assert sorted(told[6:]) == [("factor_removed", "passkey"), ("factor_removed", "recovery_codes")]
    assert complaints == []


def test_a_passkey_is_the_second_step_too_and_a_removed_one_opens_nothing(
    device: Callable[..., Page], dana: User
) -> None:
    page = device("/login/?next=/settings/security/passkeys/")
    sign_in(page)
    renew(page)
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    page.context.clear_cookies()
    page.goto("/login/?next=/settings/")
    sign_in(page)
    page.get_by_role("button", name="Use passkey").click()
    expect(page.get_by_role("heading", name="Profile and team")).to_be_visible()
    page.context.clear_cookies()
    Authenticator.objects.all().delete()

    page.goto("/login/")
    page.get_by_role("button", name="Continue with passkey").click()

    expect(page.get_by_role("alert")).to_contain_text("That passkey does not match.")


def test_where_there_are_no_passkeys_there_is_no_button(browse: Browse, dana: User) -> None:
    page = browse(None, "/login/")
    expect(page.get_by_role("button", name="Sign in with password")).to_be_visible()
    expect(page.get_by_role("button", name="Continue with passkey")).to_have_count(0)


def test_signing_in_and_settings_work_without_script(browse: Browse, dana: User, marco: User) -> None:
    page = browse(None, "/login/?next=/settings/appearance/", java_script_enabled=False)
    expect(page.get_by_role("button", name="Continue with passkey")).to_have_count(0)
    sign_in(page)
    page.get_by_text("Dark", exact=True).click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".saved")).to_contain_text(re.compile(r"Saved \d\d:\d\d"))
    page.goto("/settings/security/app/")
    renew(page)
    secret = page.get_by_label("Or type the secret in").input_value()
    page.get_by_label("Then type the code it shows").fill(code(secret))
    page.get_by_role("button", name="Turn it on").click()
    expect(page.get_by_role("list", name="Recovery codes").get_by_role("listitem")).to_have_count(10)
    page.goto("/settings/absence/")
    page.get_by_label("While I am away").select_option("Marco Reyes")
    page.get_by_label("Until").fill(f"{timezone.localtime() + timedelta(days=2):%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("looks after your queue")).to_be_visible()
