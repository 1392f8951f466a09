import pytest
from django.contrib.auth.models import User
from django.test import Client

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
    assert events() == [("signin.succeeded", f"user:{dana.pk}:dana", {"user": "dana"})]


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
    client.post("/login/", {"username": "hunter2hunter2", "password": ""})

    assert [(type_, data) for type_, _, data in events()] == [
        ("signin.failed", {"user": "dana", "known": True}),
        ("signin.failed", {"user": "", "known": False}),
    ]
    assert not Event.objects.filter(body__contains="hunter2").exists()


def test_signing_in_returns_to_the_page_that_was_asked_for(client: Client, dana: User) -> None:
    asked = client.get("/inbox/?view=decided")
    assert asked.status_code == 302

    response = client.post(
        asked["Location"], {"username": "dana", "password": PASSWORD, "next": "/inbox/?view=decided"}
    )

    assert response["Location"] == "/inbox/?view=decided"


def test_signing_in_never_leads_to_another_site(client: Client, dana: User) -> None:
    response = client.post("/login/", {"username": "dana", "password": PASSWORD, "next": "https://evil.example/"})

    assert response["Location"] == "/"


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
