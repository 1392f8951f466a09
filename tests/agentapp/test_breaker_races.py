"""Breakers of several tools counted or admitted in one transaction: they are locked in one order."""

import threading
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from agentapp import breakers, budgets, loop
from agentapp.models import Agent, Breaker, Run, Spending, Tool
from agentapp.tools.base import tool
from approvals.models import Rule
from tests import stopping_tools
from tests.conftest import call, calls, says
from tests.races import race


def to_its_end(run: UUID) -> None:
    """A breaker's change counts as configuration for a worker about to begin a call, so the worker checks again."""
    while loop.drive(run) is not None:
        pass


@pytest.fixture
def crossing(transactional_db, monkeypatch):
    """Two transactions that lock breakers one by one: each has its first before either takes its second."""
    both = threading.Barrier(2, timeout=2)
    real = breakers._lock

    def one_by_one(things):
        found = real(things)
        with suppress(threading.BrokenBarrierError):
            both.wait()
        return found

    monkeypatch.setattr(breakers, "_lock", one_by_one)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("known", "broken"), [(True, False), (True, True), (False, True)])
def test_two_runs_whose_reads_ask_two_sources_in_opposite_order_both_end(desk, crossing, known, broken):
    here = call("a", "fail", how="never") if broken else call("a", "look_up", what="1")
    stopping_tools.BROKEN.update({"ask": stopping_tools.failing()} if broken else {})
    things = [
        ("tool", here["name"]),
        ("source", "tests-clerk_tools"),
        ("tool", "ask"),
        ("source", "tests-stopping_tools"),
    ]
    for scope, key in things if known else things[:0]:
        Breaker.objects.create(scope=scope, key=key, threshold=9, failures=1)
    there = desk.start(calls(here, call("b", "ask", about="1")), says("done"))
    back = desk.start(calls(call("b", "ask", about="1"), here), says("done"))
    ended = race(lambda: loop.drive(there.pk), lambda: loop.drive(back.pk))
    assert not [error for error in ended if isinstance(error, Exception)]
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}
    counted = (3 if known else 2) if broken else 0
    of_tools = Breaker.objects.filter(scope__in=["tool", "source"])
    assert set(of_tools.values_list("key", "failures")) == {(key, counted) for _, key in things}


@pytest.mark.django_db(transaction=True)
def test_two_runs_whose_late_reads_are_probes_of_two_sources_both_end(desk, crossing):
    for scope, key in [("tool", "look_up"), ("tool", "ask")]:
        past = timezone.now() - timedelta(hours=1)
        Breaker.objects.create(scope=scope, key=key, state="open", failures=3, opened_at=past)
    here, beside = call("a", "look_up", what="1"), call("b", "ask", about="1")
    runs = [desk.start(calls(*both), says("done")) for both in ((here, beside), (beside, here))]
    ended = race(*[partial(to_its_end, run.pk) for run in runs])
    assert not [error for error in ended if isinstance(error, Exception)]
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_call_is_paid_while_a_priced_one_of_its_agent_begins_as_a_probe_of_its_source(clerk, offer, monkeypatch):
    """Beginning a call locks the agent's day, then its breakers; storing a call's outcome does the same."""
    begun, met = threading.Event(), threading.Barrier(2, timeout=60)

    @tool(effect="compensable")
    def ship() -> str:
        """Ship it, by a source that stops working just then."""
        source = Tool.objects.get(name="ship").source.name
        past = timezone.now() - timedelta(hours=1)
        Breaker.objects.create(scope="source", key=source, state="open", failures=3, opened_at=past)
        begun.set()
        return "shipped"

    @tool(effect="read")
    def search() -> str:
        """Search."""
        return "found"

    offer(ship, search)
    Agent.objects.update(max_daily_cost=100)
    Tool.objects.filter(name__in=["ship", "search"]).update(cost_per_call=Decimal("0.5"))
    Rule.objects.create(name="ships", tool="ship", verdict="allow")
    Spending.objects.create(agent=clerk.agent, day=timezone.now().date(), cost=1)
    ships = clerk.start(calls(call("a", "ship")), says("done"))
    searches = clerk.start(calls(call("b", "search")), says("done"))
    pay, admit, first = budgets.pay, breakers.admit, [*"pa"]

    def meet_once(who: str) -> None:
        if begun.is_set() and who in first:
            first.remove(who)
            met.wait()

    def paid(run: Run, cost: Decimal) -> None:
        if run.pk == ships.pk:
            meet_once("p")
        pay(run, cost)

    def admitted(things: Any, seconds: float) -> Any:
        meet_once("a")
        return admit(things, seconds)

    monkeypatch.setattr(budgets, "pay", paid)
    monkeypatch.setattr(breakers, "admit", admitted)
    ended = race(lambda: to_its_end(ships.pk), lambda: begun.wait(60) and to_its_end(searches.pk))
    assert not [error for error in ended if isinstance(error, Exception)]
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}
