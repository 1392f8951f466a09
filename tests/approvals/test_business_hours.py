"""Business hours: when people are at work, and when a number of working hours has passed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.business_hours import LONGEST, BusinessHours

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = BusinessHours.parse("mon-fri 09:00-17:00", BERLIN)
HOUR = 3600


def at(text: str) -> datetime:
    """A moment by the clock in Berlin. 2026-03-02 is a Monday."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("moment", "at_work"),
    [
        ("2026-03-02T08:59:59", False),
        ("2026-03-02T09:00:00", True),
        ("2026-03-06T16:59:59", True),
        ("2026-03-06T17:00:00", False),
        ("2026-03-07T12:00:00", False),
    ],
)
def test_an_opening_begins_with_its_first_moment_and_ends_before_its_last(moment: str, at_work: bool) -> None:
    assert OFFICE.contains(at(moment)) is at_work


def test_the_hours_are_those_of_its_zone_whatever_zone_the_moment_is_told_in() -> None:
    assert OFFICE.contains(datetime(2026, 3, 2, 8, 30, tzinfo=UTC))
    assert OFFICE.contains(datetime(2026, 7, 6, 7, 30, tzinfo=UTC))
    assert not OFFICE.contains(datetime(2026, 3, 2, 7, 30, tzinfo=UTC))


def test_without_a_zone_the_clock_is_the_installations(settings: object) -> None:
    hours = BusinessHours.parse("mon 09:00-10:00")
    settings.TIME_ZONE = "Asia/Tokyo"  # type: ignore[attr-defined]
    assert hours.contains(datetime(2026, 3, 2, 0, 30, tzinfo=UTC))
    assert not hours.contains(datetime(2026, 3, 2, 9, 30, tzinfo=UTC))


def test_no_hours_at_all_mean_every_hour() -> None:
    always = BusinessHours.parse(" ")
    assert always.contains(at("2026-03-08T03:00"))
    assert always.add(at("2026-03-08T03:00"), HOUR) == at("2026-03-08T04:00")


@pytest.mark.parametrize(
    ("begin", "hours", "end"),
    [
        ("2026-03-02T10:00", 2, "2026-03-02T12:00"),
        ("2026-03-02T16:00", 1, "2026-03-02T17:00"),
        ("2026-03-02T16:00", 2, "2026-03-03T10:00"),
        ("2026-03-02T03:00", 1, "2026-03-02T10:00"),
        ("2026-03-06T16:30", 1, "2026-03-09T09:30"),
        ("2026-03-07T12:00", 8, "2026-03-09T17:00"),
        ("2026-03-02T09:00", 80, "2026-03-13T17:00"),
    ],
)
def test_only_business_hours_pass(begin: str, hours: int, end: str) -> None:
    assert OFFICE.add(at(begin), hours * HOUR) == at(end)


def test_nothing_added_is_the_moment_itself_even_at_night() -> None:
    assert OFFICE.add(at("2026-03-07T03:00"), 0) == at("2026-03-07T03:00")


def test_hours_go_on_over_a_weekend_in_which_the_clock_changes() -> None:
    assert OFFICE.add(at("2026-03-27T16:00"), 2 * HOUR) == at("2026-03-30T10:00")
    assert OFFICE.add(at("2026-10-23T16:00"), 2 * HOUR) == at("2026-10-26T10:00")


def test_an_hour_that_the_clock_skips_does_not_pass() -> None:
    nights = BusinessHours.parse("sun 00:00-06:00", BERLIN)
    assert nights.add(at("2026-03-29T00:00"), 5 * HOUR) == at("2026-03-29T06:00")
    assert not nights.contains(at("2026-03-29T06:00"))


def test_an_hour_that_the_clock_shows_twice_passes_twice() -> None:
    nights = BusinessHours.parse("sun 00:00-06:00", BERLIN)
    assert nights.add(at("2026-10-25T00:00"), 7 * HOUR) == at("2026-10-25T06:00")
    until_three = BusinessHours.parse("sun 02:00-02:30", BERLIN)
    assert until_three.contains(at("2026-10-25T02:15"))
    assert until_three.contains(at("2026-10-25T02:15").replace(fold=1))


