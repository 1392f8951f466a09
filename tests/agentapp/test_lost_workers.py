"""A run that ends whoever drives it is put aside, and a call that ends its thread ends nothing else."""

import asyncio
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from django.urls import reverse

from agentapp import actions, controls, executor, health, loop, runs
from agentapp.models import Run
from agentapp.models.runs import MOST_WORKERS_LOST
from agentapp.tools.base import tool
from approvals.models import Event, Rule
from tests.conftest import Clerk, call, calls, says

LOOK_UP = calls(call("a", "look_up", what="1"))


class Killed(BaseException):
    """The worker is gone: nothing behind this line is done."""


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The process dies as it makes a call, as often as a test lets it."""

    def die(*_: Any) -> Any:
        raise Killed

    monkeypatch.setattr(executor, "_call", die)
    return monkeypatch


def lost(run: Run, times: int) -> Run:
    """The run, after so many workers vanished while they had it."""
    for _ in range(times):
        with pytest.raises(Killed):
            loop.drive(run.pk)
        Run.objects.filter(pk=run.pk).update(lease_until=F("lease_until") - timedelta(hours=1))
    return Run.objects.get(pk=run.pk)


def test_a_run_that_loses_one_worker_after_the_other_is_paused_before_it_ends_the_next(
    clerk: Clerk, deadly: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST)
    assert run.state == "running"
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.lease_token, run.loses_workers) == ("paused", None, True)
    assert Event.objects.get(type="run.paused", run_id=run.pk).data == {
        "why": f"{MOST_WORKERS_LOST} workers in a row vanished while they had it."
    }
    assert f"{run.pk} is paused: {MOST_WORKERS_LOST} workers" in caplog.text


def test_a_mocked_one_fails_since_nobody_looks_after_it(clerk: Clerk, deadly: Any, ada: User) -> None:
    new = actions.NewRun(agent="clerk", input="Look.", script=[LOOK_UP, says("done")], mocks={})
    run = lost(actions.start_run(new, ada), MOST_WORKERS_LOST)
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.lease_token) == ("failed", None)
    assert run.stop_message == f"{MOST_WORKERS_LOST} workers in a row vanished while they had it."
    assert [problem for problem in health.look() if problem.code == "runs_lose_workers"] == []


def test_every_claim_says_how_many_were_lost_before_it(clerk: Clerk, deadly: Any) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), 3)
    claims = Event.objects.filter(type="run.claimed", run_id=run.pk).order_by("seq")
    assert [event.data.get("workers_lost") for event in claims] == [None, 1, 2]


def test_a_step_that_is_done_starts_the_count_anew(clerk: Clerk, deadly: Any) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST - 1)
    deadly.undo()
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.workers_lost) == ("succeeded", 0)


def test_who_resumes_it_gives_it_as_many_workers_again(clerk: Clerk, deadly: Any, sam: User) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST)
    loop.drive(run.pk)
    controls.resume_run(run.pk, sam)
    assert lost(run, 1).workers_lost == 0
    assert lost(run, 1).workers_lost == 1


def test_one_that_is_to_be_cancelled_ends_rather_than_being_paused(clerk: Clerk, deadly: Any, sam: User) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST)
    actions.cancel_run(run.pk, sam)
    loop.drive(run.pk)
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_a_worker_that_has_lost_it_meanwhile_does_not_pause_it(clerk: Clerk, deadly: Any) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    Run.objects.filter(pk=run.pk).update(lease_until=F("lease_until") - timedelta(hours=1))
    assert runs.claim(run.pk) is not None
    assert loop._drive(claimed) is None
    run.refresh_from_db()
    assert run.state == "running"


def test_it_is_a_problem_until_somebody_resumes_it_and_its_page_says_why(
    clerk: Clerk, deadly: Any, sam: User, client: Client
) -> None:
    run = lost(clerk.start(LOOK_UP, says("done")), MOST_WORKERS_LOST)
    loop.drive(run.pk)
    [problem] = [problem for problem in health.look() if problem.code == "runs_lose_workers"]
    assert problem.message.startswith("1 run is paused, because worker after worker vanished")
    assert problem.details == run.reference
    client.force_login(sam)
    assert "Worker after worker vanished while it had this run." in client.get(reverse("run", args=[run.pk])).text
    controls.resume_run(run.pk, sam)
    assert not [problem for problem in health.look() if problem.code == "runs_lose_workers"]


@tool(effect="read", max_attempts=1)
def leave(code: int) -> str:
    """Look something up with a program that ends itself."""
    sys.exit(code)


@tool(effect="read", max_attempts=1)
async def give_up(code: int) -> str:
    """Look something up in a task that is cancelled."""
    raise asyncio.CancelledError(code)


@tool(effect="irreversible")
def pay_and_leave(code: int) -> str:
    """Pay with a program that ends itself."""
    sys.exit(code)


@pytest.mark.parametrize(("name", "raised"), [("leave", "SystemExit"), ("give_up", "CancelledError")])
def test_a_read_that_would_end_its_program_has_failed_and_the_run_goes_on(
    clerk: Clerk, offer: Any, name: str, raised: str
) -> None:
    offer(leave, give_up)
    run = clerk.drive(clerk.start(calls(call("a", name, code=3)), says("done")))
    execution = clerk.execution(run, "a")
    assert (run.state, execution.result_status, execution.reason) == ("succeeded", "fatal_error", "tool_failure")
    assert execution.message == f"Quit: it raised {raised}"


def test_of_a_write_that_does_nobody_knows_what_happened(clerk: Clerk, offer: Any) -> None:
    offer(pay_and_leave)
    Rule.objects.create(name="payments", tool="pay_and_leave", verdict="allow")
    run = clerk.drive(clerk.start(calls(call("a", "pay_and_leave", code=3)), says("done")))
    assert (run.state, run.waiting_for) == ("waiting", "outcome")
