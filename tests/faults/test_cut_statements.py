"""The connection to the database is cut at each statement of a run, one after the other, and at each commit.

This happens in the tests' process, so that none is left out: whatever is cut, the promises hold after a sweep.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from agentapp import actions, loop, runs
from agentapp.models import Run
from agentapp.nudges import quiet
from agentapp.sweep import sweep
from approvals.models import Approval
from tests.faults import shop
from tests.faults.outside import of_every_kind, wiring
from tests.faults.stage import SHARE, Stage, times
from tests.faults.verdict import ended, judge
from tests.faults.world import effects

pytestmark = pytest.mark.faults

CUT = (OperationalError, InterfaceError, runs.LeaseLost)


@dataclass
class Cutter:
    """Counts statements and commits of this thread's connection, and cuts it at one of them."""

    stage: Stage
    at: int = 0
    how: str = ""
    statements: list[bool] = field(default_factory=list)
    """Whether each began a transaction, or was one on its own."""
    commits: int = 0
    was_cut: bool = False
    cut_off: set[uuid.UUID] = field(default_factory=set)
    """The calls that were under way then."""
    _is_open: bool = False

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements.append(not self._is_open)
        self._is_open = connection.in_atomic_block
        if self.how == "before" and len(self.statements) == self.at:
            self.cut()
        done = execute(sql, params, many, context)
        if self.how == "after" and len(self.statements) == self.at:
            self.cut()
        return done

    def cut(self) -> None:
        self.was_cut = True
        self.stage.statement("SELECT pg_terminate_backend(%s, 1000)", connection.connection.info.backend_pid)
        self.cut_off |= self.stage.under_way()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        real = connection._commit

        def commit() -> None:
            real()
            self._is_open = False
            self.commits += 1
            if self.how == "unanswered" and self.commits == self.at:
                self.cut()
                raise OperationalError("the server closed the connection unexpectedly")

        connection._commit = commit
        try:
            with connection.execute_wrapper(self):
                yield
        finally:
            del connection._commit


def one_run(stage: Stage, cutter: Cutter) -> Run:
    """Start a run, drive it, decide, drive it on, with one cut on the way; then do as a sweep and another worker do."""
    sam, dana = User.objects.get(username="sam"), User.objects.get(username="dana")
    started: list[uuid.UUID] = []
    key, decisions = uuid.uuid4().hex, {}
    script = of_every_kind(key[:8]) if SHARE else wiring("wire", key[:8])
    new = actions.NewRun(agent="shop", input="See to it.", script=script, request_key=key)

    def start() -> None:
        started.append(actions.start_run_once(new, sam).run.pk)

    def decide() -> None:
        for approval in Approval.objects.filter(run_id__in=started, state="pending"):
            decided = decisions.setdefault(approval.pk, uuid.uuid4())
            approve = actions.NewDecision(decided, "approve", approval.version, approval.action_digest)
            acknowledged.append(actions.decide(approval.pk, approve, dana).decision.pk)

    def drive() -> None:
        for run_id in started:
            while (again := loop.drive(run_id)) is not None and again.delay == 0:
                pass

    acknowledged: list[uuid.UUID] = []
    with quiet():
        with cutter.at_work():
            for what in (start, drive, decide, drive):
                _try(what)
        _try(start)  # a client that got no answer asks again, with the same key
        for _ in range(6):
            Run.objects.filter(pk__in=started, state="running").update(lease_until=timezone.now() - timedelta(1))
            if set(started) & set(sweep()):
                drive()
            decide()
            if ended(started):
                break
    verdict = judge(set(started), effects(), cutter.cut_off, acknowledged)
    assert len(set(started)) == 1
    assert verdict.problems == [], f"cut {cutter.how} {cutter.at}: {verdict.problems}"
    assert ended(started), f"cut {cutter.how} {cutter.at}: {verdict}"
    return Run.objects.get(pk=started[0])


def _try(what: Callable[[], None]) -> None:
    try:
        what()
    except CUT:
        connection.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(shop, "LATENCY_SECONDS", 0)
    settings.UNDO_HOLD_SECONDS = 0
    settings.ALLOW_SCRIPTED_RUNS = True
    settings.OPEN_RUNS_PER_PERSON = 0  # counted only now and then, and each run here has the same statements


@pytest.mark.parametrize("how", ["after", "before", "unanswered"])
def test_a_connection_that_is_cut_at_any_statement_of_a_run_breaks_no_promise(stage: Stage, quick, how: str) -> None:
    """After each statement, so that its transaction is lost; before each that begins one, so that the previous one is
    kept; and when a commit was made but not acknowledged.
    """
    recorded = Cutter(stage)
    assert one_run(stage, recorded).state == Run.State.SUCCEEDED
    places = range(1, len(recorded.statements) + 1)
    if how == "before":
        places = [at for at in places if recorded.statements[at - 1]]
    elif how == "unanswered":
        places = range(1, recorded.commits + 1)
    states = [_cut_at(stage, at, how) for at in places for _ in range(times(1, 3))]
    # A run cut between calls goes on by itself; it is shown to a person only if it was cut during one.
    assert states.count(Run.State.SUCCEEDED) > len(states) / 2
    assert set(states) <= {Run.State.SUCCEEDED, Run.State.WAITING}
    print(f"{len(states)} cuts {how}: {states.count(Run.State.WAITING)} outcomes unknown")


def _cut_at(stage: Stage, at: int, how: str) -> str:
    cutter = Cutter(stage, at, how)
    state = one_run(stage, cutter).state
    assert cutter.was_cut, f"nothing was cut {how} {at}"
    return state
