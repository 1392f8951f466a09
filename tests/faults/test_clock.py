"""Processes' clocks are minutes, days or years off, both ways at once: the database's clock decides what is due."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import Q
from django.utils import timezone

from agentapp.models import Run, ToolExecution
from approvals.clock import Now
from approvals.models import Approval, Event
from tests.e2e.conftest import not_run
from tests.faults.outside import wiring
from tests.faults.shop import gate, is_waiting
from tests.faults.stage import Stack, Stage, times
from tests.faults.world import effects
from tests.processes import until

pytestmark = pytest.mark.faults

LEASE = timedelta(seconds=3)
MINUTES, DAY, YEARS = 600, 86_400, 13 * 365 * 86_400
# By how many seconds: of the web server, and of two workers. A web server whose clock is days off would sign everybody
# out. After 13 years, seconds since 1970 no longer fit into 31 bits.
OFF = {
    "ahead": (MINUTES, MINUTES, -MINUTES),
    "behind": (-MINUTES, -MINUTES, MINUTES),
    "workers only": (0, YEARS, -DAY),
}


def built(folder: Path) -> str:
    """The library that shows a process another time, built from the C file in this folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        not_run("clocks that are off need a C compiler (cc)")
    library, source = folder / "another_time.so", Path(__file__).with_name("another_time.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


@pytest.fixture(scope="module", params=OFF)
def off(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    return OFF[request.param]


@pytest.fixture(scope="module")
def kept_stack(off: tuple[int, int, int], stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A web server and two workers; the workers' clocks are off in opposite ways."""
    folder = tmp_path_factory.mktemp("clocks")
    library = built(folder)
    made = Stack(stage, folder, [{"LD_PRELOAD": library, "CLOCK_OFF_BY": str(by)} for by in off])
    try:
        made.until_ready()
        yield made
    finally:
        made.end_all()
        stage.statement("DELETE FROM agentapp_heartbeat WHERE name = 'worker_clock'")  # it is no longer true


def test_what_is_done_is_done_once_and_it_is_said_that_a_clock_is_off(stack: Stack, conclude, off) -> None:
    stack.says("worker_clock")
    if off[0]:
        stack.says("clock")
    began = timezone.now()  # the tests' clock is right
    runs = stack.people.start_many(times(6, 60))
    assert conclude(runs).states == {Run.State.SUCCEEDED: times(6, 60)}
    # Webhooks, pages and reminders to people go by the times of events.
    told = Event.objects.filter(run_id__in=runs)
    assert not told.filter(Q(at__lt=began - timedelta(seconds=5)) | Q(at__gt=Now() + timedelta(seconds=5))).exists()


def test_a_lease_is_not_over_before_the_database_says_so(stack: Stack, conclude) -> None:
    """A call takes longer than its run's lease; by the other worker's clock it was over long ago."""
    item = f"clock-{stack.queue}"
    run_id = stack.people.start(*wiring("wire_slowly", item))
    stack.people.decide_everything()
    until(lambda: is_waiting(item), "the call to take effect")
    first = Run.objects.get(pk=run_id).lease_until
    until(lambda: Run.objects.filter(pk=run_id, lease_until__gt=first + LEASE).exists(), "a whole lease to go by")
    assert ToolExecution.objects.get(run=run_id).state == ToolExecution.State.EXECUTING
    gate(item).touch()
    assert conclude([run_id]).effects == 1
    assert ToolExecution.objects.get(run=run_id).attempts == 1


def test_a_request_expires_when_the_database_says_so(stack: Stack) -> None:
    """One has five minutes left, the other's time was over a second ago."""
    stays, goes = (stack.people.start(*wiring("wire", name)) for name in ("stays", "goes"))
    pending = Approval.objects.filter(state="pending")
    until(lambda: pending.filter(run_id__in=[stays, goes]).count() == 2, "people to be asked")
    pending.filter(run_id=stays).update(expires_at=Now() + timedelta(minutes=5))
    pending.filter(run_id=goes).update(expires_at=Now() - timedelta(seconds=1))
    until(lambda: Approval.objects.get(run_id=goes).state == "expired", "it to expire")
    until(lambda: Run.objects.get(pk=goes).is_final, "its run to be told")
    assert Approval.objects.get(run_id=stays).state == "pending"
    assert all(effect["run"] != str(goes) for effect in effects())
