"""Single sign-on against a provider on the loopback, over real HTTP."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests
from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client, RequestFactory

from agentapp.console import assurance
from agentapp.models import ApiToken
from approvals import ledger
from approvals.models import Event
from tests import openid_provider
from tests.openid_provider import Provider, sign_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with openid_provider.serving(settings, email="dana@example.test", email_verified=True) as provider:
        yield provider


def level_of(client: Client) -> str:
    """What this browser has confirmed in the last five minutes."""
    request = RequestFactory().get("/")
    request.user, request.session = get_user(client), client.session
    return assurance.level(request)


def events() -> list[tuple[str, dict[str, Any]]]:
    found = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith="sign").order_by("seq")
    return [(event.type, event.data) for event in found]


def test_a_configured_provider_has_a_button_and_others_have_none(client: Client, provider: Provider) -> None:
    assert "Continue with Corp" in client.get("/login/").content.decode()
    assert client.get("/login/sso/other/").status_code == 404


def test_whom_the_provider_vouches_for_is_signed_in_and_returns(client: Client, provider: Provider, dana: User) -> None:
    response = sign_in(client, next="/runs/")

    assert response["Location"] == "/runs/"
    assert client.get("/inbox/").status_code == 200
    assert events() == [
        ("signin.provider_connected", {"user": "dana", "provider": "corp"}),
        ("signin.succeeded", {"user": "dana", "by": ["sso:corp"]}),
    ]
    dana.refresh_from_db()
    assert dana.check_password("correct horse battery")


def test_the_identity_counts_from_then_on_and_not_the_address(client: Client, provider: Provider, dana: User) -> None:
    sign_in(client)
    client.post("/logout/")
    provider.person["email"] = "new@example.test"

    assert sign_in(client)["Location"] == "/"
    assert SocialAccount.objects.get().user == dana
    assert client.get("/inbox/").status_code == 200


@pytest.mark.parametrize(
    ("person", "words"),
    [
        ({"email": "nobody@example.test", "email_verified": True}, "There is no account for you here."),
        ({"email": "dana@example.test", "email_verified": False}, "did not vouch for an address"),
        ({"email": "dana@example.test", "email_verified": "false"}, "did not vouch for an address"),
        ({"email": "", "email_verified": True}, "did not vouch for an address"),
    ],
)
def test_nobody_comes_in_without_an_account_and_a_checked_address(
    client: Client, provider: Provider, dana: User, person: dict[str, Any], words: str
) -> None:
    provider.person.update(person)

    response = sign_in(client)

    assert response.status_code == 403
    assert words in response.content.decode()
    assert client.get("/inbox/").status_code == 302
    assert User.objects.count() == 1
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize(
    ("mine", "theirs"), [("mike@example.test", "mi\u212ae@example.test"), ("ı@x.test", "i@x.test")]
)
def test_an_address_that_only_looks_like_somebodys_lets_nobody_in(
    client: Client, provider: Provider, dana: User, mine: str, theirs: str
) -> None:
    User.objects.update(email=mine)
    provider.person.update({"email": theirs, "email_verified": True})

    assert sign_in(client).status_code == 403
    assert not SocialAccount.objects.exists()


def test_an_address_counts_in_whatever_letters_it_is_written(client: Client, provider: Provider, dana: User) -> None:
    provider.person.update({"email": "Dana@Example.TEST", "email_verified": "true"})

    assert sign_in(client).status_code == 302
    assert SocialAccount.objects.get().user == dana


def test_an_address_that_two_accounts_have_lets_nobody_in(client: Client, provider: Provider, dana: User) -> None:
    User.objects.create_user("double", "Dana@Example.Test")

    assert sign_in(client).status_code == 403


def test_an_account_that_is_switched_off_stays_so(client: Client, provider: Provider, dana: User) -> None:
    sign_in(client)
    client.post("/logout/")
    User.objects.update(is_active=False)

    response = client.get(sign_in(client)["Location"])

    assert "This account is switched off." in response.content.decode()
    assert client.get("/inbox/").status_code == 302


def test_what_the_provider_says_is_shown_as_text(client: Client, provider: Provider, dana: User) -> None:
    provider.refuses = {"error": "login_required", "error_description": "<img src=x onerror=alert(1)> too late"}

    response = sign_in(client)

    page = response.content.decode()
    assert response.status_code == 401
    assert "&lt;img src=x onerror=alert(1)&gt; too late" in page
    assert "<img" not in page
    assert events() == [("signin.failed", {"user": "", "known": False, "by": "sso:corp", "reason": "unknown"})]


def test_somebody_who_turns_back_at_the_provider_can_choose_another_way(client: Client, provider: Provider) -> None:
    provider.refuses = {"error": "access_denied"}

    response = sign_in(client)

    assert response.status_code == 401
    assert 'href="/login/"' in response.content.decode()


def test_a_code_that_the_provider_does_not_take_signs_nobody_in(client: Client, provider: Provider, dana: User) -> None:
    provider.token_fails = True

    response = sign_in(client)

    assert response.status_code == 401
    assert "Corp did not sign you in." in response.content.decode()
    assert "<b>used" not in response.content.decode()


def test_an_answer_to_no_question_signs_nobody_in(client: Client, provider: Provider, dana: User) -> None:
    response = client.get("/login/sso/corp/callback/?code=stolen&state=guessed")

    assert response.status_code == 401
    assert client.get("/inbox/").status_code == 302


def test_a_provider_never_leads_to_another_site(client: Client, provider: Provider, dana: User) -> None:
    assert sign_in(client, next="https://evil.example/")["Location"] == "/"


def test_the_sign_in_that_is_asked_for_is_bound_to_its_browser(client: Client, provider: Provider, dana: User) -> None:
    sign_in(client)

    [asked] = provider.asked
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == "http://testserver/login/sso/corp/callback/"
    assert set(asked["scope"].split()) == {"openid", "profile", "email"}


def test_a_provider_that_cannot_be_reached_is_said_so(client: Client, provider: Provider, settings: Any) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"

    response = client.get("/login/sso/corp/")

    assert response.status_code == 502
    assert "Corp could not be reached." in response.content.decode()
    assert "127.0.0.1" not in response.content.decode()


def test_an_address_begins_only_so_many_sessions_a_minute_on_its_way_to_the_provider(provider: Provider) -> None:
    answers = [Client().get("/login/sso/corp/", REMOTE_ADDR="203.0.113.7") for _ in range(122)]
    assert [answer.status_code for answer in answers] == [302] * 120 + [429] * 2
    assert "Too many tries" in answers[-1].text
    assert Session.objects.count() == 120
    assert Client().get("/login/sso/corp/", REMOTE_ADDR="203.0.113.8").status_code == 302


def test_an_address_puts_only_so_many_failures_a_minute_on_record(client: Client, provider: Provider) -> None:
    url = "/login/sso/corp/callback/?error=access_denied&state=made-up"
    answers = {client.get(url, REMOTE_ADDR="203.0.113.7").status_code for _ in range(122)}
    assert 429 in answers
    assert len(events()) <= 120
    before = len(events())
    given = {"credential": "{}"}
    assert client.post("/login/passkey/", given, REMOTE_ADDR="203.0.113.7").status_code == 429
    assert len(events()) == before
    assert client.post("/login/passkey/", given, REMOTE_ADDR="203.0.113.8").status_code == 401


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("process", ["connect", "redirect"])
def test_whoever_comes_back_from_the_provider_is_signed_in_and_nothing_else(
    client: Client, provider: Provider, dana: User, process: str, method: str
) -> None:
    client.force_login(User.objects.create_user("marco", "marco@example.test"))
    begun = getattr(client, method)("/login/sso/corp/", {"process": process})
    back = urlsplit(requests.get(begun["Location"], allow_redirects=False, timeout=5).headers["Location"])
    assert client.get(f"{back.path}?{back.query}")["Location"] == "/"
    assert client.session["_auth_user_id"] == str(dana.pk)
    assert SocialAccount.objects.get().user == dana


@pytest.fixture
def through_provider(client: Client, provider: Provider, dana: User) -> Client:
    """Dana's browser; she has only her provider, and signed in long ago."""
    dana.set_unusable_password()
    dana.save()
    sign_in(client)
    session = client.session
    [record] = session[AUTHENTICATION_METHODS_SESSION_KEY]
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [{**record, "at": record["at"] - 7 * 3600}]
    session.save()
    return client


