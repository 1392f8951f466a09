"""Breakers can be viewed, reset with a reason and given thresholds; their history shows who did what."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentapp import breakers
from agentapp.models import Breaker
from approvals import ledger
from tests.admin_pages import address, configuration_events

pytestmark = pytest.mark.django_db


@pytest.fixture
def opened(db: None) -> Breaker:
    for thing in ("pay_out", "pay_out_late"):
        for _ in range(3):
            with ledger.transaction():
                breakers.failed(breakers.Thing("tool", thing), f"{thing} does not answer")
    return Breaker.objects.get(key="pay_out")


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def page_of(staff: Client, breaker: Breaker) -> str:
    return staff.get(address(Breaker, "change", breaker.pk)).content.decode()


def test_its_state_thresholds_and_history_are_shown(staff: Client, opened: Breaker) -> None:
    text = page_of(staff, opened)
    for shown in ("3 of 3", "pay_out does not answer", "Opened: no calls for 60 s", "failures in a row"):
        assert shown in text
    assert "pay_out_late" not in text


def test_it_is_reset_with_a_reason_that_stays_in_the_ledger(staff: Client, opened: Breaker) -> None:
    url = reverse("admin:breaker_reset", args=[opened.pk])
    assert "go through again" in staff.get(url).content.decode()
    response = staff.post(url, {"reason": "The provider says it is over."})
    assert (response.status_code, response.url) == (302, address(Breaker, "change", opened.pk))  # type: ignore[attr-defined]
    opened.refresh_from_db()
    assert (opened.state, opened.failures) == ("closed", 0)
    event = configuration_events()[-1]
    assert (event.type, event.data["reason"]) == ("breaker.reset", "The provider says it is over.")
    assert "The provider says it is over." in page_of(staff, opened)
    assert url not in page_of(staff, opened)


def test_it_is_not_reset_without_a_reason(staff: Client, opened: Breaker) -> None:
    response = staff.post(reverse("admin:breaker_reset", args=[opened.pk]), {"reason": "  "})
    assert response.status_code == 200
    assert "This field is required" in response.content.decode()
    opened.refresh_from_db()
    assert opened.state == "open"


def test_its_thresholds_are_changed_on_record(staff: Client, opened: Breaker) -> None:
    url = reverse("admin:breaker_limits", args=[opened.pk])
    assert 'value="3"' in staff.get(url).content.decode()
    assert staff.post(url, {"threshold": "5", "cooldown_seconds": "120"}).status_code == 302
    opened.refresh_from_db()
    assert (opened.threshold, opened.cooldown_seconds, opened.state) == (5, 120, "open")
    event = configuration_events()[-1]
    assert event.type == "breaker.limits_set"
    assert event.data["before"] == {"threshold": 3, "cooldown_seconds": 60}
    assert event.data["after"] == {"threshold": 5, "cooldown_seconds": 120}
    assert "3 → 5 failures, 60 → 120 s" in page_of(staff, opened)
    seen = ledger.height()
    staff.post(url, {"threshold": "5", "cooldown_seconds": "120"})
    assert ledger.height() == seen


@pytest.mark.parametrize(
    "typed",
    [
        {"threshold": "0", "cooldown_seconds": "60"},
        {"threshold": "3", "cooldown_seconds": "0"},
        {"threshold": "3", "cooldown_seconds": "86401"},
        {"threshold": "many", "cooldown_seconds": "60"},
    ],
)
def test_thresholds_that_make_no_sense_are_refused(staff: Client, opened: Breaker, typed: dict[str, str]) -> None:
    response = staff.post(reverse("admin:breaker_limits", args=[opened.pk]), typed)
    assert response.status_code == 200
    assert "Nothing was changed" in response.content.decode()
    opened.refresh_from_db()
    assert (opened.threshold, opened.cooldown_seconds) == (3, 60)


@pytest.mark.parametrize("page", ["breaker_reset", "breaker_limits"])
def test_only_who_may_stop_things_may_change_one(
    client: Client, opened: Breaker, ada: User, page: str, roles: Any
) -> None:
    roles["admin"].permissions.remove(*roles["admin"].permissions.filter(codename="engage_killswitch"))
    client.force_login(ada)
    url = reverse(f"admin:{page}", args=[opened.pk])
    assert client.get(url).status_code == 403
    assert client.post(url, {"reason": "x", "threshold": "9", "cooldown_seconds": "9"}).status_code == 403
    opened.refresh_from_db()
    assert (opened.state, opened.threshold) == ("open", 3)
    assert url not in client.get(address(Breaker, "change", opened.pk)).content.decode()


def test_a_breaker_that_is_not_there_is_not_found(staff: Client, opened: Breaker) -> None:
    opened.delete()
    assert staff.get(reverse("admin:breaker_reset", args=[opened.pk])).status_code == 404
