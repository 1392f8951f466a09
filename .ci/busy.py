"""Weeks of traffic for the pictures that need it, deleted again when they are taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import story
from django.contrib.auth.models import Group
from django.utils import timezone

from agentapp.insights import back_fill
from agentapp.models import Agent, Breaker, ModelUse, Run, Step, ToolExecution
from approvals.models import Approval, Decision
from tests.traffic import Traffic, generate

WEEKS = timedelta(days=29)


@contextmanager
def weeks(told: story.Story) -> Iterator[None]:
    """Two agents with limits, three people who decide, and an open breaker."""
    now = timezone.now()
    people = [told.people[name] for name in ("dana", "marco", "ada")]
    known = set(Agent.objects.values_list("pk", flat=True))
    made = generate(now - WEEKS, now - timedelta(hours=1), 900, people, list(Group.objects.filter(name="approver")))
    made.write()
    limits = dict(Agent.objects.values_list("pk", "max_daily_cost"))
    Agent.objects.update(max_daily_cost="0.20")
    breaker = Breaker.objects.create(
        scope="tool", key="carrier_lookup", state="open", opened_at=now, failures=3, last_error="timed_out: No answer."
    )
    back_fill()
    yield
    breaker.delete()
    _forget(made)
    Agent.objects.exclude(pk__in=known).delete()
    for key in known:
        Agent.objects.filter(pk=key).update(max_daily_cost=limits[key])
    back_fill()


def _forget(made: Traffic) -> None:
    runs, approvals = [run.pk for run in made.runs], [one.pk for one in made.approvals]
    for table in (ToolExecution, Step, ModelUse):
        table.objects.filter(run__in=runs).delete()
    Decision.objects.filter(approval__in=approvals).delete()
    Approval.objects.filter(pk__in=approvals).delete()
    Run.objects.filter(pk__in=runs).delete()