GUARDED = ["/settings/tokens/new/", "/settings/security/passkeys/", "/settings/security/app/"]
TOKEN = {"name": "x", "scopes": ["runs:read"], "days": ""}


@pytest.mark.parametrize("url", GUARDED)
def test_whoever_has_a_provider_alone_shows_anew_through_it_who_they_are(
    through_provider: Client, provider: Provider, url: str
) -> None:
    client = through_provider
    asked = client.get(url)
    assert unquote(asked["Location"]) == f"/reauthenticate/?next={url}"
    page = client.get(asked["Location"])
    assert "Continue with Corp" in page.content.decode()

    assert sign_in(client, next=url)["Location"] == url

    assert provider.asked[-1]["prompt"] == "login"
    assert client.get(url).status_code == 200


def test_a_token_is_made_after_that_and_not_before(through_provider: Client, provider: Provider) -> None:
    client = through_provider
    assert client.post("/settings/tokens/new/", TOKEN).status_code == 302
    assert not ApiToken.objects.exists()

    sign_in(client, next="/settings/tokens/new/")

    assert 'id="secret"' in client.post("/settings/tokens/new/", TOKEN).content.decode()


def test_an_address_is_not_changed_before_that_where_providers_were_switched_off(
    through_provider: Client, settings: Any, dana: User
) -> None:
    settings.OIDC_PROVIDERS = []
    answer = through_provider.post("/settings/", {"first_name": "D", "last_name": "S", "email": "me@evil.example"})

    assert unquote(answer["Location"]) == "/reauthenticate/?next=/settings/"
    dana.refresh_from_db()
    assert dana.email == "dana@example.test"


