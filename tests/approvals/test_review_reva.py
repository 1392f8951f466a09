"""What rules and hours promise and do not keep: each test fails on what is."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from approvals import rule_terms, rule_versions
from approvals.business_hours import BusinessHours
from approvals.models import Rule, RuleVersion


def test_hours_into_a_skipped_hour_end_where_it_begins():
    """01:00-02:30 on the night when 02:00 becomes 03:00: one hour of it takes place."""
    hours = BusinessHours.parse("sun 01:00-02:30", ZoneInfo("Europe/Berlin"))
    begin, end = datetime(2026, 3, 29, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)  # 01:00 CET to 03:00 CEST
    assert hours.between(begin, end) == 3600


@pytest.mark.parametrize("seconds", [2147483647])
def test_a_time_that_a_rule_may_have_can_be_counted(seconds):
    hours = BusinessHours.parse("mon 09:00-10:00", ZoneInfo("UTC"))
    assert hours.add(datetime(2026, 1, 1, tzinfo=UTC), seconds)
