"""A generated month of traffic, with mocked runs among the others."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User

from agentapp.insights import catch_up
from agentapp.insights.periods import Period
from tests.agentapp.insights.sql import MONTH, NOW
from tests.traffic import generate


@pytest.fixture
def people(roles: dict[str, Group]) -> list[User]:
    return [User.objects.create_user(name, f"{name}@example.test") for name in ("dana", "marco", "priya", "tomas")]


@pytest.fixture
def teams() -> list[Group]:
    return [Group.objects.create(name=name) for name in ("payments", "shipping")]


@pytest.fixture
def month(people: list[User], teams: list[Group]) -> Period:
    """A month that ended a moment ago; its last hour is not over."""
    generate(NOW - MONTH, NOW, 1400, people, teams, calls=2, mocked_each=9).write()
    state = catch_up(NOW, most=timedelta(days=60))
    assert state is not None
    assert state.until == datetime(2026, 10, 20, 13, tzinfo=UTC)
    return Period("custom", datetime(2026, 9, 25, tzinfo=UTC), NOW, "a month")
