"""What people set for themselves. Every page is a plain form that works without JavaScript."""

import re
from collections.abc import Iterator
from datetime import time, timedelta
from typing import Any
from urllib.parse import unquote

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY, format_hotp_value, hotp_value
from allauth.usersessions.models import UserSession
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import Group, User
from django.core import mail
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from agentapp import auth, nudges, preferences
from agentapp.console.settings.sections import ALL
from agentapp.console.settings.sessions import device
from agentapp.models import ApiToken, Preferences
from approvals import absences, ledger
from approvals.manners import Wish
from approvals.models import Absence, Channel, Event
from tests import slack_api
from tests.slack_api import Slack

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
PAGES = ["", "notifications/", "keys/", "appearance/", "security/", "sessions/", "tokens/", "absence/", "delegation/"]


@pytest.fixture
def client(client: Client, dana: User) -> Client:
    """Dana's browser, signed in as people do."""
    assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 302
    return client


def renew(client: Client) -> None:
    assert client.post("/reauthenticate/", {"password": PASSWORD}).status_code == 302


def said(client: Client, url: str, form: dict[str, Any] | None = None) -> str:
    """What the page says after a section was saved."""
    response = client.post(url, form or {}, follow=True)
    assert response.status_code == 200
    found = re.search(r'class="saved[^>]*>.*?</svg>([^<]*)<', response.content.decode())
    return found[1] if found else ""


def events(start: str) -> list[tuple[str, str, dict[str, Any]]]:
    found = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith=start).order_by("seq")
    return [(event.type, event.actor, event.data) for event in found]


