"""A forgotten password: who gets a link, what it opens, and what it never does."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.usersessions.models import UserSession
from celery import current_app
from django.contrib.auth.models import User
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client

from agentapp import password_reset
from approvals import ledger
from approvals.models import Event

pytestmark = pytest.mark.django_db
PASSWORD, NEW = "correct horse battery", "a staple that was new"


@pytest.fixture(autouse=True)
def _mail_is_sent(settings: Any) -> Iterator[None]:
    """A mail server, and tasks that run in the caller."""
    settings.PASSWORD_RESET = True
    settings.BASE_URL = "https://countersign.example"
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


def ask(client: Client, address: str = "dana@example.test", **more: Any) -> Any:
    return client.post("/login/reset/", {"email": address}, **more)


def link_in(mail: Any) -> str:
    found = re.search(r"https://countersign\.example(/login/reset/\S+)", mail.body)
    assert found, mail.body
    return found[1]


def follow(client: Client, link: str) -> str:
    """Open a link as a browser does. Returns the address of the form."""
    response = client.get(link)
    assert response.status_code == 302
    return str(response["Location"])


def choose(client: Client, form: str, password: str = NEW, again: str | None = None) -> Any:
    return client.post(form, {"password1": password, "password2": password if again is None else again})


def events() -> list[tuple[str, str, dict[str, object]]]:
    found = Event.objects.filter(chain=ledger.CONFIGURATION).order_by("seq")
    return [(event.type, event.actor, event.data) for event in found]


def body(response: Any) -> str:
    text: str = response.content.decode()
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", text)


def test_a_link_leads_to_a_new_password_and_sign_in_with_it(client: Client, dana: User, mailoutbox: Any) -> None:
    assert "/login/reset/" in client.get("/login/").content.decode()
    assert ask(client)["Location"] == "/login/reset/asked/"

    done = choose(client, follow(client, link_in(mailoutbox[0])))

    assert done["Location"] == "/login/"
    assert "Your password was changed." in client.get("/login/").content.decode()
    assert "Your password was changed." not in client.get("/login/").content.decode()
    assert client.get("/inbox/").status_code == 302
    assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 422
    assert client.post("/login/", {"username": "dana", "password": NEW}).status_code == 302
    assert client.get("/inbox/").status_code == 200


def test_the_mail_says_for_which_account_and_who_asked_from_where(
    client: Client, dana: User, settings: Any, mailoutbox: Any
) -> None:
    settings.WORKSPACE_NAME = "Northwind"
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0 Safari/537.36"
    ask(client, "DANA@example.test", headers={"User-Agent": agent, "Host": "testserver"}, REMOTE_ADDR="203.0.113.9")

    [mail] = mailoutbox
    assert (mail.to, mail.subject) == (["dana@example.test"], "[Northwind] Choose a new password")
    for words in (
        "at Northwind",
        "Account   dana",
        "Chrome on Linux",
        "203.0.113.9",
        "60 minutes",
        "not you, do nothing",
    ):
        assert words in mail.body
    assert mail.content_subtype == "plain"
    assert not getattr(mail, "alternatives", [])


def test_what_a_browser_calls_itself_is_no_text_of_our_mail(client: Client, dana: User, mailoutbox: Any) -> None:
    ask(client, headers={"User-Agent": "go to evil.example now"})

    assert "evil" not in mailoutbox[0].body


def test_the_link_leads_to_where_the_console_is_whatever_the_request_says(
    client: Client, dana: User, settings: Any, mailoutbox: Any
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    ask(client, headers={"Host": "evil.example"})

    assert link_in(mailoutbox[0])
    assert "evil" not in mailoutbox[0].body


def test_every_address_gets_the_same_answer(client: Client, dana: User, marco: User, mailoutbox: Any) -> None:
    User.objects.create_user("sso", "sso@example.test")
    User.objects.filter(pk=marco.pk).update(is_active=False)
    answers = []
    for address in ("dana", "marco", "sso", "nobody"):
        other = Client()
        response = ask(other, f"{address}@example.test")
        answers.append((response.status_code, response["Location"], body(other.get(response["Location"]))))

    assert len(set(answers)) == 1
    assert [mail.to for mail in mailoutbox] == [["dana@example.test"]]
    assert [data for _, _, data in events()] == [
        {"user": "dana", "known": True, "mailed": True},
        {"user": "marco", "known": True, "mailed": False, "reason": "switched_off"},
        {"user": "sso", "known": True, "mailed": False, "reason": "no_password"},
        {"user": "", "known": False, "mailed": False},
    ]


def test_the_page_looks_nothing_up_so_that_no_answer_takes_longer(
    client: Client, dana: User, mailoutbox: Any, django_assert_num_queries: Any
) -> None:
    current_app.conf.task_always_eager = False
    current_app.conf.broker_url = "memory://localhost//"

    with django_assert_num_queries(0):
        assert ask(client).status_code == 302
    with django_assert_num_queries(0):
        assert ask(client, "nobody@example.test").status_code == 302
    assert mailoutbox == []


def test_a_mail_server_that_fails_is_not_told_to_the_page(
    client: Client, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> int:
        raise OSError("down")

    monkeypatch.setattr(EmailBackend, "send_messages", fail)

    assert ask(client)["Location"] == "/login/reset/asked/"
    assert events()[0][2] == {"user": "dana", "known": True, "mailed": False, "reason": "mail_failed"}


@pytest.mark.parametrize("name", ["dana", "nobody"])
def test_asking_too_often_for_an_address_is_refused_whether_or_not_there_is_such_an_account(
    client: Client, dana: User, mailoutbox: Any, name: str
) -> None:
    for _ in range(3):
        assert ask(client, f"{name}@example.test").status_code == 302

    refused = ask(client, f"{name.upper()}@example.test")

    assert refused.status_code == 429
    assert "Too many tries" in refused.content.decode()
    assert len(mailoutbox) == (3 if name == "dana" else 0)


def test_asking_too_often_from_one_place_is_refused(client: Client) -> None:
    answers = [ask(client, f"a{number}@example.test").status_code for number in range(21)]

    assert answers == [302] * 20 + [429]


def test_what_is_no_address_is_said_beside_the_field_and_kept(client: Client) -> None:
    response = ask(client, "dana at home")

    assert response.status_code == 422
    assert 'value="dana at home" aria-invalid="true" aria-describedby="m-e"' in response.content.decode()


def test_a_link_works_once(client: Client, dana: User, mailoutbox: Any) -> None:
    ask(client)
    link = link_in(mailoutbox[0])
    form = follow(client, link)
    other = Client()
    other_form = follow(other, link)
    choose(client, form)

    late = choose(other, other_form, "another one entirely")

    assert late.status_code == 410
    assert "This link is not valid." in late.content.decode()
    assert 'href="/login/reset/"' in late.content.decode()
    assert Client().get(link).status_code == 410
    dana.refresh_from_db()
    assert dana.check_password(NEW)


def test_of_two_who_use_a_link_together_one_is_told(dana: User) -> None:
    key = password_reset.Links().make_token(dana)

    assert password_reset.use(dana, key, NEW)
    assert not password_reset.use(dana, key, "another one entirely")


def test_a_link_is_worthless_after_an_hour(
    client: Client, dana: User, mailoutbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client)
    later = password_reset.Links()._now().timestamp() + 3601

    monkeypatch.setattr(password_reset.Links, "_now", lambda self: type(dana.date_joined).fromtimestamp(later))

    assert client.get(link_in(mailoutbox[0])).status_code == 410


@pytest.mark.parametrize("change", [{"is_active": False}, {"email": "new@example.test"}, {"password": "!"}])
def test_a_link_is_worthless_once_the_account_has_changed(
    client: Client, dana: User, mailoutbox: Any, change: dict[str, Any]
) -> None:
    ask(client)
    form = follow(client, link_in(mailoutbox[0]))
    User.objects.update(**change)

    assert choose(client, form).status_code == 410
    assert client.get(form).status_code == 410
    assert client.get(link_in(mailoutbox[0])).status_code == 410


def test_signing_in_makes_a_link_worthless(client: Client, dana: User, mailoutbox: Any) -> None:
    ask(client)
    Client().post("/login/", {"username": "dana", "password": PASSWORD})

    assert client.get(link_in(mailoutbox[0])).status_code == 410


@pytest.mark.parametrize("link", ["1-abc-def", "zzzzzzzzzzzzzzzzzzzz-a", "1-set-password"])
def test_a_link_that_was_made_up_opens_nothing(client: Client, dana: User, link: str) -> None:
    assert client.get(f"/login/reset/{link}/").status_code == 410
    assert choose(client, f"/login/reset/{link}/").status_code == 410


def test_a_reset_never_stands_in_for_the_second_factor(client: Client, dana: User, mailoutbox: Any) -> None:
    TOTP.activate(dana, generate_totp_secret())
    ask(client)
    form = follow(client, link_in(mailoutbox[0]))
    assert "second step" in client.get(form).content.decode()
    choose(client, form)
    assert client.get("/inbox/").status_code == 302

    response = client.post("/login/", {"username": "dana", "password": NEW})

    assert response["Location"].startswith("/login/second/")
    assert client.get("/inbox/").status_code == 302


def test_every_session_ends_and_the_ledger_says_so_without_a_secret(
    client: Client, dana: User, marco: User, mailoutbox: Any
) -> None:
    elsewhere, of_marco = Client(), Client()
    elsewhere.post("/login/", {"username": "dana", "password": PASSWORD})
    of_marco.post("/login/", {"username": "marco", "password": PASSWORD})
    ask(client)
    link = link_in(mailoutbox[0])
    before = len(events())

    choose(client, follow(client, link))

    assert elsewhere.get("/inbox/").status_code == 302
    assert of_marco.get("/inbox/").status_code == 200
    assert [session.user for session in UserSession.objects.all()] == [marco]
    actor = f"user:{dana.pk}:dana (link by mail)"
    assert events()[before:] == [
        ("user.password_changed", actor, {"user": dana.pk, "name": "dana", "usable": True, "by": "mail"}),
        ("signin.sessions_ended", actor, {"user": "dana", "number": 1}),
    ]
    key = link.rstrip("/").partition("-")[2]
    assert not Event.objects.filter(body__contains=key).exists()
    assert not Event.objects.filter(body__contains=NEW).exists()


def test_opening_a_link_signs_nobody_out_and_using_it_does(
    client: Client, dana: User, marco: User, mailoutbox: Any
) -> None:
    client.post("/login/", {"username": "marco", "password": PASSWORD})
    ask(client)
    assert "Asked by  marco" in mailoutbox[0].body
    form = follow(client, link_in(mailoutbox[0]))
    client.get(form)
    assert client.get("/inbox/").status_code == 200

    choose(client, form)

    assert client.get("/inbox/").status_code == 302
    assert events()[-1] == ("signout", f"user:{marco.pk}:marco", {"user": "marco"})


def test_a_new_password_ends_the_lock_of_its_name(client: Client, dana: User, mailoutbox: Any) -> None:
    for _ in range(5):
        client.post("/login/", {"username": "dana", "password": "wrong"})
    assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 429
    ask(client)

    choose(client, follow(client, link_in(mailoutbox[0])))

    assert client.post("/login/", {"username": "dana", "password": NEW}).status_code == 302


@pytest.mark.parametrize(
    ("password", "again", "field", "words"),
    [
        ("short", "short", "p1", "too short"),
        ("password1234", "password1234", "p1", "too common"),
        ("dana@example.test", "dana@example.test", "p1", "too similar"),
        (NEW, NEW + "!", "p2", "the same password each time"),
        ("", "", "p1", "required"),
    ],
)
def test_a_password_that_will_not_do_is_said_beside_its_field(
    client: Client, dana: User, mailoutbox: Any, password: str, again: str, field: str, words: str
) -> None:
    ask(client)
    form = follow(client, link_in(mailoutbox[0]))

    response = choose(client, form, password, again)

    assert response.status_code == 422
    [said] = re.findall(rf'<span class="error" id="{field}-e">(.*?)</span>', response.content.decode(), re.S)
    assert words in said
    assert f'aria-describedby="{field}-e"' in response.content.decode()
    assert not password or f'value="{password}"' not in response.content.decode()
    assert choose(client, form).status_code == 302


def test_the_link_is_neither_kept_nor_told_to_where_it_leads(client: Client, dana: User, mailoutbox: Any) -> None:
    ask(client)
    link = link_in(mailoutbox[0])
    opened = client.get(link)
    form = client.get(opened["Location"])

    assert opened["Referrer-Policy"] == "no-referrer"
    key = link.rstrip("/").partition("-")[2]
    assert key not in opened["Location"]
    assert key not in form.content.decode()
    for response in (opened, form, client.get("/login/reset/"), client.get("/login/reset/asked/")):
        assert "no-store" in response["Cache-Control"]
        assert response["Referrer-Policy"] in ("no-referrer", "same-origin")
    assert Client().get("/login/reset/1-gone/")["Referrer-Policy"] == "no-referrer"


def test_the_form_is_accepted_from_a_browser_that_checks_origins(dana: User, mailoutbox: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.get("/login/reset/")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.content.decode())
    assert token is not None
    assert page["Referrer-Policy"] == "same-origin"
    sent = {"email": "dana@example.test", "csrfmiddlewaretoken": token[1]}
    assert client.post("/login/reset/", sent, headers={"Origin": "http://testserver"}).status_code == 302

    form = follow(client, link_in(mailoutbox[0]))

    assert client.get(form)["Referrer-Policy"] == "same-origin"


def test_a_request_that_is_refused_at_a_link_leaves_no_link_in_the_log(
    dana: User, mailoutbox: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(enforce_csrf_checks=True)
    link = f"/login/reset/1-{password_reset.Links().make_token(dana)}/"
    used = settings.LOGGING["handlers"]["console"]["filters"]
    assert "agentapp.logs.WithoutLinks" in [settings.LOGGING["filters"][name]["()"] for name in used]

    with caplog.at_level(logging.WARNING):
        assert client.post(link, {}).status_code == 403

    assert link not in caplog.text
    assert "/login/reset/…/" in caplog.text


@pytest.mark.parametrize("path", ["", "asked/", "1-abc/"])
def test_where_no_mail_is_sent_there_is_no_such_page(client: Client, dana: User, settings: Any, path: str) -> None:
    settings.PASSWORD_RESET = False

    assert client.get(f"/login/reset/{path}").status_code == 404
    assert "Forgot" not in client.get("/login/").content.decode()
