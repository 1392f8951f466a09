"""The second step of a sign-in, and confirming again who one is."""

import time
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import Client, RequestFactory

from agentapp.console import assurance
from approvals import ledger
from approvals.models import Event

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def events() -> list[tuple[str, dict[str, Any]]]:
    found = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith="sign").order_by("seq")
    return [(event.type, event.data) for event in found]


@pytest.fixture
def secret(dana: User) -> str:
    """Dana has an authenticator app; this is the secret it shares with us."""
    secret = generate_totp_secret()
    TOTP.activate(dana, secret)
    return secret


def code(secret: str, later: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + later))


def give_password(client: Client, next: str = "") -> Any:
    return client.post("/login/", {"username": "dana", "password": PASSWORD, "next": next})


def is_in(client: Client) -> bool:
    return client.get("/inbox/").status_code == 200


def asking(client: Client, user: User) -> Any:
    request = RequestFactory().get("/")
    request.session, request.user = client.session, user
    return request


def shown(client: Client, user: User) -> assurance.Shown | None:
    return assurance.shown(asking(client, user))


def level(client: Client, user: User) -> str:
    return assurance.level(asking(client, user))


def test_the_page_says_how_long_ago_an_app_was_set_up(client: Client, dana: User, secret: str) -> None:
    client.force_login(dana)
    assert "Set up just now. Signing in" in client.get("/settings/security/").content.decode()


def test_a_password_alone_does_not_sign_in_whoever_has_an_app(client: Client, dana: User, secret: str) -> None:
    assert give_password(client, "/runs/")["Location"] == "/login/second/"
    assert not is_in(client)
    assert client.get("/login/")["Location"] == "/login/second/"

    response = client.post("/login/second/", {"code": code(secret)})

    assert response["Location"] == "/runs/"
    assert is_in(client)
    assert events() == [("signin.succeeded", {"user": "dana", "by": ["password", "totp"]})]


def test_a_wrong_code_signs_nobody_in_and_is_recorded(client: Client, dana: User, secret: str) -> None:
    give_password(client)

    response = client.post("/login/second/", {"code": "000000"})

    assert response.status_code == 422
    assert "That did not match." in response.content.decode()
    assert not is_in(client)
    assert events() == [("signin.failed", {"user": "dana", "known": True, "by": "code"})]


def test_a_code_counts_once(client: Client, dana: User, secret: str) -> None:
    used = code(secret)
    give_password(client)
    client.post("/login/second/", {"code": used})
    client.post("/logout/")
    give_password(client)

    assert client.post("/login/second/", {"code": used}).status_code == 422


