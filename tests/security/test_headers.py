"""Headers of every answer, whatever it is: a page, a part, a file, a refusal, a failure; and how much is read."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.test import Client

from agentapp.console import problems
from tests.security import surface
from tests.security.surface import World

pytestmark = pytest.mark.django_db
EXPECTED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
}
POLICY = ("default-src 'none'", "script-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'")


@pytest.fixture
def world(roles: object, settings: Any) -> World:
    settings.SECURE_HSTS_SECONDS, settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = 31536000, True
    return surface.make_world()


def missing(response: Any) -> list[str]:
    """What an answer lacks."""
    policy = response.headers.get("Content-Security-Policy", "")
    lacking = [name for name, value in EXPECTED.items() if response.headers.get(name) != value]
    lacking += [rule for rule in POLICY if rule not in policy]
    return lacking + ["unsafe" for word in ("unsafe-inline", "unsafe-eval") if word in policy]


def addresses(world: World) -> Iterator[str]:
    for route in surface.routes():
        yield surface.address(route, world)


@pytest.mark.parametrize("role", ["admin", "nobody"])
def test_every_address_answers_with_them(world: World, role: str) -> None:
    client, wrong, seen = surface.signed_in(world, role), {}, set()
    for url in addresses(world):
        response = client.get(url, secure=True)
        seen.add(response.status_code)
        if lacking := missing(response):
            wrong[url] = lacking
        if not client.session.get("_auth_user_id") and role != "nobody":
            client.force_login(world.people[role])
    assert wrong == {}
    assert {302, 404, 405} <= seen
    assert (200 in seen) or role == "nobody"


def test_files_have_them(world: World) -> None:
    names = [
        path for finder in finders.get_finders() for path, _ in finder.list([]) if "console" in path or "htmx" in path
    ]
    assert names
    for name in names:
        response = Client().get(f"/static/{name}", secure=True)
        assert response.status_code == 200, name
        assert missing(response) == [], name


def test_so_have_refusals_of_every_kind(world: World) -> None:
    client, unchecked = Client(enforce_csrf_checks=True), Client()
    client.force_login(world.people["admin"])
    unchecked.force_login(world.people["admin"])
    asked = {
        403: client.post("/logout/", secure=True),
        404: client.get("/no/such/page/", secure=True),
        405: unchecked.post("/inbox/rows/", secure=True),
        400: client.get("/inbox/", secure=True, headers={"Host": "somebody-elses.example"}),
        401: client.get("/api/v1/runs", secure=True),
    }
    for status, response in asked.items():
        assert response.status_code == status
        assert missing(response) == [], status


def test_so_has_our_own_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: HttpRequest, **path: str) -> HttpResponse:
        raise RuntimeError("of ours")

    monkeypatch.setattr("agentapp.console.inbox.signed_in", fail)
    client = Client(raise_request_exception=False)
    client.force_login(world.people["admin"])
    response = client.get("/inbox/", secure=True)
    assert response.status_code == 500
    assert problems._OURS in response.text
    assert missing(response) == []


class TestHowMuchIsRead:
    def test_a_page_reads_no_more_than_two_megabytes(self, world: World) -> None:
        client = surface.signed_in(world, "approver")
        url = f"/approvals/{world.values['approval_id']}/decide/"
        body = f"message={'x' * (2 * 1024 * 1024)}"
        response = client.post(url, body, content_type="application/x-www-form-urlencoded", secure=True)
        assert response.status_code == 400
        assert "Nothing was changed" in response.text
        assert missing(response) == []

    def test_nor_does_a_form_of_many_fields(self, world: World) -> None:
        client = surface.signed_in(world, "approver")
        url = f"/approvals/{world.values['approval_id']}/decide/"
        response = client.post(
            url, "&".join(f"a{n}=1" for n in range(1001)), content_type="application/x-www-form-urlencoded"
        )
        assert response.status_code == 400

    def test_an_operation_reads_no_more_than_256_kilobytes(self, world: World) -> None:
        headers = surface.token_of(world.people["operator"], "runs:create")
        body = b'{"agent": "support", "input": "' + b"x" * (256 * 1024) + b'"}'
        response = Client().post("/api/v1/runs", body, content_type="application/json", headers=headers)
        assert response.status_code == 413
