"""A worker whose Redis restarts, hangs or cuts it off goes on by itself when Redis is back."""

import base64
import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from agentapp import connections
from agentapp.models import Heartbeat
from approvals.clock import Now
from tests.absent import OwnRedis, own_redis
from tests.processes import Processes, until

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]
SWEEP = "agentapp.tasks.sweep"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


@pytest.fixture
def works(own: OwnRedis, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """`works()`: a worker on that Redis does what it is told. It is told once, and no beat repeats it."""
    processes = Processes(tmp_path, REDIS_URL=own.url)
    processes.worker()
    app = Celery("test", broker=own.url, set_as_current=False)
    app.conf.broker_transport_options = connections.broker_options(embedded=False)
    app.conf.task_default_queue = processes.queue

    def works() -> None:
        # A sweep that has just been done is not done again.
        Heartbeat.objects.update(at=Now() - timedelta(minutes=1))
        before = swept_at()
        app.send_task(SWEEP)
        until(lambda: swept_at() != before, "the worker to do what it was told")

    until(lambda: swept_at() is not None, "the worker to start")
    yield works
    app.close()
    processes.end_all()


def swept_at() -> Any:
    return Heartbeat.objects.filter(pk="sweep").values_list("at", flat=True).first()


def test_it_goes_on_whatever_becomes_of_its_redis(own: OwnRedis, works: Callable[[], None]) -> None:
    works()
    with redis.Redis.from_url(own.url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    works()
    own.stop()
    own.start()
    works()
    assert own.process is not None
    os.kill(own.process.pid, signal.SIGSTOP)
    with pytest.raises(redis.TimeoutError), redis.Redis.from_url(own.url, socket_timeout=4, retry=None) as client:
        client.ping()  # longer than a worker waits for an answer
    os.kill(own.process.pid, signal.SIGCONT)
    works()


def test_it_does_not_open_a_program_that_somebody_put_into_its_queue_and_goes_on(
    own: OwnRedis, works: Callable[[], None], tmp_path: Path
) -> None:
    works()
    canary = tmp_path / "canary"
    with redis.Redis.from_url(own.url) as client:
        [queue] = [key.decode() for key in client.scan_iter("_kombu.binding.test-*")]
        name = queue.removeprefix("_kombu.binding.")
        body = base64.b64encode(pickle.dumps(_Canary(str(canary)))).decode()
        told = {"delivery_mode": 2, "delivery_tag": "1", "body_encoding": "base64",
                "delivery_info": {"exchange": "", "routing_key": name}}  # fmt: skip
        kind = {"content-type": "application/x-python-serialize", "content-encoding": "binary", "headers": {}}
        client.lpush(name, json.dumps({"body": body, "properties": told, **kind}))
        until(lambda: client.llen(name) == 0, "the worker to take the message")
    works()
    assert not canary.exists()


def test_beat_goes_round_and_notes_it_whether_or_not_its_redis_is_there(own: OwnRedis, tmp_path: Path) -> None:
    note = tmp_path / "beat"
    processes = Processes(tmp_path, REDIS_URL=own.url, BEAT_FILE=str(note))
    try:
        processes.beat()
        until(note.exists, "beat to go round")
        own.stop()
        was = note.stat().st_mtime_ns
        until(lambda: note.stat().st_mtime_ns > was, "beat to go round without its Redis")
        gone_round = note.stat().st_mtime_ns
        until(lambda: note.stat().st_mtime_ns > gone_round, "beat to go on doing so")
    finally:
        processes.end_all()


class _Canary:
    """If unpickled, it writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))
