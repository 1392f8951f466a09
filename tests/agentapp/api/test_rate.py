"""A token that sends requests too often is told to come back; it does not hold up others."""

import time
from typing import Any

import pytest
from django.contrib.auth.models import User


@pytest.fixture(autouse=True)
def _one_minute(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 3
    monkeypatch.setattr(time, "time", lambda: 1_800_000_030.5)


def test_a_token_that_asks_too_often_is_told_when_to_come_back(client_of: Any, sam: User) -> None:
    client = client_of(sam, "runs:read")
    assert [client.get("/runs").status for _ in range(4)] == [200, 200, 200, 429]
    refused = client.get("/runs")
    assert (refused.status, refused.code) == (429, "too_many_requests")
    assert refused.headers["Retry-After"] == "30"


def test_refused_requests_change_nothing_and_a_new_minute_begins_anew(
    client_of: Any, sam: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(sam, "runs:read")
    for _ in range(5):
        client.get("/runs")
    monkeypatch.setattr(time, "time", lambda: 1_800_000_061.0)
    assert client.get("/runs").status == 200


def test_each_token_has_its_own(client_of: Any, sam: User) -> None:
    for _ in range(4):
        client_of(sam, "runs:read").get("/runs")
    first, second = client_of(sam, "runs:read"), client_of(sam, "runs:read")
    assert [first.get("/runs").status for _ in range(4)][-1] == 429
    assert second.get("/runs").status == 200


def test_nothing_is_counted_where_there_is_no_limit(client_of: Any, sam: User, settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 0
    client = client_of(sam, "runs:read")
    assert {client.get("/runs").status for _ in range(6)} == {200}
