import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.cache import caches
from django.test import Client

from agentapp import factors
from approvals import ledger
from approvals.models import Event

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def events() -> list[tuple[str, str, dict[str, object]]]:
    found = Event.objects.filter(chain=ledger.CONFIGURATION, type__startswith="sign")
    return [(event.type, event.actor, event.data) for event in found.order_by("seq")]


def test_signing_in_leads_to_the_inbox_and_is_recorded(client: Client, dana: User) -> None:
    response = client.post("/login/", {"username": "dana", "password": PASSWORD}, follow=True)

    assert response.redirect_chain[-1][0] == "/inbox/"
    assert events() == [("signin.succeeded", f"user:{dana.pk}:dana", {"user": "dana", "by": ["password"]})]


def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(client: Client, dana: User) -> None:
    wrong_password = client.post("/login/", {"username": "dana", "password": "wrong"})
    wrong_name = client.post("/login/", {"username": "nobody", "password": PASSWORD})

    def page(response: object) -> str:
        body = response.content.decode()  # type: ignore[attr-defined]
        body = body[body.index("<main") :].replace('value="dana"', "").replace('value="nobody"', "")
        return "\n".join(line for line in body.splitlines() if "csrfmiddlewaretoken" not in line)

    assert wrong_password.status_code == wrong_name.status_code == 422
    assert page(wrong_password) == page(wrong_name)


def test_a_failed_sign_in_is_recorded_without_password_or_unknown_name(client: Client, dana: User) -> None:
    client.post("/login/", {"username": "dana", "password": "hunter2hunter2"})
    client.post("/login/", {"username": "hunter2hunter2", "password": "x"})

    assert [(type_, data) for type_, _, data in events()] == [
        ("signin.failed", {"user": "dana", "known": True, "by": "password"}),
        ("signin.failed", {"user": "", "known": False, "by": "password"}),
    ]
    assert not Event.objects.filter(body__contains="hunter2").exists()


def test_what_keeps_what_was_typed_has_run_before_anybody_can_sign_in(client: Client) -> None:
    page = client.get("/login/?next=/inbox/").content.decode()
    assert page.index('console/unsent.js"></script>') < page.index("<form")


def test_signing_in_returns_to_the_page_that_was_asked_for(client: Client, dana: User) -> None:
    asked = client.get("/inbox/?view=decided")
    assert asked.status_code == 302

    response = client.post(
        asked["Location"], {"username": "dana", "password": PASSWORD, "next": "/inbox/?view=decided"}
    )

    assert response["Location"] == "/inbox/?view=decided"


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_never_leads_to_another_site(client: Client, dana: User, settings: Any, elsewhere: str) -> None:
    settings.ALLOWED_HOSTS = ["testserver", "evil.example"]
    page = client.get("/login/", {"next": elsewhere})
    response = client.post("/login/", {"username": "dana", "password": PASSWORD, "next": elsewhere})

    assert "evil" not in page.content.decode()
    assert response["Location"] == "/"


def test_the_page_says_where_one_returns_to_and_why_one_was_signed_out(client: Client, dana: User) -> None:
    approval = uuid.uuid4()
    url = f"/login/?next=/approvals/{approval}/"
    assert f"You will return to <b>APR-{approval.hex[-6:].upper()}</b>" in client.get(url).content.decode()
    client.post("/login/", {"username": "dana", "password": PASSWORD})
    Session.objects.all().delete()
    assert "Your session was ended." in client.get(url).content.decode()

    client.cookies["signed_in_at"] = str(int(time.time()) - 8 * 3600)

    assert "You were signed out after 8 hours. You will return to" in client.get(url).content.decode()
    client.cookies["signed_in_at"] = "<b>"
    assert client.get(url).status_code == 200


def test_signing_in_begins_a_session_of_its_own(client: Client, dana: User) -> None:
    client.get("/login/?next=/runs/")
    session = client.session
    session["planted"] = True
    session.save()
    client.cookies["sessionid"] = before = session.session_key

    client.post("/login/", {"username": "dana", "password": PASSWORD})

    assert client.session.session_key != before
    assert not Session.objects.filter(session_key=before).exists()
    assert client.session.get_expiry_age() <= 8 * 3600


def fail(client: Client, name: str, times: int = 5) -> Any:
    for _ in range(times):
        response = client.post("/login/", {"username": name, "password": "wrong"})
    return response


@pytest.mark.parametrize("name", ["dana", "nobody"])
def test_after_five_failures_a_name_is_locked_whether_or_not_there_is_one(
    client: Client, dana: User, name: str
) -> None:
    assert fail(client, name).status_code == 422

    response = client.post("/login/", {"username": name, "password": PASSWORD})

    assert response.status_code == 429
    assert "Locked for 5 minutes." in response.content.decode()
    assert client.get("/inbox/").status_code == 302
    assert [data.get("locked", False) for _, _, data in events()] == [False] * 4 + [True]


