"""Processes are killed, frozen and asked to end, again and again, while runs go on."""

import os
import random
import signal
import time
from contextlib import nullcontext

import pytest

from agentapp.models import Run, Step, ToolExecution
from approvals.models import Event
from tests.faults.outside import wiring
from tests.faults.shop import gate, is_waiting
from tests.faults.stage import Stack, times
from tests.faults.verdict import unfinished
from tests.faults.world import effects
from tests.processes import until

pytestmark = pytest.mark.faults

KILLS = times(10, 200)
RUNS = times(25, 500)
MOST_UNFINISHED = 20
UNKNOWN = ToolExecution.State.OUTCOME_UNKNOWN


def progress() -> tuple[int, int]:
    return Step.objects.count(), len(effects())


def moved_on(before: tuple[int, int]) -> None:
    until(lambda: progress() != before, "a worker to get on with something")


def happened(run_id: object, what: str) -> int:
    return sum(effect["run"] == str(run_id) and effect["what"] == what for effect in effects())


def call_of(run_id: object) -> ToolExecution:
    return ToolExecution.objects.get(run=run_id, call_id="wire")


def test_workers_that_are_killed_again_and_again_lose_no_run_and_pay_nothing_twice(stack: Stack, conclude) -> None:
    drawn, run_ids, cut_off = random.Random(1), [], set()
    stack.people.decide_everything()
    for kill in range(KILLS):
        # New runs arrive as long as workers die, so that they always die with work in hand. There are not so many that
        # the test ends up measuring how long they queue.
        until(lambda: unfinished(run_ids) <= MOST_UNFINISHED, "runs to be done")
        before = progress()
        run_ids += stack.people.start_many(RUNS * (kill + 1) // KILLS - len(run_ids))
        moved_on(before)
        time.sleep(drawn.uniform(0, 0.7))  # anywhere in its work
        with stack.stage.cutting_off(cut_off):
            stack.end(stack.workers[drawn.randrange(len(stack.workers))])
        stack.renew()
    found = conclude(run_ids, cut_off)
    print(f"after {KILLS} kills: {found}")
    assert found.states[Run.State.SUCCEEDED] + found.unknown == len(run_ids) == RUNS
    assert found.states[Run.State.SUCCEEDED] > RUNS / 2
    stack.is_well()


def test_whatever_is_killed_between_two_decisions_is_found_again(stack: Stack, conclude) -> None:
    """Beat, web server, and all processes at once."""
    run_ids, cut_off = [], set()
    stack.people.decide_everything()
    for killed in (["beat"], ["web"], ["beat", "web", "workers"]) * times(1, 10):
        before = progress()
        run_ids += stack.people.start_many(3)
        moved_on(before)
        with stack.stage.cutting_off(cut_off) if "workers" in killed else nullcontext():
            for process in [stack.beat, stack.web, *stack.workers]:
                names = {stack.beat.pid: "beat", stack.web.pid: "web"}
                if names.get(process.pid, "workers") in killed:
                    stack.end(process)
        stack.renew()
    conclude(run_ids, cut_off)
    stack.is_well()


def test_without_beat_it_is_said_that_nothing_looks_after_what_is_overdue(stack: Stack, conclude) -> None:
    stack.end(stack.beat)

    def overdue() -> bool:
        """As if a minute had passed since. A worker may still have had a sweep to do."""
        stack.stage.statement("UPDATE agentapp_heartbeat SET at = at - interval '2 minutes'")
        return "not_swept" in stack.readiness()[1]

    until(overdue, "/readyz/ to say that nothing is swept")
    stack.says("not_swept")
    stack.renew()
    conclude(stack.people.start_many(1))
    stack.is_well()


def test_without_workers_it_is_said_that_a_run_has_been_due_for_long(stack: Stack, conclude) -> None:
    for worker in stack.workers:
        stack.end(worker)
    run_ids = stack.people.start_many(1)
    stack.stage.statement("UPDATE agentapp_run SET updated_at = now() - interval '2 minutes' WHERE state = 'queued'")
    stack.says("workers_late")
    stack.renew()
    conclude(run_ids)
    stack.is_well()


@pytest.mark.parametrize(("tool", "then"), [("wire_slowly", "shown"), ("wire_once_slowly", "repeated")])
def test_a_worker_that_is_held_past_its_lease_and_comes_back_changes_nothing(stack, conclude, tool, then) -> None:
    """It is a zombie: another worker has taken over, and its answer comes late."""
    for number in range(times(1, 10)):
        item = f"{tool}-{number}"
        run_id = stack.people.start(*wiring(tool, item))
        stack.people.decide_everything()
        until(lambda item=item: is_waiting(item), "the call to take effect")
        for worker in stack.workers:
            os.kill(worker.pid, signal.SIGSTOP)
        other = stack.worker()
        try:
            if then == "shown":
                until(lambda: call_of(run_id).state == UNKNOWN, "another worker to show that nobody knows")
            else:
                until(lambda: Run.objects.get(pk=run_id).is_final, "another worker to ask with the key again")
        finally:
            for worker in stack.workers:
                os.kill(worker.pid, signal.SIGCONT)
            gate(item).touch()
        late = Event.objects.filter(run_id=run_id, type="tool_call.late_answer")
        until(late.exists, "the late answer to be kept")
        stack.end(other, signal.SIGTERM)
        assert happened(run_id, tool) == 1
        conclude([run_id])
        assert call_of(run_id).result_status == "ok"


def test_a_worker_that_is_asked_to_end_lets_its_call_finish_and_begins_no_other_step(stack: Stack, conclude) -> None:
    run_id = stack.people.start(*wiring("wire_slowly", "asked-to-end"))
    stack.people.decide_everything()
    until(lambda: is_waiting("asked-to-end"), "the call to take effect")
    before = stack.logged("Warm shutdown")
    for worker in stack.workers:
        worker.terminate()
    until(lambda: stack.logged("Warm shutdown") == before + len(stack.workers), "the workers to hear of it")
    gate("asked-to-end").touch()
    for worker in stack.workers:
        assert worker.wait(30) == 0
    assert call_of(run_id).result_status == "ok"
    assert Run.objects.get(pk=run_id).state == Run.State.QUEUED  # at once, without waiting for its lease to expire
    stack.renew()
    assert conclude([run_id]).unknown == 0
    assert happened(run_id, "wire_slowly") == 1
