"""One clock: the database's, in the form in which times are stored."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from approvals import clock as moments
from approvals import ledger
from approvals.clock import Now
from approvals.models import Event


@pytest.fixture
def somebody(db):
    return User.objects.create_user("somebody")


def test_the_clock_is_the_time_of_day(somebody):
    now = User.objects.annotate(now=Now()).get().now
    assert abs((timezone.now() - now).total_seconds()) < 5


class Then(Now):
    """The clock of SQLite, stopped."""

    def __init__(self, moment):
        super().__init__()
        self.moment = f"'{moment}'"


@pytest.mark.parametrize("clock", [Now(), Then("2026-11-22 04:56:41.000"), Then("2026-11-22 04:56:41.120")])
def test_a_time_is_not_before_itself(somebody, clock):
    """As it would be on SQLite, where times are text, if the clock had other decimals than a stored time."""
    User.objects.update(last_login=clock)
    somebody.refresh_from_db()
    assert not User.objects.filter(last_login__lt=somebody.last_login).exists()
    assert not User.objects.filter(last_login__gt=somebody.last_login).exists()


def test_a_statement_with_the_clock_can_be_logged(somebody):
    connection.force_debug_cursor = True
    try:
        assert User.objects.filter(last_login__isnull=True).annotate(at=Now()).get().at
    finally:
        connection.force_debug_cursor = False


@pytest.fixture
def heard(monkeypatch):
    """Tell this process that the database's clock is this far ahead of its own."""
    monkeypatch.setattr(moments, "_off", timedelta(0))
    return lambda off, took=0.0: moments.heard(datetime.now(UTC) + off, time.monotonic() - took)


@pytest.mark.parametrize("off", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_an_event_has_the_time_of_the_database_whatever_the_clock_of_its_process_says(db, heard, off):
    heard(off)
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "test.event", {})
    assert abs(Event.objects.get().at - datetime.now(UTC) - off) < timedelta(seconds=5)


def test_clocks_that_differ_by_a_moment_are_left_alone(heard):
    heard(timedelta(minutes=10))
    heard(timedelta(seconds=1))
    assert datetime.now(UTC) <= moments.now() <= datetime.now(UTC)


def test_what_took_long_to_answer_does_not_say_what_time_it_is(heard):
    """A process that was frozen between asking and hearing."""
    heard(timedelta(minutes=-10), took=600.0)
    assert datetime.now(UTC) <= moments.now() <= datetime.now(UTC)
