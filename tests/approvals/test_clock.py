"""One clock: the database's, in the form in which times are kept."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from approvals.clock import Now


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
    """As it would be on SQLite, where times are text, if the clock gave other decimals than a stored time has."""
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
