"""The first administrator: created once, by the person who has the server's token."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from agentapp import first_admin
from agentapp.models import SetupToken
from approvals import ledger
from approvals.models import Event
from tests.races import race, tries

FORM = {"username": "ada", "first_name": "Ada", "last_name": "Stern", "email": "", "password1": "correct horse battery"}


def form(token: str, **changes: str) -> dict[str, str]:
    return {**FORM, "password2": FORM["password1"], "token": token, **changes}


def printed() -> str:
    """The path and token of the link that the command prints."""
    out = StringIO()
    call_command("setup_link", stdout=out)
    return out.getvalue().strip().removeprefix("http://127.0.0.1:8000")


@pytest.mark.django_db
def test_the_link_makes_an_administrator_who_is_signed_in(client: Client) -> None:
    link = printed()
    page = client.get(link)
    assert page.status_code == 200
    assert "no-store" in page["Cache-Control"]

    response = client.post("/setup/", form(link.partition("=")[2]))

    user = User.objects.get()
    assert response["Location"] == "/"
    assert (user.username, user.is_staff, user.is_superuser) == ("ada", True, False)
    assert [group.name for group in user.groups.all()] == ["admin"]
    assert client.get("/admin/approvals/rule/add/").status_code == 200
    kinds = [event.type for event in Event.objects.filter(chain=ledger.CONFIGURATION).order_by("seq")]
    assert kinds == ["setup.first_admin", "signin.succeeded"]
    assert not Event.objects.filter(body__contains=link.partition("=")[2]).exists()


@pytest.mark.django_db
def test_once_there_is_an_account_there_is_no_such_page(client: Client) -> None:
    token = first_admin.issue_token()
    User.objects.create_user("somebody")

    assert client.get(f"/setup/?token={token}").status_code == 404
    assert client.post("/setup/", form(token)).status_code == 404
    assert User.objects.count() == 1
    with pytest.raises(CommandError, match="already"):
        call_command("setup_link")


@pytest.mark.django_db
def test_a_token_that_is_wrong_old_or_replaced_makes_nobody(client: Client) -> None:
    replaced = first_admin.issue_token()
    old = first_admin.issue_token()
    SetupToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    for token in ("", "guessed", "\ud800", replaced, old):
        response = client.post("/setup/", form(token) if token.isprintable() else {"token": b"\xff"})
        assert response.status_code == 403, token
    assert "manage.py setup_link" in client.get("/setup/").content.decode()
    assert not User.objects.exists()


@pytest.mark.django_db
def test_the_token_itself_is_stored_nowhere() -> None:
    token = first_admin.issue_token()

    assert token not in str(list(SetupToken.objects.values()))


@pytest.mark.django_db
def test_a_weak_password_or_two_that_differ_use_nothing_up(client: Client) -> None:
    token = first_admin.issue_token()
    for wrong in ({"password1": "short", "password2": "short"}, {"password2": "another one entirely"}):
        response = client.post("/setup/", form(token, **wrong))
        assert response.status_code == 422
        assert 'class="error"' in response.content.decode()

    assert client.post("/setup/", form(token)).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_the_token_at_once_one_becomes_the_administrator() -> None:
    for _ in range(max(3, tries() // 15)):
        token = first_admin.issue_token()

        def use(name: str, token: str = token) -> Any:
            return Client().post("/setup/", form(token, username=name)).status_code

        codes = race(lambda: use("ada"), lambda: use("eve"))

        assert User.objects.count() == 1, codes
        assert codes.count(302) == 1
        User.objects.all().delete()
