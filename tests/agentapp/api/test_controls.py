"""Stopping things over the API."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp.models import Agent, Breaker, KillSwitch
from approvals.models import Event


@pytest.fixture
def operating(client_of: Any, mia: User) -> Any:
    return client_of(mia, "controls:operate", "configuration:read")


@pytest.fixture
def broken(db: None) -> Breaker:
    return Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3)


def test_a_switch_is_engaged_listed_and_released(operating: Any, support: Agent) -> None:
    made = operating.post("/switches", {"scope": "agent", "key": "support", "reason": "It pays twice."})
    assert (made.status, made.data["engaged_by"]) == (201, "mia")
    assert operating.get("/switches").data["items"] == [made.data]
    released = operating.send("DELETE", f"/switches/{made.data['id']}")
    assert (released.status, released.data) == (200, {"runs_woken": 0})
    assert not KillSwitch.objects.exists()


def test_a_switch_is_engaged_once(operating: Any) -> None:
    body = {"scope": "all", "reason": "x"}
    assert operating.post("/switches", body).status == 201
    again = operating.post("/switches", body)
    assert (again.status, again.code) == (409, "already_engaged")


def test_a_switch_for_nobody_is_refused(operating: Any) -> None:
    refused = operating.post("/switches", {"scope": "agent", "key": "nobody", "reason": "x"})
    assert (refused.status, refused.code) == (422, "invalid")


def test_a_breaker_is_listed_and_reset(operating: Any, broken: Breaker) -> None:
    [listed] = operating.get("/breakers").data["items"]
    assert (listed["key"], listed["state"], listed["failures"]) == ("pay", "open", 3)
    assert operating.post(f"/breakers/{broken.pk}/reset").data["state"] == "closed"


def test_the_reason_for_a_reset_is_kept_where_one_is_given(operating: Any, broken: Breaker) -> None:
    path = f"/breakers/{broken.pk}/reset"
    assert operating.post(path, {"reason": "y" * 501}).status == 422
    assert operating.post(path, {"because": "y"}).status == 422

    assert operating.post(path, {"reason": "The provider says so."}).data["state"] == "closed"

    assert Event.objects.get(type="breaker.reset").data["reason"] == "The provider says so."


def test_what_is_not_there_is_not_found(operating: Any) -> None:
    nobody = "0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11"
    assert operating.send("DELETE", f"/switches/{nobody}").status == 404
    assert operating.post(f"/breakers/{nobody}/reset").status == 404


def test_a_token_needs_the_scope_and_its_person_the_right(
    client_of: Any, mia: User, dana: User, broken: Breaker
) -> None:
    body = {"scope": "all", "reason": "x"}
    assert client_of(mia, "configuration:read").post("/switches", body).code == "insufficient_scope"
    assert client_of(dana, "controls:operate").post("/switches", body).code == "forbidden"
    assert client_of(dana, "configuration:read").get("/breakers").code == "forbidden"
    assert client_of(dana, "controls:operate").post(f"/breakers/{broken.pk}/reset").code == "forbidden"
    assert not KillSwitch.objects.exists()