def test_a_lock_is_not_got_round_with_another_port_or_other_letters(client: Client, dana: User, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    isak = User.objects.create_user("isak", password=PASSWORD)
    for port, name in enumerate(("isak", "Isak", "ISAK", "\u0131sak", "i\u017fak"), 8000):
        wrong = client.post("/login/", {"username": name, "password": "wrong"}, headers={"host": f"testserver:{port}"})
        assert wrong.status_code == 422

    right = {"username": isak.username, "password": PASSWORD}
    assert client.post("/login/", right, headers={"host": "testserver:9000"}).status_code == 429


def test_a_lock_ends(client: Client, dana: User, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(client, "dana")
    later = time.time() + 241
    monkeypatch.setattr(time, "time", lambda: later)
    assert "Locked for 1 minute." in fail(client, "dana", times=1).content.decode()

    later += 60

    assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 302


def test_a_lock_is_that_of_one_name(client: Client, dana: User) -> None:
    fail(client, "nobody")

    assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 302


def test_an_address_of_ipv4_is_counted_by_itself_where_a_socket_of_ipv6_takes_it(db: None) -> None:
    """It is then part of an IPv6 address whose first half is the same for all of them."""
    for n in range(20):
        Client().post("/login/", {"username": f"name-{n}", "password": "x"}, REMOTE_ADDR="::ffff:203.0.113.7")

    def tried(address: str) -> int:
        return Client().post("/login/", {"username": "nobody", "password": "x"}, REMOTE_ADDR=address).status_code

    assert [tried("::ffff:203.0.113.7"), tried("203.0.113.7")] == [429, 429]
    assert [tried("::ffff:203.0.113.8"), tried("2001:db8::1")] == [422, 422]


def test_addresses_of_ipv6_are_counted_by_the_network_that_one_subscriber_has(db: None) -> None:
    for n in range(20):
        Client().post("/login/", {"username": f"name-{n}", "password": "x"}, REMOTE_ADDR=f"2001:db8::{n:x}")

    wrong = {"username": "nobody", "password": "x"}
    assert Client().post("/login/", wrong, REMOTE_ADDR="2001:db8::ffff:1").status_code == 429
    assert Client().post("/login/", wrong, REMOTE_ADDR="2001:db8:0:1::1").status_code == 422


def test_an_account_that_is_switched_off_gets_the_answer_of_a_wrong_password(client: Client, dana: User) -> None:
    User.objects.update(is_active=False)

    response = client.post("/login/", {"username": "dana", "password": PASSWORD})

    assert response.status_code == 422
    assert "do not match" in response.content.decode()


@pytest.mark.parametrize("path", ["/login/signup/", "/signup/", "/accounts/signup/", "/login/sso/signup/"])
def test_nobody_signs_up(client: Client, path: str) -> None:
    assert client.post(path, {"username": "new", "password1": PASSWORD}).status_code in (302, 404)
    assert not User.objects.exists()


def test_the_list_of_sessions_notes_when_each_was_used_and_not_at_every_page(client: Client, dana: User) -> None:
    client.post("/login/", {"username": "dana", "password": PASSWORD})
    caches["process"].clear()
    UserSession.objects.update(last_seen_at="2020-01-01T00:00Z")
    client.get("/counts/")
    assert UserSession.objects.get().last_seen_at.year > 2020
    UserSession.objects.update(last_seen_at="2020-01-01T00:00Z")

    client.get("/counts/")

    assert UserSession.objects.get().last_seen_at.year == 2020


def test_signing_out_needs_a_post_and_is_recorded(client: Client, dana: User) -> None:
    client.force_login(dana)

    assert client.get("/logout/").status_code == 405
    assert client.get("/inbox/").status_code == 200
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/inbox/").status_code == 302
    assert [type_ for type_, _, _ in events()] == ["signout"]


@pytest.mark.parametrize("path", ["/", "/inbox/", "/counts/", "/inbox/rows/"])
def test_nobody_sees_a_page_without_signing_in(client: Client, path: str) -> None:
    assert client.get(path)["Location"].startswith("/login/")


def with_another_password(client: Client, settings: Any) -> None:
    new = "another horse battery"
    client.post("/settings/security/password/", {"oldpassword": PASSWORD, "password1": new, "password2": new})


def with_another_secret(client: Client, settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 8


@pytest.mark.parametrize("goes_on", [with_another_password, with_another_secret])
def test_a_session_that_gets_another_key_is_still_listed_and_can_be_ended(
    client: Client, dana: User, settings: Any, goes_on: Callable[[Client, Any], None]
) -> None:
    client.post("/login/", {"username": "dana", "password": PASSWORD})
    before = client.session.session_key
    goes_on(client, settings)
    assert client.get("/inbox/").status_code == 200
    assert client.session.session_key != before

    assert UserSession.objects.get().session_key == client.session.session_key
    factors.forget(dana, "test")
    assert client.get("/inbox/").status_code == 302