def test_a_code_counts_once_for_as_long_as_it_counts(
    client: Client, dana: User, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, usual = code(secret, 1), time.time  # from a device whose clock is slightly ahead
    give_password(client)
    client.post("/login/second/", {"code": used})
    assert is_in(client)
    client.post("/logout/")
    monkeypatch.setattr(time, "time", lambda: usual() + 31)
    give_password(client)

    assert client.post("/login/second/", {"code": used}).status_code == 422
    assert not is_in(client)


def test_five_wrong_codes_lock_the_step(client: Client, dana: User, secret: str) -> None:
    give_password(client)
    for _ in range(5):
        client.post("/login/second/", {"code": "000000"})

    response = client.post("/login/second/", {"code": code(secret)})

    assert response.status_code == 422
    assert "Too many tries have failed." in response.content.decode()
    assert not is_in(client)


def test_a_recovery_code_works_once(client: Client, dana: User, secret: str) -> None:
    spare = RecoveryCodes.activate(dana).get_unused_codes()[0]
    give_password(client)
    assert client.post("/login/second/", {"code": spare})["Location"] == "/"
    assert events()[-1][1]["by"] == ["password", "recovery_code"]
    client.post("/logout/")
    give_password(client)

    assert client.post("/login/second/", {"code": spare}).status_code == 422


def test_what_an_app_shares_with_us_is_not_readable_in_its_row(client: Client, dana: User, secret: str) -> None:
    RecoveryCodes.activate(dana)
    kept = str(list(Authenticator.objects.values_list("data", flat=True)))
    assert secret not in kept
    assert "seed" in kept


def test_with_another_key_no_code_counts_and_no_page_breaks(
    client: Client, dana: User, secret: str, settings: Any
) -> None:
    give_password(client)
    client.post("/login/second/", {"code": code(secret)})
    RecoveryCodes.activate(dana)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 8
    assert TOTP(Authenticator.objects.get(type="totp")).validate_code(code(secret, 1))
    settings.SECRET_KEY_FALLBACKS = []

    with pytest.raises(ValidationError):
        TOTP(Authenticator.objects.get(type="totp")).validate_code(code(secret, -1))
    with pytest.raises(ValidationError):
        RecoveryCodes(Authenticator.objects.get(type="recovery_codes")).validate_code("0" * 8)


def test_the_second_step_is_for_those_who_took_the_first(client: Client, dana: User, secret: str) -> None:
    assert client.get("/login/second/")["Location"] == "/login/"
    assert client.post("/login/second/", {"code": code(secret)})["Location"] == "/login/"


def test_one_can_begin_again_in_the_middle(client: Client, dana: User, secret: str) -> None:
    give_password(client)

    client.post("/logout/")

    assert client.get("/login/").status_code == 200
    assert client.post("/login/second/", {"code": code(secret)})["Location"] == "/login/"


def test_an_answer_that_is_no_passkey_signs_nobody_in(client: Client, dana: User) -> None:
    options = client.get("/login/passkey/", headers={"Accept": "application/json"})
    assert options.json()["request_options"]["publicKey"]["userVerification"] == "required"
    for credential in ["", "x", "[]", '{"response":{"userHandle":"MQ"}}', '{"id":"x","rawId":"x","response":{}}']:
        response = client.post("/login/passkey/", {"credential": credential, "next": "/runs/"})
        assert response.status_code == 401
        assert "That passkey does not match." in response.content.decode()
    assert not is_in(client)
    assert {data["by"] for _, data in events()} == {"passkey"}


def test_an_address_begins_only_so_many_sessions_a_minute_by_asking_for_a_passkey(db: None) -> None:
    """Each answer is kept in a session of the browser that asks."""
    asking = {"headers": {"Accept": "application/json"}, "REMOTE_ADDR": "203.0.113.7"}
    answers = [Client().get("/login/passkey/", **asking).status_code for _ in range(32)]
    assert answers == [200] * 30 + [429] * 2
    assert Session.objects.count() == 30
    assert Client().get("/login/passkey/", **asking | {"REMOTE_ADDR": "203.0.113.8"}).status_code == 200


# --- Renewing ------------------------------------------------------------------------------------


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let this many minutes pass."""
    ahead = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    def passed(number: float) -> None:
        ahead[0] += number * 60

    return passed


def test_a_sign_in_counts_for_five_minutes(client: Client, dana: User, minutes: Any) -> None:
    give_password(client)
    assert level(client, dana) == "password"
    minutes(4.9)
    assert level(client, dana) == "password"
    minutes(0.2)
    assert level(client, dana) == ""


def test_the_strongest_that_was_shown_counts(client: Client, dana: User, secret: str) -> None:
    give_password(client)
    client.post("/login/second/", {"code": code(secret)})

    assert level(client, dana) == "totp"


def test_nobody_has_the_assurance_of_somebody_else(client: Client, dana: User, marco: User) -> None:
    give_password(client)

    assert level(client, marco) == ""


def test_it_is_known_when_it_was_and_until_when_it_counts(client: Client, dana: User, minutes: Any) -> None:
    give_password(client)
    began = shown(client, dana)
    assert began is not None
    assert (began.level, began.anew, began.until - began.at) == ("password", False, timedelta(minutes=5))
    minutes(3)
    client.post("/reauthenticate/", {"password": PASSWORD})
    renewed = shown(client, dana)
    assert renewed is not None
    assert renewed.anew
    assert renewed.at - began.at >= timedelta(minutes=3)
    minutes(5.1)
    assert shown(client, dana) is None


def test_what_a_passkey_is_asked_is_told_to_who_is_in_and_renews_nothing(client: Client, dana: User) -> None:
    assert client.get("/reauthenticate/passkey/")["Location"].startswith("/login/")
    client.force_login(dana)

    response = client.get("/reauthenticate/passkey/")

    assert response.json()["request_options"]["publicKey"]["challenge"]
    assert "no-store" in response["Cache-Control"]
    assert level(client, dana) == ""
    assert client.post("/reauthenticate/passkey/").status_code == 405


def test_a_password_renews_and_leads_on(client: Client, dana: User, minutes: Any) -> None:
    give_password(client)
    minutes(10)

    response = client.post("/reauthenticate/?next=/runs/", {"password": PASSWORD, "next": "/runs/"})

    assert response["Location"] == "/runs/"
    assert level(client, dana) == "password"
    assert events()[-1] == ("signin.renewed", {"user": "dana", "by": "password"})


def test_a_code_renews_and_is_more_than_a_password(client: Client, dana: User, minutes: Any) -> None:
    give_password(client)
    secret = generate_totp_secret()
    TOTP.activate(dana, secret)
    minutes(10)

    assert client.post("/reauthenticate/", {"code": code(secret), "next": "/runs/"})["Location"] == "/runs/"
    assert level(client, dana) == "totp"
    assert events()[-1] == ("signin.renewed", {"user": "dana", "by": "totp"})


@pytest.mark.parametrize("form", [{"password": "wrong"}, {"code": "000000"}, {"credential": "{}"}, {}])
def test_what_does_not_match_renews_nothing(client: Client, dana: User, minutes: Any, form: dict[str, str]) -> None:
    give_password(client)
    minutes(10)

    response = client.post("/reauthenticate/", form)

    assert response.status_code == 422
    assert "Not renewed." in response.content.decode()
    assert level(client, dana) == ""
    assert events()[-1][0] == ("signin.failed" if form else "signin.succeeded")


def test_renewing_never_leads_to_another_site(client: Client, dana: User) -> None:
    give_password(client)

    response = client.post("/reauthenticate/", {"password": PASSWORD, "next": "https://evil.example/"})

    assert response["Location"] == "/"


def test_renewing_is_for_those_who_are_in(client: Client, dana: User) -> None:
    assert client.get("/reauthenticate/")["Location"].startswith("/login/")


def test_wrong_passwords_lock_renewing_too(client: Client, dana: User) -> None:
    give_password(client)
    for _ in range(5):
        client.post("/reauthenticate/", {"password": "wrong"})

    response = client.post("/reauthenticate/", {"password": PASSWORD})

    assert response.status_code == 422
    assert "Too many tries" in response.content.decode()


def test_the_page_offers_what_a_person_has(client: Client, dana: User) -> None:
    give_password(client)
    page = client.get("/reauthenticate/").content.decode()
    assert 'name="password"' in page
    assert 'name="code"' not in page
    assert "data-passkey" not in page
    Authenticator.objects.create(user=dana, type="recovery_codes", data={"seed": "x", "used_mask": 0})
    assert 'name="code"' in client.get("/reauthenticate/").content.decode()
