"""Grants over the API: read and revoked, never made."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp.api import api
from agentapp.models import Tool
from approvals.models import Event, Grant
from tests.conftest import Clerk
from tests.grants import a_grant, grant_from, let_grant


@pytest.fixture
def grant(clerk: Clerk, dana: User) -> Grant:
    return a_grant(clerk, dana, max_hits="5")


def test_grants_are_listed_and_read(client_of: Any, mia: User, grant: Grant) -> None:
    reading = client_of(mia, "configuration:read")
    [listed] = reading.get("/grants").data["items"]
    assert reading.get(f"/grants/{grant.pk}").data == listed
    assert (listed["reference"], listed["hits"], listed["max_hits"]) == (grant.reference, 0, 5)
    assert {"name": "to", "rule": "is", "value": "ann"} in listed["constraints"]


def test_they_come_in_pages(client_of: Any, mia: User, clerk: Clerk, dana: User) -> None:
    first = a_grant(clerk, dana)
    made = [str(grant.pk) for grant in (first, *(grant_from(first.approval, dana) for _ in range(2)))]
    reading = client_of(mia, "configuration:read")
    newest = reading.get("/grants", limit=2).data
    older = reading.get("/grants", limit=2, cursor=newest["next"]).data
    assert [item["id"] for item in (*newest["items"], *older["items"])] == made[::-1]


def test_what_has_become_a_secret_since_is_masked(client_of: Any, mia: User, grant: Grant) -> None:
    Tool.objects.filter(name="send").update(secret_fields=["to"])
    assert "ann" not in str(client_of(mia, "configuration:read").get(f"/grants/{grant.pk}").data["constraints"])


def test_a_grant_is_revoked_once(client_of: Any, mia: User, grant: Grant) -> None:
    operating = client_of(mia, "controls:operate")
    revoked = operating.post(f"/grants/{grant.pk}/revoke", {"reason": "Enough."})
    assert (revoked.status, revoked.data["revoked_by"], revoked.data["revoked_why"]) == (200, "mia", "Enough.")
    # The trail shows that a token did it.
    assert Event.objects.get(type="grant.revoked").actor == f"user:{mia.pk}:mia (token test)"
    again = operating.post(f"/grants/{grant.pk}/revoke", {"reason": "Enough."})
    assert (again.status, again.code) == (409, "already_revoked")


def test_why_must_be_said(client_of: Any, mia: User, grant: Grant) -> None:
    operating = client_of(mia, "controls:operate")
    assert operating.post(f"/grants/{grant.pk}/revoke", {"reason": " "}).status == 422
    assert operating.post(f"/grants/{grant.pk}/revoke", {}).status == 422
    grant.refresh_from_db()
    assert grant.revoked_at is None


def test_a_person_without_the_right_learns_nothing(
    client_of: Any, marco: User, otto: User, mia: User, grant: Grant
) -> None:
    reading = client_of(marco, "configuration:read", "controls:operate")
    assert reading.get("/grants").code == "forbidden"
    assert reading.get(f"/grants/{grant.pk}").status == 404
    assert reading.post(f"/grants/{grant.pk}/revoke", {"reason": "x"}).status == 404
    outside = client_of(let_grant(otto), "configuration:read", "controls:operate")
    assert outside.get("/grants").data["items"] == []
    assert outside.get(f"/grants/{grant.pk}").status == 404
    assert client_of(mia, "configuration:read").post(f"/grants/{grant.pk}/revoke", {"reason": "x"}).status == 403


def test_no_operation_makes_one() -> None:
    paths = api.get_openapi_schema()["paths"]
    writing = {path for path, methods in paths.items() if "grant" in path and set(methods) - {"get"}}
    assert writing == {"/api/v1/grants/{grant_id}/revoke"}