@pytest.mark.parametrize(
    ("hours", "passed"),
    [("sun 00:00-02:00", 2), ("sun 01:00-02:00", 1), ("sun 02:00-03:00", 2), ("sun 03:00-04:00", 1)],
)
def test_an_opening_beside_an_hour_that_comes_twice_has_none_of_it(hours: str, passed: int) -> None:
    nights = BusinessHours.parse(hours, BERLIN)
    assert nights.between(at("2026-10-25T00:00"), at("2026-10-25T06:00")) == passed * HOUR


@pytest.mark.parametrize(("hours", "passed"), [("sat 22:00-24:00", 2), ("sat 22:00-24:00, sun 00:00-01:00", 4)])
def test_a_day_ends_where_a_midnight_that_comes_twice_comes_first(hours: str, passed: int) -> None:
    """In Havana the clock goes back at one in the morning, so midnight comes twice."""
    nights = BusinessHours.parse(hours, ZoneInfo("America/Havana"))
    assert nights.between(datetime(2026, 10, 31, 20, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)) == passed * HOUR


def test_an_opening_that_the_clock_skips_is_none_and_the_next_week_has_it() -> None:
    hour = BusinessHours.parse("sun 02:00-03:00", BERLIN)
    assert hour.add(at("2026-03-28T12:00"), 60) == at("2026-04-05T02:01")


@pytest.mark.parametrize(
    ("hours", "seconds"),
    [("sun 01:00-02:30", HOUR), ("sun 02:30-04:00", HOUR), ("sun 01:30-03:30", HOUR), ("sun 02:10-02:50", 0)],
)
def test_an_opening_that_begins_or_ends_in_an_hour_that_is_skipped_has_what_is_left_of_it(
    hours: str, seconds: int
) -> None:
    nights = BusinessHours.parse(hours, BERLIN)
    assert nights.between(at("2026-03-29T00:00"), at("2026-03-29T06:00")) == seconds


def test_the_longest_time_that_a_rule_may_have_ends_after_ten_years_at_the_latest() -> None:
    rare, begin = BusinessHours.parse("mon 09:00-10:00", BERLIN), at("2026-01-01T09:00")
    assert rare.add(begin, 2**31 - 1) == begin + LONGEST
    assert rare.add(begin, 500 * HOUR) < begin + LONGEST


def test_days_can_go_over_the_end_of_the_week_and_openings_are_counted_once() -> None:
    hours = BusinessHours.parse("Sat-Mon 09:00-12:00, sun 11:00-13:00, tue 0:00-24:00", BERLIN)
    opening = (9 * 60, 12 * 60)
    assert hours.week == ((opening,), ((0, 1440),), (), (), (), (opening,), ((9 * 60, 13 * 60),))
    assert hours.add(at("2026-03-08T09:00"), 4 * HOUR) == at("2026-03-08T13:00")
    assert hours.contains(at("2026-03-03T23:59"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9 to 5", "is not business hours"),
        ("mon-fri", "is not business hours"),
        ("mon-fry 09:00-17:00", "'fry' is not a day of the week"),
        ("mon 17:00-09:00", "ends before it begins"),
        ("mon 09:00-09:00", "ends before it begins"),
        ("mon 09:00-25:00", "25:00 is not a time of day"),
        ("mon 09:60-10:00", "09:60 is not a time of day"),
        ("mon 09:00-17:00,", "is not business hours"),
    ],
)
def test_what_is_no_hours_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        BusinessHours.parse(text)


@given(
    begin=st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2027, 1, 1), timezones=st.just(UTC)),
    spans=st.lists(st.integers(0, 100 * HOUR), min_size=2, max_size=2),
)
def test_what_is_added_in_two_parts_is_what_is_added_at_once(begin: datetime, spans: list[int]) -> None:
    first = OFFICE.add(begin, spans[0])
    assert OFFICE.add(first, spans[1]) == OFFICE.add(begin, sum(spans))
    assert all(earlier <= later for earlier, later in pairwise([begin, first, OFFICE.add(first, spans[1])]))


@given(
    begin=st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2027, 1, 1), timezones=st.just(UTC)),
    seconds=st.integers(1, 100 * HOUR),
)
def test_the_last_second_before_an_end_is_a_business_hour(begin: datetime, seconds: int) -> None:
    assert OFFICE.contains(OFFICE.add(begin, seconds) - timedelta(seconds=1))