@pytest.mark.parametrize("page", PAGES)
def test_every_section_is_a_page_of_few_queries(client: Client, page: str, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(12):
        response = client.get(f"/settings/{page}")
    assert response.status_code == 200
    assert response.content.decode().count('aria-current="page"') >= 1
    assert len(ALL) == len(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_for_those_who_are_in(page: str) -> None:
    assert Client().get(f"/settings/{page}")["Location"].startswith("/login/")


# --- Profile -------------------------------------------------------------------------------------


def test_a_profile_is_saved_says_when_and_is_recorded(client: Client, dana: User) -> None:
    form = {"first_name": "Dana", "last_name": "Smith", "email": "d@example.test"}
    renew(client)

    assert re.fullmatch(r"Saved \d\d:\d\d", said(client, "/settings/", form))

    dana.refresh_from_db()
    assert (dana.last_name, dana.email) == ("Smith", "d@example.test")
    [(kind, actor, data)] = events("configuration.")
    assert (kind, actor) == ("configuration.changed", f"user:{dana.pk}:dana")
    assert data["after"] == {"last_name": "Smith", "email": "d@example.test"}


def test_another_address_asks_who_one_is_and_goes_on_with_what_was_filled_in(client: Client, dana: User) -> None:
    """Links for a new password go there."""
    form = {"first_name": "Dana", "last_name": "Smith", "email": "me@evil.example"}
    asked = client.post("/settings/", form)
    assert unquote(asked["Location"]) == "/reauthenticate/?next=/settings/"
    dana.refresh_from_db()
    assert (dana.last_name, dana.email) != ("Smith", "me@evil.example")

    client.post(asked["Location"], {"password": PASSWORD, "next": "/settings/"})

    dana.refresh_from_db()
    assert (dana.last_name, dana.email) == ("Smith", "me@evil.example")


@pytest.mark.parametrize(("to", "told"), [("d@example.test", ["dana@example.test"]), ("dana@example.test", [])])
def test_another_address_is_told_to_the_one_that_was(
    client: Client, dana: User, django_capture_on_commit_callbacks: Any, to: str, told: list[str]
) -> None:
    renew(client)

    with django_capture_on_commit_callbacks() as due:
        said(client, "/settings/", {"first_name": "D", "last_name": "Smith", "email": to})

    calls = [call.args[:3] for call in due if getattr(call, "func", None) is nudges.account_changed]
    assert calls == [(dana.pk, "address_changed", address) for address in told]


def test_a_name_is_changed_without_being_asked_who_one_is(client: Client, dana: User) -> None:
    assert said(client, "/settings/", {"first_name": "D", "last_name": "Smith", "email": dana.email}).startswith(
        "Saved"
    )


def test_nobody_takes_the_address_of_another_account(client: Client, dana: User, marco: User) -> None:
    renew(client)
    response = client.post("/settings/", {"first_name": "D", "last_name": "W", "email": "Marco@Example.test"})

    assert response.status_code == 422
    assert "Another account has this address." in response.content.decode()
    dana.refresh_from_db()
    assert dana.email == "dana@example.test"


def test_where_single_sign_on_finds_people_by_address_they_do_not_change_it(
    client: Client, dana: User, settings: Any
) -> None:
    settings.OIDC_PROVIDERS = ["corp"]

    said(client, "/settings/", {"first_name": "D", "last_name": "W", "email": "admin@example.test"})

    dana.refresh_from_db()
    assert (dana.first_name, dana.email) == ("D", "dana@example.test")


def test_nobody_changes_their_rights_or_team(client: Client, dana: User) -> None:
    said(
        client,
        "/settings/",
        {"first_name": "D", "is_staff": "on", "is_superuser": "on", "groups": "5", "username": "x"},
    )

    dana.refresh_from_db()
    assert (dana.username, dana.is_staff, dana.is_superuser) == ("dana", False, False)
    assert [group.name for group in dana.groups.all()] == ["approver"]
    assert '<li class="badge">approver</li>' in client.get("/settings/").content.decode()


# --- Notifications, keys, appearance -------------------------------------------------------------


def test_without_a_choice_the_defaults_hold(dana: User) -> None:
    one = preferences.of(dana)
    assert preferences.ways(one, "waiting") == ("browser",)
    assert preferences.ways(one, "call_failed") == ("browser", "mail")
    assert not Preferences.objects.exists()
    told = {"handed", "call_failed", "mentioned", "reminded", "escalated"}
    assert preferences.manners([dana.pk])[dana.pk].mailed == told


def test_notifications_are_kept_as_they_were_ticked(client: Client, dana: User) -> None:
    form = {"waiting-mail": "on", "quiet_from": "22:00", "quiet_until": "07:00", "shows": "on", "nonsense-mail": "on"}
    form["least_risk"] = "high"

    assert said(client, "/settings/notifications/", form).startswith("Saved ")

    one = preferences.of(dana)
    others = ("handed", "due_soon", "call_failed", "answered", "mentioned", "reminded", "escalated")
    assert one.notifications == {"waiting": ["mail"], **{kind: [] for kind in others}}
    assert (one.quiet_from, one.quiet_until, one.shows_arguments) == (time(22), time(7), True)
    assert preferences.wanting("waiting") == {dana.pk: Wish(frozenset({"mail"}), "high")}
    page = client.get("/settings/notifications/").content.decode()
    assert '<option value="high" selected>High or higher</option>' in page
    assert page.count(" checked") == 2


@pytest.mark.parametrize(
    "quiet",
    [("22:00", ""), ("late", "07:00"), ("08:00", "08:00"), ("22:00+02:00", "07:00"), ("22:00", "07:00Z")],
)
def test_quiet_hours_that_are_none_are_refused(client: Client, quiet: tuple[str, str]) -> None:
    form = {"quiet_from": quiet[0], "quiet_until": quiet[1]}
    response = client.post("/settings/notifications/", form)

    assert response.status_code == 422
    assert "Nothing was saved." in response.content.decode()
    assert not Preferences.objects.exists()


def test_what_was_chosen_beside_a_wrong_time_stays_chosen(client: Client, dana: User) -> None:
    kept = {"waiting-browser": "on", "waiting-mail": "on", "shows": "on", "quiet_from": "21:00", "quiet_until": "06:00"}
    said(client, "/settings/notifications/", kept)
    typed = {
        "handed-mail": "on", "least_risk": "high", "rhythm": "daily", "rhythm_at": "08:30", "follow_ups": "on",
        "quiet_from": "22:00", "quiet_until": "",
    }  # fmt: skip

    page = client.post("/settings/notifications/", typed).content.decode()

    assert "Quiet hours need two times" in page
    ticked = re.findall(r'name="([^"]+)" checked', page)
    assert ticked == ["handed-mail", "follow_ups"]
    assert re.findall(r'<option value="([^"]+)" selected', page) == ["high", "daily"]
    assert re.findall(r'type="time" value="([^"]*)"', page) == ["08:30", "22:00", ""]
    stored = client.get("/settings/notifications/").content.decode()
    assert re.findall(r'name="([^"]+)" checked', stored) == ["waiting-browser", "waiting-mail", "shows"]
    assert re.findall(r'type="time" value="([^"]*)"', stored) == ["", "21:00", "06:00"]


def test_a_risk_that_is_not_offered_is_refused(client: Client) -> None:
    assert client.post("/settings/notifications/", {"least_risk": "none"}).status_code == 422
    assert not Preferences.objects.exists()


def test_a_test_says_of_mail_what_became_of_it(client: Client, dana: User, settings: Any) -> None:
    def tested() -> str:
        return client.post("/settings/notifications/test/", follow=True).content.decode()

    assert "the mail server accepted it for dana@example.test" in tested()
    assert mail.outbox[0].to == ["dana@example.test"]
    options = {"host": "127.0.0.1", "port": 9, "timeout": 2}
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    settings.MAILERS = {"default": {"BACKEND": smtp, "OPTIONS": options}}
    assert "Mail: not sent. The mail server did not accept the message" in tested()
    User.objects.update(email="")
    assert "Your profile has no address." in tested()


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    Channel.objects.create(name="people", kind="slack", config={"credential": "SLACK"}, personal=True)
    with slack_api.serving(monkeypatch) as there:
        yield there


def test_chat_is_offered_where_there_is_a_channel_for_single_people(client: Client, dana: User) -> None:
    url = "/settings/notifications/"
    assert "waiting-chat" not in client.get(url).content.decode()
    channel = Channel.objects.create(name="people", kind="slack", config={"credential": "SLACK"}, personal=True)
    assert 'name="waiting-chat"' in client.get(url).content.decode()
    said(client, url, {"waiting-chat": "on", "handed-mail": "on", "chat_name": " U0DANA "})
    assert preferences.manners([dana.pk])[dana.pk].ways("waiting") == {"chat"}
    assert 'value="U0DANA"' in client.get(url).content.decode()

    # While there is none, the choices made for it stay, but are not offered.
    Channel.objects.update(active=False)
    said(client, url, {"handed-mail": "on"})
    Channel.objects.update(active=True)

    one = preferences.of(dana)
    assert (one.chat_name, one.notifications["waiting"], one.notifications["handed"]) == ("U0DANA", ["chat"], ["mail"])
    assert channel.name in client.get(url).content.decode()


@pytest.mark.parametrize("name", ["two words", "dana/../x", "a" * 65, "dänä", "<b>", "a?b=c", "{to}"])
def test_a_name_in_chat_that_could_be_more_than_a_name_is_refused_and_stays_typed(
    client: Client, chat: Slack, name: str
) -> None:
    response = client.post("/settings/notifications/", {"chat_name": name})

    assert response.status_code == 422
    assert f'value="{escape(name)}"' in response.content.decode()
    assert not Preferences.objects.exists()


def test_mail_about_what_waits_can_come_together(client: Client, dana: User) -> None:
    url = "/settings/notifications/"
    for rhythm, at in (("daily", ""), ("daily", "late"), ("daily", "08:00Z"), ("weekly", "08:00")):
        assert client.post(url, {"rhythm": rhythm, "rhythm_at": at}).status_code == 422
    assert not Preferences.objects.exists()

    said(client, url, {"rhythm": "daily", "rhythm_at": "08:30", "follow_ups": "on"})

    one = preferences.manners([dana.pk])[dana.pk]
    assert (one.rhythm, one.rhythm_at, one.follow_ups) == ("daily", time(8, 30), True)
    page = client.get(url).content.decode()
    assert '<option value="daily" selected>' in page
    assert 'value="08:30"' in page


def test_by_itself_mail_comes_at_once_and_nothing_follows_it(dana: User) -> None:
    one = preferences.manners([dana.pk])[dana.pk]
    assert (one.rhythm, one.follow_ups, one.chatted) == ("at_once", False, frozenset())


def test_a_test_says_of_chat_what_became_of_it(client: Client, dana: User, chat: Slack) -> None:
    def tested() -> str:
        return client.post("/settings/notifications/test/", follow=True).content.decode()

    assert "Chat: not sent. Give your name there, and save it." in tested()
    said(client, "/settings/notifications/", {"chat_name": "U0DANA"})
    page = tested()
    assert "Chat: people accepted it for U0DANA." in page
    assert "the mail server accepted it for dana@example.test" in page
    assert "Chat reaches you" in chat.texts()[0]
    chat.answers = [(200, {}, {"ok": False, "error": "channel_not_found"})]
    assert "Chat: not sent. Slack has no such channel or person" in tested()


def test_keys_and_looks_are_kept_apart(client: Client, dana: User) -> None:
    assert said(client, "/settings/keys/").startswith("Saved ")
    assert said(client, "/settings/appearance/", {"theme": "dark", "density": "dense"}).startswith("Saved ")

    one = preferences.of(dana)
    assert (one.single_keys, one.theme, one.density) == (False, "dark", "dense")
    said(client, "/settings/keys/", {"single_keys": "on"})
    assert preferences.of(dana).single_keys is True


def test_a_look_that_is_not_offered_is_refused(client: Client) -> None:
    assert client.post("/settings/appearance/", {"theme": "pink", "density": "dense"}).status_code == 422
    assert not Preferences.objects.exists()


# --- Password, app, passkeys, codes --------------------------------------------------------------


def test_a_password_is_changed_by_who_knows_it_and_ends_other_sessions(
    client: Client, dana: User, django_capture_on_commit_callbacks: Any
) -> None:
    other = Client()
    other.post("/login/", {"username": "dana", "password": PASSWORD})
    new = "a whole new sentence"

    with django_capture_on_commit_callbacks() as told:
        answer = said(
            client, "/settings/security/password/", {"oldpassword": PASSWORD, "password1": new, "password2": new}
        )

    assert answer.startswith("Saved ")
    assert [call.args[:2] for call in told if call.func is nudges.account_changed] == [  # type: ignore[attr-defined]
        (dana.pk, "user.password_changed")
    ]
    assert client.get("/settings/").status_code == 200
    assert other.get("/settings/").status_code == 302
    assert [data["name"] for _, _, data in events("user.password_changed")] == ["dana"]
    assert not Event.objects.filter(body__contains=new).exists()


@pytest.mark.parametrize(
    "form",
    [
        {"oldpassword": "wrong", "password1": "a whole new sentence", "password2": "a whole new sentence"},
        {"oldpassword": PASSWORD, "password1": "short", "password2": "short"},
        {"oldpassword": PASSWORD, "password1": "a whole new sentence", "password2": "another sentence"},
        {},
    ],
)
def test_a_password_stays_when_something_is_wrong(client: Client, dana: User, form: dict[str, str]) -> None:
    assert client.post("/settings/security/password/", form).status_code == 422

    dana.refresh_from_db()
    assert dana.check_password(PASSWORD)


def test_guessing_the_old_password_is_locked(client: Client, dana: User) -> None:
    new = {"password1": "a whole new sentence", "password2": "a whole new sentence"}
    for _ in range(5):
        client.post("/settings/security/password/", {"oldpassword": "wrong", **new})

    assert client.post("/settings/security/password/", {"oldpassword": PASSWORD, **new}).status_code == 422
    dana.refresh_from_db()
    assert dana.check_password(PASSWORD)


def test_changing_a_factor_asks_who_one_is(client: Client) -> None:
    for path in ("app/", "passkeys/"):
        response = client.get(f"/settings/security/{path}")
        assert unquote(response["Location"]) == f"/reauthenticate/?next=/settings/security/{path}"


def test_an_app_is_set_up_by_showing_a_code_and_makes_recovery_codes(client: Client, dana: User) -> None:
    renew(client)
    page = client.get("/settings/security/app/").content.decode()
    secret = client.session[SECRET_SESSION_KEY]
    assert secret in page
    assert "data:image/svg+xml;base64," in page
    assert client.post("/settings/security/app/", {"code": "000000"}).status_code == 422
    code = format_hotp_value(hotp_value(secret, int(timezone.now().timestamp()) // 30))

    response = client.post("/settings/security/app/", {"code": code})

    assert response["Location"] == "/settings/security/codes/"
    codes = client.get("/settings/security/codes/")
    listed = codes.content.decode().partition('aria-label="Recovery codes">')[2].partition("</ul>")[0]
    assert listed.count("<li>") == 10
    assert "no-store" in codes["Cache-Control"]
    added = [data["kind"] for _, _, data in events("signin.factor_added")]
    assert sorted(added) == ["recovery_codes", "totp"]
    assert not Event.objects.filter(body__contains=secret).exists()
    assert "10 of them left" in client.get("/settings/security/").content.decode()


def test_turning_the_app_off_is_recorded(client: Client, dana: User) -> None:
    renew(client)
    Authenticator.objects.create(user=dana, type="totp", data={"secret": "A" * 32})
    assert client.get("/settings/security/app/remove/").status_code == 200

    response = client.post("/settings/security/app/remove/")

    assert response["Location"] == "/settings/security/"
    assert not Authenticator.objects.exists()
    assert [data["kind"] for _, _, data in events("signin.factor_removed")] == ["totp"]


def test_new_recovery_codes_take_the_place_of_the_old(client: Client, dana: User) -> None:
    renew(client)
    Authenticator.objects.create(user=dana, type="totp", data={"secret": "A" * 32})
    client.post("/settings/security/codes/new/")
    first = client.get("/settings/security/codes/").content.decode()

    client.post("/settings/security/codes/new/")

    assert client.get("/settings/security/codes/").content.decode() != first
    assert Authenticator.objects.filter(type="recovery_codes").count() == 1


def test_recovery_codes_go_with_something_to_recover(client: Client) -> None:
    renew(client)

    assert client.post("/settings/security/codes/new/").status_code == 422
    assert client.get("/settings/security/codes/").status_code == 404


def test_nobody_removes_the_passkey_of_somebody_else(client: Client, marco: User) -> None:
    renew(client)
    theirs = Authenticator.objects.create(user=marco, type="webauthn", data={"name": "x", "credential": {}})

    assert client.post(f"/settings/security/passkeys/{theirs.pk}/remove/").status_code == 404
    assert Authenticator.objects.filter(pk=theirs.pk).exists()


# --- Sessions ------------------------------------------------------------------------------------


def test_one_session_or_all_others_can_be_ended(client: Client, dana: User) -> None:
    others = [Client(headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}) for _ in range(3)]
    for other in others:
        other.post("/login/", {"username": "dana", "password": PASSWORD})
    page = client.get("/settings/sessions/").content.decode()
    assert page.count("Firefox on Linux</b>") == 3
    assert page.count("This one") == 1
    first = UserSession.objects.get(session_key=others[0].session.session_key)

    assert said(client, f"/settings/sessions/{first.pk}/end/").startswith("Ended ")
    assert [other.get("/settings/").status_code for other in others] == [302, 200, 200]
    assert said(client, "/settings/sessions/end-others/").startswith("2 ended ")

    assert [other.get("/settings/").status_code for other in others] == [302, 302, 302]
    assert client.get("/settings/").status_code == 200
    assert [data["number"] for _, _, data in events("signin.sessions_ended")] == [1, 2]


def test_looking_at_sessions_ends_none_that_an_earlier_key_has_signed(client: Client, settings: Any) -> None:
    others = [Client() for _ in range(2)]
    for other in others:
        other.post("/login/", {"username": "dana", "password": PASSWORD})
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the key of today, which is longer than it needs to be"

    pages = [client.get("/settings/sessions/").content.decode() for _ in range(2)]

    assert [page.count("This one") for page in pages] == [1, 1]
    assert [page.count("/end/") for page in pages] == [2, 2]
    assert [other.get("/settings/").status_code for other in others] == [200, 200]
    assert UserSession.objects.count() == 3


def test_signing_in_ends_no_session_that_an_earlier_key_has_signed(client: Client, settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the key of today, which is longer than it needs to be"
    phone = Client()

    assert phone.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 302

    assert UserSession.objects.count() == 2
    assert [one.get("/settings/").status_code for one in (client, phone)] == [200, 200]


def test_sessions_that_have_ended_are_not_shown(client: Client, dana: User) -> None:
    gone, past = Client(), Client()
    for other in (gone, past):
        other.post("/login/", {"username": "dana", "password": PASSWORD})
    gone.session.flush()
    session = past.session
    session[HASH_SESSION_KEY] = "of a password that is not theirs any more"
    session.save()

    page = client.get("/settings/sessions/").content.decode()

    assert page.count("This one") == 1
    assert "/end/" not in page


def test_the_others_are_ended_by_who_has_just_got_another_key(client: Client, settings: Any) -> None:
    other = Client()
    other.post("/login/", {"username": "dana", "password": PASSWORD})
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the key of today, which is longer than it needs to be"

    assert said(client, "/settings/sessions/end-others/").startswith("1 ended ")

    assert other.get("/settings/").status_code == 302
    assert [row.session_key for row in UserSession.objects.all()] == [client.session.session_key]


def test_nobody_ends_the_session_of_somebody_else(client: Client, marco: User) -> None:
    other = Client()
    other.post("/login/", {"username": "marco", "password": PASSWORD})
    theirs = UserSession.objects.get(user=marco)

    client.post(f"/settings/sessions/{theirs.pk}/end/")
    client.post("/settings/sessions/end-others/")

    assert other.get("/settings/").status_code == 200


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605 Version/19 Safari/605", "Safari on macOS"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit Chrome/156 Safari/537 Edg/156", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19 like Mac OS X) AppleWebKit", "A browser on iPhone"),
        ("curl/8.5", "curl/8.5"),
        ("", "Unknown device"),
        ("<script>alert(1)</script>", "Unknown device"),
    ],
)
def test_a_device_is_named_as_far_as_it_says(user_agent: str, words: str) -> None:
    assert device(user_agent) == words


# --- API tokens ----------------------------------------------------------------------------------


def test_a_token_is_shown_once_lets_its_person_in_and_is_revoked(client: Client, dana: User) -> None:
    renew(client)
    form = {"name": "nightly", "scopes": ["runs:read"], "days": "30"}

    response = client.post("/settings/tokens/new/", form)

    secret = re.search(r'id="secret"[^>]*>([^<]+)<', response.content.decode())[1]  # type: ignore[index]
    assert "no-store" in response["Cache-Control"]
    token = auth.authenticate(secret)
    assert token is not None
    assert (token.user, token.scopes) == (dana, ["runs:read"])
    assert token.expires_at is not None
    assert abs(token.expires_at - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    assert secret not in client.get("/settings/tokens/").content.decode()
    assert said(client, f"/settings/tokens/{token.pk}/revoke/").startswith("Revoked ")
    assert auth.authenticate(secret) is None
    assert [kind for kind, _, _ in events("token.")] == ["token.issued", "token.revoked"]


def test_making_a_token_asks_who_one_is_and_goes_on_with_what_was_filled_in(client: Client) -> None:
    form = {"name": "nightly", "scopes": ["runs:read"], "days": ""}
    asked = client.post("/settings/tokens/new/", form)
    assert unquote(asked["Location"]) == "/reauthenticate/?next=/settings/tokens/new/"
    assert not ApiToken.objects.exists()

    response = client.post(asked["Location"], {"password": PASSWORD, "next": "/settings/tokens/new/"})

    assert 'id="secret"' in response.content.decode()
    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize(
    "scopes",
    [[], ["runs:create", "approvals:decide"], ["controls:operate"], ["conversations:write"], ["everything"]],
    ids=str,
)
def test_a_token_may_do_no_more_than_its_person_and_not_both_sides(client: Client, scopes: list[str]) -> None:
    renew(client)

    response = client.post("/settings/tokens/new/", {"name": "x", "scopes": scopes, "days": "30"})

    assert response.status_code == 422
    assert not ApiToken.objects.exists()
    assert "controls:operate" not in client.get("/settings/tokens/").content.decode()


def test_nobody_revokes_the_token_of_somebody_else(client: Client, marco: User) -> None:
    token, secret = auth.issue_token(marco, "his", ["runs:read"], "test")

    assert client.post(f"/settings/tokens/{token.pk}/revoke/").status_code == 404
    assert auth.authenticate(secret)
    assert "his" not in re.findall(r"<b>([^<]*)</b>", client.get("/settings/tokens/").content.decode())


# --- Absence -------------------------------------------------------------------------------------


def local(**ahead: float) -> str:
    return f"{timezone.localtime() + timedelta(**ahead):%Y-%m-%dT%H:%M}"


def test_somebody_away_names_who_stands_in_and_comes_back(client: Client, dana: User, marco: User) -> None:
    assert said(client, "/settings/absence/", {"deputy": marco.pk, "until": local(days=3)}).startswith("Saved ")

    assert absences.standing_in([dana.pk]) == {dana.pk: marco}
    assert "<b>Marco Reyes</b> looks after your queue" in client.get("/settings/absence/").content.decode()
    assert said(client, "/settings/absence/end/").startswith("You are back since ")
    assert absences.standing_in([dana.pk]) == {}
    kinds = [(kind, data.get("deputy")) for kind, _, data in events("absence.")]
    assert kinds == [("absence.begun", "marco"), ("absence.ended", None)]


def test_an_absence_to_come_hands_nothing_on_yet(client: Client, dana: User, marco: User) -> None:
    said(client, "/settings/absence/", {"deputy": marco.pk, "since": local(days=1), "until": local(days=3)})

    assert absences.standing_in([dana.pk]) == {}
    assert "Call it off" in client.get("/settings/absence/").content.decode()


def test_only_somebody_else_who_may_decide_stands_in(client: Client, dana: User, marco: User, sam: User) -> None:
    for form in (
        {"deputy": sam.pk, "until": local(days=1)},
        {"deputy": dana.pk, "until": local(days=1)},
        {"deputy": marco.pk, "until": local(days=-1)},
        {"deputy": marco.pk, "since": local(days=2), "until": local(days=1)},
        {"deputy": marco.pk},
        {},
    ):
        assert client.post("/settings/absence/", form).status_code == 422, form
    assert not Absence.objects.exists()


@pytest.mark.parametrize(
    "form", [{"until": "9999-12-31T23:59"}, {"since": "9999-12-31T23:58", "until": "9999-12-31T23:59"}]
)
def test_nobody_is_away_until_the_end_of_the_calendar(
    client: Client, marco: User, form: dict[str, str], settings: Any
) -> None:
    settings.TIME_ZONE = "America/New_York"
    response = client.post("/settings/absence/", {"deputy": marco.pk, **form})

    assert response.status_code == 422
    assert "That is more than ten years from now." in response.content.decode()
    assert client.get("/settings/absence/").status_code == 200
    assert not Absence.objects.exists()


def test_two_do_not_stand_in_for_each_other_at_one_time(client: Client, dana: User, marco: User) -> None:
    now = timezone.now()
    absences.begin(marco, dana, now, now + timedelta(days=2))

    response = client.post("/settings/absence/", {"deputy": marco.pk, "until": local(days=1)})

    assert response.status_code == 422
    assert "Marco Reyes is away at that time too." in response.content.decode()


def test_whoever_decides_nothing_has_nothing_to_hand_on(client: Client, dana: User, marco: User) -> None:
    dana.groups.set(Group.objects.filter(name="viewer"))

    assert "there is nothing to hand on" in client.get("/settings/absence/").content.decode()