def renewals_that_failed() -> list[dict[str, Any]]:
    return [data for type, data in events() if type == "signin.failed"]


@pytest.mark.parametrize("signed_in_at", ["an hour ago", 10**13, -1, True, "now"])
def test_a_provider_that_lets_them_through_by_what_it_remembers_renews_nothing(
    through_provider: Client, provider: Provider, signed_in_at: Any
) -> None:
    client, url = through_provider, "/settings/tokens/new/"
    earlier = int(time.time()) - 3600
    provider.remembers, provider.signed_in_at = True, earlier if signed_in_at == "an hour ago" else signed_in_at

    answer = sign_in(client, next=url)

    assert answer.status_code == 403
    assert "Corp did not ask you to sign in again." in answer.text
    assert f'href="/reauthenticate/?next={quote(url, "")}"' in answer.text
    assert provider.asked[-1]["max_age"] == "0"
    assert client.get("/inbox/").status_code == 200
    assert client.get(url).status_code == 302
    assert level_of(client) == ""
    [failed] = renewals_that_failed()
    assert failed == {"user": "dana", "known": True, "by": "sso:corp", "renewing": True, "reason": "not_anew"}


def test_whoever_signs_out_there_first_renews_it(through_provider: Client, provider: Provider) -> None:
    provider.remembers, provider.signed_in_at = True, int(time.time()) - 3600
    sign_in(through_provider)
    provider.remembers = False

    sign_in(through_provider)

    assert through_provider.get("/settings/tokens/new/").status_code == 200


@pytest.mark.parametrize("seconds", [-50, 50])
def test_clocks_that_differ_a_little_keep_nobody_out(
    through_provider: Client, provider: Provider, seconds: int
) -> None:
    provider.remembers, provider.signed_in_at = True, int(time.time()) + seconds
    sign_in(through_provider)
    assert through_provider.get("/settings/tokens/new/").status_code == 200


