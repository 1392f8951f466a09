from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentapp.demo import opening, traffic
from agentapp.models import Run, ToolExecution
from approvals import append_only
from approvals.models import Approval, Decision, Event
from approvals.proof import verifying

pytestmark = pytest.mark.django_db


def load(runs: int, seed: int = 7) -> None:
    call_command("load_traffic", runs=runs, days=5, seed=seed, stdout=StringIO())


def test_a_made_up_past_is_a_ledger_that_holds():
    opening.open_shop()
    load(40)
    assert (Run.objects.count(), Approval.objects.count()) == (40, 40)
    assert ToolExecution.objects.count() == 40 * (traffic.READS + 1)
    assert verifying.look().broken is None
    assert append_only.missing(connection) == set()
    asked = Event.objects.filter(type="approval.requested").exclude(tool="").count()
    assert asked == 40
    decided = Event.objects.filter(type__in=["approval.approved", "approval.rejected"], took_ms__gt=0).count()
    assert decided == Decision.objects.count() > 20


def test_the_same_seed_makes_the_same_past():
    opening.open_shop()
    cast = traffic.Cast.read()
    until = cast.starter.date_joined
    one, other = (next(traffic.make(cast, 5, until, 5, seed=3)) for _ in range(2))
    assert [event.hash for event in one.events] == [event.hash for event in other.events]
    assert one.events[-1].hash != next(traffic.make(cast, 5, until, 5, seed=4)).events[-1].hash


def test_it_goes_only_where_there_is_no_run():
    opening.open_shop()
    load(1)
    with pytest.raises(CommandError, match="This database has runs"):
        load(1)
    assert Run.objects.count() == 1


def test_it_needs_a_shop():
    with pytest.raises(CommandError, match="no shop"):
        load(1)
