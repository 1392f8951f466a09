"""People sign in on the console's page, and the admin is for those who may configure."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/admin/", "/admin/approvals/rule/add/", "/admin/login/?next=/admin/"])
def test_the_admin_sends_people_to_the_consoles_sign_in(client: Client, path: str) -> None:
    response = client.get(path, follow=True)
    assert response.status_code == 200
    target = urlsplit(response.redirect_chain[-1][0])
    assert target.path == reverse("login")
    assert parse_qs(target.query)["next"][0] == path.removeprefix("/admin/login/?next=")


def test_sign_in_leads_back_to_this_site_only(client: Client) -> None:
    response = client.get("/admin/login/?next=https://evil.example/")
    assert parse_qs(urlsplit(response.url).query)["next"] == ["/admin/"]


def test_somebody_who_may_not_configure_is_refused_not_sent_around(client: Client, dana: User) -> None:
    client.force_login(dana)
    response = client.get("/admin/", follow=True)
    assert response.status_code == 403


def test_the_admin_wears_the_consoles_colours_and_keeps_the_policy(client: Client, ada: User) -> None:
    client.force_login(ada)
    page = client.get("/admin/approvals/rule/add/")
    text = page.content.decode()
    assert "console/admin.css" in text
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert not re.findall(r"<style|\son\w+=|\sstyle=|javascript:", text)
    assert not [
        tag for tag in re.findall(r"<script[^>]*>", text) if "src=" not in tag and "application/json" not in tag
    ]