def test_an_answer_to_a_question_of_long_ago_counts_from_when_they_signed_in(
    through_provider: Client, provider: Provider
) -> None:
    begun = through_provider.get("/login/sso/corp/")
    session = through_provider.session
    session["asked_provider_at"] -= 7200
    session.save()
    provider.remembers, provider.signed_in_at = True, int(time.time()) - 3600
    back = urlsplit(requests.get(begun["Location"], allow_redirects=False, timeout=5).headers["Location"])

    assert through_provider.get(f"{back.path}?{back.query}").status_code == 403
    assert through_provider.get("/settings/tokens/new/").status_code == 302


def test_whoever_comes_back_a_second_time_is_held_to_it_as_well(through_provider: Client, provider: Provider) -> None:
    begun = [through_provider.get("/login/sso/corp/")["Location"] for _ in range(2)]
    provider.remembers, provider.signed_in_at = True, int(time.time()) - 3600
    for location in begun:
        back = urlsplit(requests.get(location, allow_redirects=False, timeout=5).headers["Location"])
        assert through_provider.get(f"{back.path}?{back.query}").status_code == 403
    assert level_of(through_provider) == ""


def test_what_was_begun_before_signing_in_renews_nothing(client: Client, provider: Provider, dana: User) -> None:
    User.objects.filter(pk=dana.pk).update(password="!")
    begun = client.get("/login/sso/corp/")
    client.force_login(dana)
    back = urlsplit(requests.get(begun["Location"], allow_redirects=False, timeout=5).headers["Location"])

    client.get(f"{back.path}?{back.query}")

    assert client.get("/settings/tokens/new/").status_code == 302


def test_a_provider_that_does_not_say_when_they_signed_in_renews_nothing_unless_it_is_trusted_to(
    through_provider: Client, provider: Provider, settings: Any
) -> None:
    provider.silent = True
    answer = sign_in(through_provider)
    assert answer.status_code == 403
    assert "Corp does not say when you signed in." in answer.text
    assert through_provider.get("/settings/tokens/new/").status_code == 302
    assert [failed["reason"] for failed in renewals_that_failed()] == ["not_told"]

    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["trust_renewal"] = True
    sign_in(through_provider)

    assert through_provider.get("/settings/tokens/new/").status_code == 200


def test_being_trusted_to_renew_is_no_leave_to_say_that_it_did_not(
    through_provider: Client, provider: Provider, settings: Any
) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["trust_renewal"] = True
    provider.remembers, provider.signed_in_at = True, int(time.time()) - 3600
    assert sign_in(through_provider).status_code == 403


def test_in_the_admin_it_is_the_same(through_provider: Client, dana: User) -> None:
    User.objects.update(is_staff=True, is_superuser=True)
    url = "/admin/agentapp/apitoken/add/"
    assert unquote(through_provider.get(url)["Location"]) == f"/reauthenticate/?next={url}"

    assert sign_in(through_provider, next=url)["Location"] == url

    assert through_provider.get(url).status_code == 200


def test_signing_in_through_the_provider_renews_nothing(client: Client, provider: Provider, dana: User) -> None:
    dana.set_unusable_password()
    dana.save()
    sign_in(client)

    assert client.get("/settings/tokens/new/").status_code == 302


def test_whoever_has_a_password_does_not_show_it_anew_through_the_provider(
    client: Client, provider: Provider, dana: User
) -> None:
    sign_in(client)
    sign_in(client, next="/settings/tokens/new/")

    assert client.get("/settings/tokens/new/").status_code == 302


def test_somebody_elses_identity_shows_nothing_of_whoever_is_signed_in(
    client: Client, provider: Provider, dana: User
) -> None:
    User.objects.filter(pk=dana.pk).update(password="!")
    client.force_login(User.objects.create_user("marco", "marco@example.test"))

    sign_in(client)

    assert client.session["_auth_user_id"] == str(dana.pk)
    assert client.get("/settings/tokens/new/").status_code == 302
