"""A generated month of traffic, with mocked runs among the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction

from agentapp.insights import catch_up
from agentapp.insights.periods import Period
from agentapp.roles import ensure_roles
from tests.agentapp.insights.sql import MONTH, NOW
from tests.traffic import generate


@dataclass(frozen=True)
class World:
    people: list[User]
    teams: list[Group]
    month: Period


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """A month that ended a moment ago; its last hour is not over.

    Written once for the tests of a file, which only read or undo what they write.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        ensure_roles()
        people = [
            User.objects.create_user(name, f"{name}@example.test") for name in ("dana", "marco", "priya", "tomas")
        ]
        teams = [Group.objects.create(name=name) for name in ("payments", "shipping")]
        generate(NOW - MONTH, NOW, 1400, people, teams, calls=2, mocked_each=9).write()
        state = catch_up(NOW, most=timedelta(days=60))
        assert state is not None
        assert state.until == datetime(2026, 10, 20, 13, tzinfo=UTC)
        yield World(people, teams, Period("custom", datetime(2026, 9, 25, tzinfo=UTC), NOW, "a month"))
        transaction.set_rollback(True)


@pytest.fixture
def people(world: World) -> list[User]:
    return world.people


@pytest.fixture
def teams(world: World) -> list[Group]:
    return world.teams


@pytest.fixture
def month(world: World) -> Period:
    return world.month
