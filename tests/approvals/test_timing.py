"""When a request's time is up, by the clock and by business hours, with and without a question."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals import timing
from approvals.business_hours import BusinessHours
from approvals.cards import pending
from approvals.escalation import Step
from approvals.models import Approval
from tests.rows import a_card

FRIDAY = datetime(2026, 3, 27, 15, 30, tzinfo=UTC)
"""Half past four in Berlin, half an hour before the weekend when the clocks go forward."""


@pytest.fixture
def berlin(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    settings.BUSINESS_HOURS = BusinessHours.parse("mon-fri 09:00-17:00")


def a_request_at(now: datetime, **card: Any) -> Approval:
    return pending(a_card(**{"expires_seconds": 7200, "business_hours": True, **card}), now)


def test_the_moments_are_those_of_the_clock() -> None:
    steps = (Step(600, remind=True), Step(1800, "managers"))
    asked = a_request_at(FRIDAY, business_hours=False, target_seconds=300, escalation=steps)
    assert asked.expires_at == FRIDAY + timedelta(hours=2)
    assert asked.target_at == FRIDAY + timedelta(minutes=5)
    assert [step["at"] for step in asked.escalation] == ["2026-03-27T15:40:00+00:00", "2026-03-27T16:00:00+00:00"]
    assert asked.escalates_at == FRIDAY + timedelta(minutes=10)


def test_a_weekend_and_the_hour_that_it_skips_do_not_count(berlin: None) -> None:
    asked = a_request_at(FRIDAY, target_seconds=3600, escalation=(Step(1800, "managers"), Step(5400, "managers")))
    # Monday is in summer time: nine o'clock in Berlin is seven UTC.
    assert asked.target_at == datetime(2026, 3, 30, 7, 30, tzinfo=UTC)
    assert [step["at"] for step in asked.escalation] == ["2026-03-27T16:00:00+00:00", "2026-03-30T08:00:00+00:00"]
    assert asked.expires_at == datetime(2026, 3, 30, 8, 30, tzinfo=UTC)


def test_without_business_hours_every_hour_is_one(settings: Any) -> None:
    settings.BUSINESS_HOURS = BusinessHours()
    assert a_request_at(FRIDAY).expires_at == FRIDAY + timedelta(hours=2)


def test_a_question_moves_what_is_still_to_come_and_gives_back_what_it_did_not_need() -> None:
    steps = (Step(600, remind=True), Step(1800, "managers"))
    asked = a_request_at(FRIDAY, business_hours=False, target_seconds=300, escalation=steps)
    begin, within = FRIDAY + timedelta(minutes=7), timedelta(minutes=30)
    timing.pause(asked, begin, begin + within)
    assert asked.escalates_at == FRIDAY + timedelta(minutes=40)
    timing.pause(asked, begin, begin + timedelta(minutes=4), planned_until=begin + within)
    assert asked.target_at == FRIDAY + timedelta(minutes=5), "it had passed before"
    assert asked.escalates_at == FRIDAY + timedelta(minutes=14)
    assert asked.escalation[1]["at"] == "2026-03-27T16:04:00+00:00"
    assert asked.expires_at == FRIDAY + timedelta(hours=2, minutes=4)


def test_a_question_over_the_weekend_stops_the_clock_for_the_business_hours_it_took(berlin: None) -> None:
    asked = a_request_at(FRIDAY, target_seconds=1800, escalation=(Step(3600, "managers"),))
    begin, planned = FRIDAY + timedelta(minutes=20), FRIDAY + timedelta(days=4)
    timing.pause(asked, begin, planned)
    assert asked.target_at is not None
    assert asked.target_at > planned
    monday = datetime(2026, 3, 30, 7, 15, tzinfo=UTC)
    timing.pause(asked, begin, monday, planned_until=planned)
    # Ten minutes were left of the target, forty of the step, and a hundred of the whole.
    assert asked.target_at == monday + timedelta(minutes=10)
    assert asked.escalates_at == monday + timedelta(minutes=40)
    assert asked.expires_at == monday + timedelta(minutes=100)


@pytest.mark.parametrize(
    ("begin", "end", "minutes"),
    [
        ("2026-11-27T16:00", "2026-11-27T16:30", 30),
        ("2026-11-27T16:30", "2026-11-30T09:30", 60),
        ("2026-11-28T12:00", "2026-11-28T13:00", 0),
        ("2026-11-27T16:30", "2026-11-27T16:30", 0),
        ("2026-11-27T16:30", "2026-11-27T16:00", 0),
    ],
)
def test_business_hours_between_two_moments(begin: str, end: str, minutes: int) -> None:
    hours = BusinessHours.parse("mon-fri 09:00-17:00", UTC)
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (begin, end)]
    assert hours.between(*moments) == minutes * 60
