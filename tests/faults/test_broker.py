"""Redis goes away, fills up, hangs and locks everybody out; messages come twice, in any order, an hour late."""

import base64
import json
import pickle
import random
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db.models import Max

from agentapp.models import Run
from approvals.models import Approval, Event
from tests.faults.outside import wiring
from tests.faults.shop import gate, is_waiting
from tests.faults.stage import Stack, Stage, times
from tests.faults.world import effects
from tests.processes import until

pytestmark = pytest.mark.faults


@contextmanager
def stopped(stage: Stage) -> Iterator[None]:
    stage.redis.end(signal.SIGTERM)
    try:
        yield
    finally:
        stage.redis.start()


@contextmanager
def killed(stage: Stage) -> Iterator[None]:
    stage.redis.end(signal.SIGKILL)
    try:
        yield
    finally:
        stage.redis.start()


@contextmanager
def held(stage: Stage) -> Iterator[None]:
    stage.redis.hold()
    try:
        yield
    finally:
        stage.redis.go_on()


@contextmanager
def locked(stage: Stage) -> Iterator[None]:
    """Its password has changed."""
    with stage.redis.client() as client:
        client.config_set("requirepass", "another")
        _cut(client)
    try:
        yield
    finally:
        with stage.redis.client(password="another") as client:
            client.config_set("requirepass", "")


@contextmanager
def full(stage: Stage) -> Iterator[None]:
    """Its memory is full, and it evicts nothing."""
    with stage.redis.client() as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


def _cut(client) -> None:
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub", skipme=True)


FAULTS: list[Callable] = [stopped, killed, held, locked]


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_broker_what_is_started_and_decided_is_kept_and_it_is_said(stack: Stack, conclude, fault) -> None:
    for _ in range(times(1, 5)):
        run_ids = stack.people.start_many(3)
        stack.people.decide_everything()
        with fault(stack.stage):
            stack.says("broker")
            run_ids += stack.people.start_many(1)
        conclude(run_ids)
        stack.is_well()


def test_a_broker_that_takes_nothing_more_loses_no_run(stack: Stack, conclude) -> None:
    for _ in range(times(1, 5)):
        run_ids = stack.people.start_many(3)
        stack.people.decide_everything()
        with full(stack.stage), stack.stage.redis.client() as client:
            before = _refused(client)
            run_ids += stack.people.start_many(1)
            until(lambda before=before, client=client: _refused(client) > before + 4, "it to refuse several messages")
            stack.says("broker")
        conclude(run_ids)
        stack.is_well()
        assert all(worker.poll() is None for worker in stack.workers), "a worker has died of it"


def _refused(client) -> int:
    return int(client.info("errorstats").get("errorstat_OOM", {}).get("count", 0))


def test_a_broker_that_forgets_everything_and_cuts_everybody_off_loses_no_run(stack: Stack, conclude) -> None:
    run_ids = []
    stack.people.decide_everything()
    with stack.stage.redis.client() as client:
        for _ in range(times(5, 50)):
            before = len(effects())
            run_ids += stack.people.start_many(2)
            client.flushall()
            until(lambda before=before: len(effects()) > before, "a worker to get on with something")
            _cut(client)
    conclude(run_ids)
    stack.is_well()


def test_messages_that_come_twice_in_any_order_and_an_hour_late_change_nothing(stack: Stack, conclude) -> None:
    drawn, every = random.Random(2), []
    _end_workers(stack)
    run_ids = stack.people.start_many(times(12, 250))
    every += _double_and_shuffle(stack, drawn)
    stack.renew()
    until(lambda: _waiting(run_ids), "every run to wait for people")
    _end_workers(stack)
    for approval in Approval.objects.filter(run_id__in=run_ids, state="pending"):
        shown = {"id": str(approval.pk), "version": approval.version, "action_digest": approval.action_digest}
        stack.people.approve(shown)
    every += _double_and_shuffle(stack, drawn)
    stack.renew()
    assert conclude(run_ids).states == {Run.State.SUCCEEDED: len(run_ids)}
    done = _all_there_is(run_ids)
    assert len(every) >= 2 * len(run_ids)
    # As if an hour late: from a backup, or from the other side of a partition.
    with stack.stage.redis.client() as client:
        client.lpush(stack.queue, *every)
        until(lambda: client.llen(stack.queue) == 0, "the late messages to be taken")
    conclude(stack.people.start_many(1))  # the worker that took them takes this one after them
    assert _all_there_is(run_ids) == done


def test_a_run_whose_message_comes_again_while_it_is_under_way_is_driven_once(stack: Stack, conclude) -> None:
    """As Redis does with what has not been acknowledged in time."""
    run_id = stack.people.start(*wiring("wire_slowly", "long"))
    stack.people.decide_everything()
    until(lambda: is_waiting("long"), "the call to take effect")
    with stack.stage.redis.client() as client:
        client.lpush(stack.queue, *[_message("agentapp.tasks.drive_run", str(run_id)) for _ in range(4)])
        until(lambda: client.llen(stack.queue) == 0, "them to be taken")
    gate("long").touch()
    assert conclude([run_id]).effects == 1


def test_a_message_that_is_code_is_not_loaded(stack: Stack, conclude, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    body = pickle.dumps(_Hostile(canary))
    hostile = json.loads(_message("agentapp.tasks.drive_run", "x"))
    hostile |= {"body": base64.b64encode(body).decode(), "content-type": "application/x-python-serialize"}
    with stack.stage.redis.client() as client:
        client.lpush(stack.queue, json.dumps(hostile), json.dumps(hostile | {"content-type": "application/json"}), "{")
        until(lambda: client.llen(stack.queue) == 0, "it to be taken")
    conclude(stack.people.start_many(2))
    assert not canary.exists()
    pickle.loads(body)
    assert canary.exists(), "it would have been harmless anyway"


class _Hostile:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return Path.touch, (self.canary,)


def _message(task: str, *arguments: str) -> str:
    """As Celery puts one into Redis."""
    id = str(uuid.uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps([arguments, {}, embedded]).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": task, "id": id, "root_id": id, "argsrepr": "", "kwargsrepr": ""},
            "properties": {
                "correlation_id": id,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "any"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    )


def _double_and_shuffle(stack: Stack, drawn: random.Random) -> list[bytes]:
    """Put every waiting message back three times, in any order. Returns each that drives a run, once."""
    with stack.stage.redis.client() as client:
        # A list for each priority.
        lists = [key for key in client.scan_iter(f"{stack.queue}*") if client.type(key) == b"list"]
        raw = [message for key in lists for message in client.lrange(key, 0, -1)]
        mixed = raw * 3
        drawn.shuffle(mixed)
        if lists:
            client.delete(*lists)
        if mixed:
            client.lpush(stack.queue, *mixed)
    return [message for message in raw if b"drive_run" in message]


def _end_workers(stack: Stack) -> None:
    for worker in stack.workers:
        stack.end(worker, signal.SIGTERM)


def _waiting(run_ids) -> bool:
    return Run.objects.filter(pk__in=run_ids, waiting_for="approval").count() == len(run_ids)


def _all_ended(run_ids) -> bool:
    return Run.objects.filter(pk__in=run_ids, finished_at__isnull=False).count() == len(run_ids)


def _all_there_is(run_ids) -> list:
    chains = Event.objects.filter(run_id__in=run_ids).values_list("run_id").annotate(last=Max("seq"))
    own = {str(key) for key in run_ids}
    return [sorted(chains), sum(effect["run"] in own for effect in effects())]
